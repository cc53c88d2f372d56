"""Estimates of the memory of values, and the sizes of batches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

#: At most about this many items of a sequence are measured.
_LOOKED_AT = 16
#: Limits of a batch: its items, and its approximate bytes. A batch is scanned several times; this many pairs of short values take half a
#: megabyte, which fits into the cache of a core.
_ITEMS_MAX = 2048
_BYTES_AIM = 4 << 20


def size_of(items: Sequence[Any]) -> int:
    """Returns the approximate memory of the items, in bytes."""
    some = items[:: 1 + len(items) // _LOOKED_AT]
    if not some:
        return 0
    return sum(map(_size, some)) * len(items) // len(some)


def _size(value: Any, depth: int = 3) -> int:
    size = sys.getsizeof(value)
    if depth and isinstance(value, (list, tuple, set, frozenset, dict)) and value:
        items = list(islice(value.items() if isinstance(value, dict) else value, _LOOKED_AT))
        size += sum(_size(item, depth - 1) for item in items) * len(value) // len(items)
    elif depth and hasattr(value, "__dict__"):
        size += _size(vars(value), depth - 1)
    return size


class Batches:
    """The size of the next batch: a few items at first, later a few megabytes."""

    def __init__(self) -> None:
        self.items = _LOOKED_AT

    def saw(self, items: Sequence[Any]) -> None:
        """Adapts the size of the next batch to the sizes of the items of this batch."""
        if items:
            each = max(1, size_of(items) // len(items))
            self.items = max(1, min(_ITEMS_MAX, 2 * self.items, _BYTES_AIM // each))
