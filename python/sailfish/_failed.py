"""Errors of a worker."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import GeneratorType
from typing import Any

#: The advice after an error of a debugger.
NO_TERMINAL = "functions run in processes without a terminal: call the function in plain Python to debug it"
#: The advice after an error about a generator that was returned as an item.
FLAT_MAP = "use flat_map for a function that yields items"


class Failed(Exception):
    """Error of a function of the job. `__cause__` is the exception of the function, if there is one."""


def short(error: BaseException) -> str:
    """Returns the text of an error, without its traceback."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    # The class is compared by name, because importing `bdb` is slow.
    return f"{text}: {NO_TERMINAL}" if type(error).__name__ == "BdbQuit" else text


def check_pairs(items: list[Any], who: Callable[[], str]) -> None:
    """Raises `Failed` if an item is not a pair. `who` returns the beginning of the message, which names the function that yielded it."""
    if set(map(type, items)) == {tuple} and set(map(len, items)) == {2}:
        return
    wrong = [item for item in items if not isinstance(item, tuple) or len(item) != 2]
    if wrong:
        hint = f": {FLAT_MAP}" if isinstance(wrong[0], GeneratorType) else ""
        raise Failed(f"{who()} {wrong[0]!r:.200}, which is not a (key, value) pair{hint}")
