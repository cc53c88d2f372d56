"""Identities of Python values: hashes that are equal in every process. A function counts by its bytecode, its defaults, and the values that
it reaches: closure variables, globals, and called functions. Names of files, line numbers, comments and docstrings do not count."""

from __future__ import annotations

import copyreg
import dis
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, TypeVar

from ._ship import is_installed_at
from ._spec import CacheWrapper, is_found, reduced_cache

#: The protocol of pickle by which other objects are taken apart.
_PROTOCOL = 4
#: Types whose values are identified by their text.
_PLAIN = (type(None), type(Ellipsis), type(NotImplemented), bool, float, complex, str, bytes, bytearray)
#: Instructions that read a global variable.
_READS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
#: Names that a class body sets to line numbers, or to a tuple whose order differs between processes.
_OF_SOURCE = ("__firstlineno__", "__static_attributes__")
#: Entries of a class that do not count: they follow from the others, or from the source file.
_NOT_COUNTED = {
    *_OF_SOURCE,
    "__dict__",
    "__weakref__",
    "__doc__",
    "__annotations__",
    "__annotations_cache__",
    "__annotate__",
    "__annotate_func__",
    "_abc_impl",
}
#: The flag of classes that a program can make and change (Py_TPFLAGS_HEAPTYPE).
_MADE_IN_PYTHON = 1 << 9
#: Packages that a child process imports from their own place, even if they are not installed.
_OUR_PACKAGES = ("sailfish", "cloudpickle")


class Identifier:
    """Computes identities of the values of a function, and collects the modules that the values need."""

    def __init__(self) -> None:
        #: Modules that are not installed, and from which functions or classes come.
        self.defining: dict[str, ModuleType] = {}
        #: Names of top-level modules that functions use as modules or import.
        self.used: set[str] = set()
        # Values and identities by their address. The values are kept, so that an address is not used again. A value that reaches a cycle
        # has its number among these values in place of the identity, because its hash depends on the place where the cycle is entered.
        self._known: dict[int, tuple[Any, bytes, bool]] = {}
        # Addresses of the values that contain the current value, from the outermost one.
        self._outer: list[int] = []
        # Addresses of the known values that reach a cycle, in the order of their numbers.
        self._cyclic: list[int] = []
        # The number of times that a value in a cycle was met again.
        self._met = 0

    def identity(self, value: Any) -> bytes:
        """Returns the identity of a value. Errors: those of pickle for a value that cannot be pickled; `RecursionError`."""
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value).encode())
        if type(value) is int:
            # The decimal digits of a large number are limited.
            return _hash("int", hex(value).encode())
        known = self._known.get(id(value))
        if known is not None:
            self._met += known[2]
            return known[1]
        if id(value) in self._outer:
            self._met += 1
            return _hash("outer", str(len(self._outer) - self._outer.index(id(value))).encode())
        self._outer.append(id(value))
        met = self._met
        try:
            found = self._of_object(value)
        finally:
            self._outer.pop()
        if self._met == met:
            self._known[id(value)] = value, found, False
        else:
            self._known[id(value)] = value, _hash("met", str(len(self._cyclic)).encode()), True
            self._cyclic.append(id(value))
        return found

    def _of_object(self, value: Any) -> bytes:
        if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
            return _hash(type(value).__name__, *map(self.identity, value))
        if type(value) is dict:
            return self._of_dict(value)
        if isinstance(value, (set, frozenset)):
            own = self._of_names(getattr(value, "__dict__", {}))
            return _hash("set", self.identity(type(value)), own, *sorted(map(self._of_member, value)))
        if isinstance(value, ModuleType):
            return self._of_module(value)
        if isinstance(value, CodeType):
            return self._of_code(value)
        if isinstance(value, (FunctionType, type)):
            if isinstance(value, type) and not value.__flags__ & _MADE_IN_PYTHON:
                # Some of these classes, such as that of None, are not found in their module.
                return _hash("name", value.__module__.encode(), value.__qualname__.encode())
            if is_found(value):
                module = sys.modules[value.__module__]
                if is_importable(module):
                    return _hash("name", value.__module__.encode(), value.__qualname__.encode())
                if value.__module__ != "__main__":
                    self.defining[value.__module__] = module
            return self._of_function(value) if isinstance(value, FunctionType) else self._of_class(value)
        return self._of_reduced(value)

    def _of_dict(self, value: Mapping[Any, Any]) -> bytes:
        return _hash("dict", *(self.identity(key) + self.identity(each) for key, each in value.items()))

    def _of_names(self, value: Mapping[Any, Any]) -> bytes:
        """Identifies variables or attributes, whose order does not count."""
        return self._of_dict(dict(sorted(value.items(), key=lambda pair: str(pair[0]))))

    def _of_member(self, value: Any) -> bytes:
        """Identifies a member of a set. Forgets its numbers again, because the order of members differs between
        processes."""
        count = len(self._cyclic)
        found = self.identity(value)
        for address in self._cyclic[count:]:
            del self._known[address]
        del self._cyclic[count:]
        return found

    def _of_module(self, module: ModuleType) -> bytes:
        name = module.__name__
        if sys.modules.get(name) is not module:
            # A module made by hand is pickled with its variables.
            return self._of_names({key: each for key, each in vars(module).items() if not key.startswith("__")})
        if not is_importable(module):
            self.used.add(name.partition(".")[0])
        return _hash("module", name.encode())

    def _of_function(self, function: FunctionType) -> bytes:
        names: set[str] = set()
        imports: set[str] = set()
        for code in _codes(function.__code__):
            names.update(_globals_of(code))
            imports.update(_imports_of(code, function.__globals__.get("__package__") or ""))
        self.used.update(imports)
        reached = {name: function.__globals__[name] for name in names if name in function.__globals__}
        parts = (
            function.__code__,
            function.__defaults__,
            function.__kwdefaults__,
            [_content(cell) for cell in function.__closure__ or ()],
        )
        return _hash("function", *map(self.identity, parts), self._of_names(reached), self._of_names(function.__dict__))

    def _of_class(self, value: type) -> bytes:
        counted = {name: each for name, each in vars(value).items() if name not in _NOT_COUNTED}
        return _hash("class", *map(self.identity, (value.__qualname__, type(value), value.__bases__, counted)))

    def _of_code(self, code: CodeType) -> bytes:
        parts = [
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags,
            code.co_names,
            code.co_varnames,
            code.co_cellvars,
            code.co_freevars,
            getattr(code, "co_exceptiontable", b""),
        ]
        return _hash("code", self.identity(parts), *(self._of_instruction(*each) for each in _instructions(code)))

    def _of_instruction(self, name: str, operand: Any) -> bytes:
        return _hash(name, self.identity(operand))

    def _of_reduced(self, value: Any) -> bytes:
        """Identifies an object by the parts from which pickle makes a copy of it."""
        if isinstance(value, CellType):
            return _hash("cell", self.identity(_content(value)))
        if isinstance(value, (GetSetDescriptorType, MemberDescriptorType)):
            return _hash("descriptor", value.__name__.encode())
        if isinstance(value, TypeVar):
            # cloudpickle gives it a random number.
            return _hash("typevar", self.identity((value.__name__, value.__bound__, value.__constraints__)))
        reduced = _reduced(value)
        if isinstance(reduced, str):
            owner = getattr(value, "__module__", None) or type(value).__module__
            module = sys.modules.get(owner)
            # A cache of functools is pickled by its name, if it belongs to a module.
            if module is not None and owner != "__main__" and not is_importable(module):
                self.used.add(owner.partition(".")[0])
            return _hash("name", owner.encode(), reduced.encode())
        make, arguments, state, items, pairs, *rest = (*reduced, None, None, None, None)[:6]
        listed = [] if items is None else list(items)
        is_of_names = type(state) is dict and state.keys() == getattr(value, "__dict__", {}).keys()
        found = self._of_names(state) if is_of_names else self.identity(state)
        parts = [self.identity(make), self.identity(arguments), found, self.identity(listed)]
        return _hash("object", *parts, self._of_dict(dict(pairs or ())), *map(self.identity, rest))


def _hash(kind: str, *parts: bytes) -> bytes:
    made = hashlib.sha256()
    for part in (kind.encode(), *parts):
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()


def _reduced(value: Any) -> Any:
    """Returns the parts of an object, as pickle and cloudpickle do."""
    import cloudpickle

    if isinstance(value, CacheWrapper):
        return reduced_cache(value)
    for table in (copyreg.dispatch_table, cloudpickle.Pickler.dispatch_table):
        reduce: Callable[[Any], Any] | None = table.get(type(value))
        if reduce is not None:
            return reduce(value)
    return value.__reduce_ex__(_PROTOCOL)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # A variable without a value is unlike each value.
        return NotImplemented


def is_importable(module: ModuleType) -> bool:
    """Returns whether a child process can import a module without help."""
    if module.__name__ == "__main__":
        return False
    if module.__name__.partition(".")[0] in _OUR_PACKAGES:
        return True
    # A namespace package has folders and no file.
    place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if place is None:
        return True
    # The libraries of the user and of a distribution have directories of these names.
    return is_installed_at(Path(place)) or not {"site-packages", "dist-packages"}.isdisjoint(Path(place).parts)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yields a code object and the code objects in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _instructions(code: CodeType) -> Iterator[tuple[str, Any]]:
    """Yields the instructions of a code object: the name and the operand, which is the value for a constant."""
    listed = [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "EXTENDED_ARG")]
    for each, following in zip(listed, [*listed[1:], None]):
        if following is not None and following.opname == "STORE_NAME" and following.argval in _OF_SOURCE:
            continue
        yield each.opname, each.argval if each.opcode in dis.hasconst else each.arg


def _globals_of(code: CodeType) -> Iterator[str]:
    return (each.argval for each in dis.get_instructions(code) if each.opname in _READS_GLOBAL)


def _imports_of(code: CodeType, package: str) -> Iterator[str]:
    """Yields the names of the top-level modules that a code object imports. `package`: the package of the code."""
    before: list[Any] = [0, 0]
    for each in dis.get_instructions(code):
        if each.opname in ("CACHE", "EXTENDED_ARG"):
            continue
        if each.opname == "IMPORT_NAME":
            # The level of a relative import is loaded before the names.
            yield (package if before[0] else each.argval).partition(".")[0]
        before = [before[1], each.argval]
