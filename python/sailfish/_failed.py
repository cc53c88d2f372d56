"""Why a worker cannot go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any


class Failed(Exception):
    """A function of the job failed. `__cause__` is what it raised, where it raised anything."""


def short(error: BaseException) -> str:
    """An error without its traceback."""
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def check_pairs(items: list[Any], who: Callable[[], str]) -> None:
    """Refuses what is no pair. `who`: who yielded it."""
    if set(map(type, items)) == {tuple} and set(map(len, items)) == {2}:
        return
    wrong = [item for item in items if not isinstance(item, tuple) or len(item) != 2]
    if wrong:
        raise Failed(f"{who()} {wrong[0]!r:.200}, and not a (key, value) pair")
