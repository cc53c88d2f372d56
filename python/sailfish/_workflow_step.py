"""Runs a function step of a workflow: `python -m sailfish._workflow_step FILE [MODULES]`. FILE holds the function with its arguments,
MODULES is a directory of modules that the function imports."""

from __future__ import annotations

import pickle
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any

from ._version import VERSION


def main(words: list[str]) -> int:
    path, *modules = words
    # Modules come from the workflow and not from the files of the step. Python 3.10 knows no PYTHONSAFEPATH.
    if sys.version_info < (3, 11):
        del sys.path[0]
    sys.path[:0] = modules
    try:
        function, arguments = _load(path)
        returned = function(*arguments)
    except Exception as error:
        shown = _of_function(error.__traceback__)
        print("".join(traceback.format_exception(type(error), error, shown)), end="", file=sys.stderr)
        return 1
    if returned is None:
        return 0
    name = getattr(function, "__name__", repr(function))
    print(
        f"{name} returned a {type(returned).__qualname__}, which is lost: write it to an output of the step, and return nothing",
        file=sys.stderr,
    )
    return 1


def _load(path: str) -> tuple[Any, tuple[Any, ...]]:
    with open(path, "rb") as file:
        parts = pickle.load(file)
    here = {"python": list(sys.version_info[:2]), "sailfish": VERSION}
    for name, version in here.items():
        if parts[name] != version:
            raise RuntimeError(f"{path} was made with {name} {parts[name]}, but {sys.executable} has {version}: save the workflow again")
    # Classes of the user's script belong to `__main__`. A new `__main__` holds them, in place of this module.
    main = sys.modules["__main__"] = ModuleType("__main__")
    function, arguments = pickle.loads(parts["call"])
    for name, value in getattr(function, "__globals__", {}).items():
        if isinstance(value, type) and value.__module__ == "__main__":
            setattr(main, name, value)
    return function, arguments


def _of_function(shown: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of this module at its beginning."""
    inner = shown
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    return shown if inner is None else inner


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
