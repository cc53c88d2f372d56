"""The functions and formats of a job, and their form on the way to a worker."""

from __future__ import annotations

import contextlib
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

#: The file with the functions, in the directory in which they run.
SPEC_FILE = "sailfish-job.pickle"
#: Libraries of the job, beside it.
LIBRARIES_FILE = "sailfish-libraries.zip"
#: Sources of modules of the user, beside it.
MODULES_FILE = "sailfish-modules.zip"
#: Output formats whose parts are Parquet files.
PARQUET = ("parquet", "rows")
#: Functions of Python that may be a reduce function as they are, and those of them that may fold a part of the values as well.
FOLDS: tuple[Callable[..., Any], ...] = (sum, min, max, len, list, set, sorted, any, all)
PARTIAL_FOLDS: tuple[Callable[..., Any], ...] = (sum, min, max, any, all)


@dataclass(frozen=True)
class Format:
    """An input format with its options."""

    name: str = "text"
    encoding: str = "utf-8"
    errors: str = "strict"
    #: The columns: of CSV files without a line of names, or those of a Parquet file that are read; None for all.
    columns: tuple[str, ...] | None = None
    delimiter: str = ","


@dataclass
class Source:
    """Some inputs of a job, and the steps of their records."""

    #: The numbers of the inputs; None for all.
    inputs: frozenset[int] | None
    format: Format
    steps: list[Step] = field(default_factory=list)
    #: The side of the shuffle to which the inputs belong, if it has sides.
    side: int = 0


@dataclass
class Spec:
    """The functions of a job, or of a stage, and its formats."""

    sources: list[Source]
    #: The shuffle; None where the items of the sources are the output.
    shuffle: Shuffle | None
    output_format: str
    #: The steps behind the shuffle.
    steps: list[Step] = field(default_factory=list)
    #: The output is made of (key, value) pairs.
    of_pairs: bool = False
    #: For CSV: the names of the columns, and whether a field may have line ends in it.
    columns: tuple[str, ...] | None = None
    multiline: bool = False
    #: For Parquet: the types of the columns, where they do not follow from the first rows.
    schema: Any = None
    setup: Callable[[], object] | None = None
    teardown: Callable[[], object] | None = None

    def functions(self) -> Iterator[tuple[str, Any]]:
        """Yields each function with its name in messages."""
        for source in self.sources:
            yield from ((step.name, step.function) for step in source.steps)
        if self.shuffle is not None:
            yield from self.shuffle.functions()
        yield from ((step.name, step.function) for step in self.steps)
        yield from (("setup", self.setup), ("teardown", self.teardown))


class CannotSend(TypeError):
    """Error of a function that cannot be sent to the place where it is to run."""

    __module__ = "sailfish"


def dump(spec: Spec, modules: Iterable[ModuleType]) -> bytes:
    """Returns the bytes of a spec, with the objects of `modules` that the functions use. Error: `CannotSend`, which names the function and,
    if known, the object in it."""
    import cloudpickle

    by_value = set(cloudpickle.list_registry_pickle_by_value())
    wanted = {module.__name__: module for module in modules if module.__name__ not in by_value}
    with contextlib.ExitStack() as registered:
        for module in wanted.values():
            cloudpickle.register_pickle_by_value(module)
            registered.callback(cloudpickle.unregister_pickle_by_value, module)
        return _dump(spec)


def _dump(spec: Spec) -> bytes:
    # All in one piece, so that what functions share they share where they run, too.
    try:
        data = _pickled(spec)
    except Exception as error:
        raise CannotSend(_reason(spec, error)) from error
    return pickle.dumps({"version": VERSION, "python": list(sys.version_info[:2]), "spec": data})


def _pickled(spec: Spec) -> bytes:
    """Pickles functions with the names of the files that they are from, which cloudpickle leaves out since 3.1.3: tracebacks show lines."""
    import cloudpickle

    reduced = cloudpickle.Pickler.dispatch_table[CodeType]

    def with_file(code: CodeType) -> tuple[Any, ...]:
        make, arguments = reduced(code)
        return _code, (make, arguments, code.co_filename)

    table = ChainMap({CodeType: with_file}, cloudpickle.Pickler.dispatch_table)
    with io.BytesIO() as file:
        type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": table})(file).dump(spec)
        return file.getvalue()


def _code(make: Callable[..., CodeType], arguments: tuple[Any, ...], file: str) -> CodeType:
    return make(*arguments).replace(co_filename=file)


def _reason(spec: Spec, error: Exception) -> str:
    import cloudpickle

    for name, function in spec.functions():
        try:
            cloudpickle.dumps(function)
        except Exception as own:
            return f"the {name} function cannot be sent to where it runs: {own}{_hint(function)}"
    return f"the functions of the job cannot be sent to where they run: {error}"


def _hint(function: Any) -> str:
    """Returns a hint which of the objects that a function uses cannot be pickled."""
    import cloudpickle

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
            cloudpickle.dumps(value)
        except Exception:
            return (
                f"; it uses {name!r}, a {type(value).__module__}.{type(value).__qualname__}, which cannot be pickled: "
                "make it inside the function, or in setup"
            )
    return ""


class WrongPlace(RuntimeError):
    """Error of a worker that runs with another Python, another version of this package, or without a module of the job."""


class PackedSpec:
    """A spec in a file, which can be loaded many times. Errors: `WrongPlace`."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            parts = pickle.load(file)
        python, version = parts["python"], parts["version"]
        if python != list(sys.version_info[:2]):
            raise WrongPlace(
                f"the job was made with Python {python[0]}.{python[1]}, and Python {sys.version_info[0]}.{sys.version_info[1]} runs here "
                f"({sys.executable}): functions go between the same versions only; say python=... with the one to run them with"
            )
        if version != VERSION:
            raise WrongPlace(f"the job was made with sailfish {version}, and sailfish {VERSION} is installed here: install the same")
        self._packed: bytes = parts["spec"]

    def load(self) -> Spec:
        """Returns the spec, with functions that remember nothing. Error: `WrongPlace` for a missing module."""
        # Classes of the user's script say that they are of `__main__`: there they are found again, and not this package's.
        main = sys.modules["__main__"] = ModuleType("__main__")
        try:
            spec: Spec = pickle.loads(self._packed)
        except ModuleNotFoundError as error:
            raise WrongPlace(
                f"the functions of the job need the module {error.name!r}, which is not there: install it where they run, or give it as "
                f"modules=[{(error.name or '').partition('.')[0]}]"
            ) from error
        for function in functions_of(spec):
            for name, value in getattr(function, "__globals__", {}).items():
                if isinstance(value, type) and value.__module__ == "__main__":
                    setattr(main, name, value)
        return spec


def functions_of(spec: Spec) -> list[Any]:
    """Returns the functions of a job, and those within methods and partial ones."""
    left: list[Any] = [function for _, function in spec.functions()]
    found: list[Any] = []
    while left:
        function = left.pop()
        if function is None or any(function is known for known in found):
            continue
        found.append(function)
        left += [getattr(function, name, None) for name in ("func", "__func__", "__wrapped__")]
        # Our own folds call a function of the user, `add`.
        left.append(getattr(getattr(function, "__self__", None), "add", None))
    return found
