"""The functions and formats of a job, and their pickled form for workers."""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from ._steps import Step
from ._version import VERSION

if TYPE_CHECKING:
    from ._shuffles import Shuffle

#: The file with the functions, in the directory of a task.
SPEC_FILE = "sailfish-job.pickle"
#: The archive of the libraries of the job, in the same directory.
LIBRARIES_FILE = "sailfish-libraries.zip"
#: The archive of the sources of the user's modules, in the same directory.
MODULES_FILE = "sailfish-modules.zip"
#: Output formats whose parts are Parquet files.
PARQUET = ("parquet", "rows")
#: Before the name of a stored file, in place of a path.
STORED_PREFIX = "files:"
#: The advice about an object in a function of a job that cannot be pickled.
IN_SETUP = "create it inside the function, or in setup"
#: The type of functions with a cache, made by `functools.cache` and `functools.lru_cache`.
CacheWrapper: Any = type(functools.lru_cache(len))
#: Built-in functions that may be reduce functions, and those that may also be combine functions.
FOLDS: tuple[Callable[..., Any], ...] = (sum, min, max, len, list, set, sorted, any, all)
PARTIAL_FOLDS: tuple[Callable[..., Any], ...] = (sum, min, max, any, all)


@dataclass(frozen=True)
class Format:
    """An input format with its options."""

    name: str = "text"
    encoding: str = "utf-8"
    errors: str = "strict"
    #: The columns of CSV files without a header, or the columns to read from Parquet files; None for all columns.
    columns: tuple[str, ...] | None = None
    delimiter: str = ","


@dataclass
class Source:
    """A set of inputs of a job, and the steps on their records."""

    #: The numbers of the inputs; None for all inputs.
    inputs: frozenset[int] | None
    format: Format
    steps: list[Step] = field(default_factory=list)
    #: The side of the inputs in a join or cogroup, otherwise 0.
    side: int = 0


@dataclass
class Spec:
    """The functions and formats of a stage, which may be the only stage of a job."""

    sources: list[Source]
    #: The shuffle; None if the items of the sources are the output.
    shuffle: Shuffle | None
    output_format: str
    #: The steps after the shuffle.
    steps: list[Step] = field(default_factory=list)
    #: Whether the output consists of (key, value) pairs.
    of_pairs: bool = False
    #: For CSV: the names of the columns, and whether a field may contain line ends.
    columns: tuple[str, ...] | None = None
    multiline: bool = False
    #: For Parquet: the schema; None if the types follow from the first rows.
    schema: Any = None
    setup: Callable[[], object] | None = None
    teardown: Callable[[], object] | None = None

    def functions(self) -> Iterator[tuple[str, Any]]:
        """Yields all functions of the spec, each after its name in messages."""
        for source in self.sources:
            yield from ((step.name, step.function) for step in source.steps)
        if self.shuffle is not None:
            yield from self.shuffle.functions()
        yield from ((step.name, step.function) for step in self.steps)
        yield from (("setup", self.setup), ("teardown", self.teardown))


class CannotSend(TypeError):
    """Error of a function that cannot be sent to the workers, because it cannot be pickled."""

    __module__ = "sailfish"


def dump(spec: Spec, modules: Iterable[ModuleType]) -> bytes:
    """Returns the bytes of a spec. Functions and classes of `modules` are pickled by value. Error: `CannotSend`, which names the function
    and, if known, the object in it that cannot be pickled."""
    with pickled_by_value(modules):
        return _dump(spec)


@contextlib.contextmanager
def pickled_by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Makes cloudpickle pickle the functions and classes of modules by value."""
    import cloudpickle

    by_value = set(cloudpickle.list_registry_pickle_by_value())
    wanted = {module.__name__: module for module in modules if module.__name__ not in by_value}
    with contextlib.ExitStack() as registered:
        for module in wanted.values():
            cloudpickle.register_pickle_by_value(module)
            registered.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _dump(spec: Spec) -> bytes:
    # All functions are pickled together, so that they still share objects in the worker.
    try:
        data = pickled(spec)
    except Exception as error:
        raise CannotSend(_reason(spec, error)) from error
    return pickle.dumps({"version": VERSION, "python": list(sys.version_info[:2]), "spec": data})


def pickled(value: object) -> bytes:
    """Pickles functions with the names of their source files, so that tracebacks show source lines. cloudpickle omits them since 3.1.3.
    Functions with a cache are pickled without its content; cloudpickle pickles their names."""
    import cloudpickle

    reduced = cloudpickle.Pickler.dispatch_table[CodeType]

    def with_file(code: CodeType) -> tuple[Any, ...]:
        make, arguments = reduced(code)
        return _code, (make, arguments, code.co_filename)

    table = ChainMap({CodeType: with_file, CacheWrapper: reduced_cache}, cloudpickle.Pickler.dispatch_table)
    with io.BytesIO() as file:
        type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": table})(file).dump(value)
        return file.getvalue()


def _code(make: Callable[..., CodeType], arguments: tuple[Any, ...], file: str) -> CodeType:
    return make(*arguments).replace(co_filename=file)


def is_found(value: Any) -> bool:
    """Returns whether a function or a class is found by its name in its module."""
    found: Any = sys.modules.get(value.__module__ or "")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def reduced_cache(value: Any) -> str | tuple[Any, ...]:
    """Returns how to pickle a function with a cache: its name if it belongs to a module, otherwise its function and parameters."""
    if value.__module__ != "__main__" and is_found(value):
        return str(value.__qualname__)
    return _cached, (value.__wrapped__, value.cache_parameters())


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reason(spec: Spec, error: Exception) -> str:
    for name, function in spec.functions():
        try:
            pickled(function)
        except Exception as own:
            return f"the {name} function cannot be sent to the workers: {own}{hint(function, IN_SETUP)}"
    return f"the functions of the job cannot be sent to the workers: {error}"


def hint(function: Any, advice: str) -> str:
    """Returns a hint that names the object in a function that cannot be pickled; an empty text if it is unknown."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    cells = getattr(function, "__closure__", None) or ()
    used: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells):
        try:
            used[name] = cell.cell_contents
        except ValueError:
            continue
    used.update({name: function.__globals__[name] for name in code.co_names if name in function.__globals__})
    for name, value in used.items():
        try:
            pickled(value)
        except Exception:
            return f"; it uses {name!r}, a {type(value).__module__}.{type(value).__qualname__}, which cannot be pickled: {advice}"
    return ""


class WrongPlace(RuntimeError):
    """Error of a worker with the wrong version of Python or of this package, or without a module of the job."""


class PackedSpec:
    """A pickled spec from a file, which can be loaded several times. Error: `WrongPlace`."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            parts = pickle.load(file)
        python, version = parts["python"], parts["version"]
        if python != list(sys.version_info[:2]):
            raise WrongPlace(
                f"the job was made with Python {python[0]}.{python[1]}, but the worker runs Python {sys.version_info[0]}."
                f"{sys.version_info[1]} ({sys.executable}): set python=... to an interpreter of the same minor version"
            )
        if version != VERSION:
            raise WrongPlace(f"the job was made with sailfish {version}, but the worker has sailfish {VERSION}: install the same version")
        self._packed: bytes = parts["spec"]

    def load(self) -> Spec:
        """Returns a new copy of the spec, without state of earlier tasks. Error: `WrongPlace` for a missing module."""
        # Classes of the user's script belong to `__main__`. A new `__main__` holds them, in place of the `__main__` of this package.
        main = sys.modules["__main__"] = ModuleType("__main__")
        try:
            spec: Spec = pickle.loads(self._packed)
        except ModuleNotFoundError as error:
            raise WrongPlace(
                f"the functions of the job need the module {error.name!r}, which the worker cannot import: install it where the functions "
                f"run, or pass modules=[{(error.name or '').partition('.')[0]}]"
            ) from error
        for function in functions_of(spec):
            for name, value in getattr(function, "__globals__", {}).items():
                if isinstance(value, type) and value.__module__ == "__main__":
                    setattr(main, name, value)
        return spec


def functions_of(spec: Spec) -> list[Any]:
    """Returns the functions of a job, including the functions within methods, partial functions and wrappers."""
    left: list[Any] = [function for _, function in spec.functions()]
    found: list[Any] = []
    while left:
        function = left.pop()
        if function is None or any(function is known for known in found):
            continue
        found.append(function)
        left += [getattr(function, name, None) for name in ("func", "__func__", "__wrapped__")]
        # The folds of this package call a function of the user, `add`.
        left.append(getattr(getattr(function, "__self__", None), "add", None))
    return found
