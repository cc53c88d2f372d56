"""Failures of a worker."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import GeneratorType
from typing import Any

#: The advice behind an error of a debugger.
NO_TERMINAL = (
    "functions run in processes without a terminal, and there is no run in this process yet: call the function in plain Python to debug it"
)
#: The advice behind a generator in place of an item.
FLAT_MAP = "a function that yields items goes to flat_map"


class Failed(Exception):
    """Error of a function of the job. `__cause__` is the exception that it raised, if it raised one."""


def short(error: BaseException) -> str:
    """Returns an error without its traceback, as text."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    # Its module takes some time to import, and has been where it is raised.
    return f"{text}: {NO_TERMINAL}" if type(error).__name__ == "BdbQuit" else text


def check_pairs(items: list[Any], who: Callable[[], str]) -> None:
    """Raises `Failed` where an item is not a pair. `who` returns the beginning of the message: the function that yielded it."""
    if set(map(type, items)) == {tuple} and set(map(len, items)) == {2}:
        return
    wrong = [item for item in items if not isinstance(item, tuple) or len(item) != 2]
    if wrong:
        hint = f": {FLAT_MAP}" if isinstance(wrong[0], GeneratorType) else ""
        raise Failed(f"{who()} {wrong[0]!r:.200}, and not a (key, value) pair{hint}")
