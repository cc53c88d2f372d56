"""Estimates of the memory that values take, and the number of them that is handled at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

#: About how many of many items are measured.
_LOOKED_AT = 16
#: The most items of a batch, and about how many bytes it has at most. A batch is gone through several times: so many pairs of short values
#: fit into half a megabyte, and so into the cache of a core.
_ITEMS_MAX = 2048
_BYTES_AIM = 4 << 20


def size_of(items: Sequence[Any]) -> int:
    """Returns about how many bytes of memory some items take."""
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
    """The number of items that are handled at once: few at first, later a few megabytes of them."""

    def __init__(self) -> None:
        self.items = _LOOKED_AT

    def saw(self, items: Sequence[Any]) -> None:
        """Learns from a batch how large items are."""
        if items:
            each = max(1, size_of(items) // len(items))
            self.items = max(1, min(_ITEMS_MAX, 2 * self.items, _BYTES_AIM // each))
