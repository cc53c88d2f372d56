"""How much memory values take, about, and how many of them are handled at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

#: Of many pairs, and of many items of a value, so many are looked at.
_LOOKED_AT = 16
_PAIRS_MAX = 8192
_BYTES_AIM = 4 << 20


def size_of(pairs: Sequence[tuple[Any, Any]]) -> int:
    """About how many bytes of memory some pairs take."""
    some = pairs[:: 1 + len(pairs) // _LOOKED_AT]
    if not some:
        return 0
    return sum(_size(key) + _size(value) for key, value in some) * len(pairs) // len(some)


def _size(value: Any, depth: int = 2) -> int:
    size = sys.getsizeof(value)
    if depth and isinstance(value, (list, tuple, set, frozenset, dict)) and value:
        items = list(islice(value.items() if isinstance(value, dict) else value, _LOOKED_AT))
        size += sum(_size(item, depth - 1) for item in items) * len(value) // len(items)
    elif depth and hasattr(value, "__dict__"):
        size += _size(vars(value), depth - 1)
    return size


class Batches:
    """How many pairs are handled at once: few at first, then as many as have some megabytes."""

    def __init__(self) -> None:
        self.pairs = _LOOKED_AT

    def saw(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Learns from a batch how large pairs are."""
        if pairs:
            each = max(1, size_of(pairs) // len(pairs))
            self.pairs = max(1, min(_PAIRS_MAX, 2 * self.pairs, _BYTES_AIM // each))
