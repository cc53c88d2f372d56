"""Encoding of many pairs at once as columns of a frame. Columns of one type (texts, whole numbers) are encoded by a few calls; other
columns take a few calls per pair."""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from . import _keys, _values
from ._frames import Output, lengths
from ._sizes import size_of

#: Values of a key are packed into one pair if a batch has at least this many values per key, on average. The number depends on the type.
_TOGETHER_MIN = {int: 32, tuple: 3}
_TOGETHER_MIN_OF_OTHERS = 4
#: Limits of packing: the most bytes of memory per value, on average, and the approximate bytes of a packed pair, which is smaller than a
#: block of a run.
_VALUE_BYTES_MAX = 1 << 10
_TOGETHER_BYTES_MAX = 1 << 13
#: After a batch with too few values per key, up to this many batches are not examined. Batches with fewer pairs than the second limit do
#: not count.
_PASSED_OVER_MAX = 15
_TELLING_PAIRS_MIN = 512
#: Types whose equal keys are identical, so that any of them can stand for the others.
_SAME = frozenset({str, int, bytes})

#: The most pairs in a frame, and the most bytes of their keys and values, unless one pair has more.
_PAIRS_MAX = 8192
_BYTES_MAX = 1 << 20


def columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """Returns the keys and the values of pairs."""
    return list(map(itemgetter(0), pairs)), list(map(itemgetter(1), pairs))


class MixedKeys(TypeError):
    """Error of keys whose types Python does not compare."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(
            f"the keys {first!r:.200} ({type(first).__name__}) and {second!r:.200} ({type(second).__name__}) cannot be compared, so they "
            "cannot be sorted: use keys of one type"
        )


class TooLarge(ValueError):
    """Error of a pair that is larger than this job allows."""


class Encoder:
    """An encoder that writes pairs as frames."""

    def __init__(self, output: Output, record_bytes_max: int) -> None:
        self._output = output
        self._record_bytes_max = record_bytes_max
        #: The tag of all keys so far, and the first key.
        self._seen: tuple[int, Any] | None = None
        #: The number of batches that are not examined for packing, and how many of them are left.
        self._passed_over = self._to_pass_over = 0

    def put_together(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Writes pairs of keys and values. If there are few keys, packs the values of each key into one pair."""
        together = self.together(keys, values)
        if together is None:
            self.put(keys, values)
            return
        keys, data = together
        encoded, _ = _keys.encode_column(keys, inside=False)
        self._see_all(keys, encoded)
        self.put_encoded(keys, encoded, data)

    def together(self, keys: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], list[bytes]] | None:
        """Returns each key with the bytes of all its values, in order; None if there are too many keys. Packed pairs save the engine
        comparisons and the interpreter calls. These keys decode to the same objects, so they need no copy in the value."""
        if self._to_pass_over:
            self._to_pass_over -= 1
            return None
        lists = _by_key(keys, values)
        if lists is None:
            # A short batch is the rest of a block and does not predict the next block.
            if len(keys) >= _TELLING_PAIRS_MIN:
                self._to_pass_over = self._passed_over = min(_PASSED_OVER_MAX, 2 * self._passed_over + 1)
            return None
        self._passed_over = 0
        return columns([(key, piece) for key, some in lists.items() for piece in _pieces(some)])

    def put(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Writes pairs of keys and values."""
        for start in range(0, len(keys), _PAIRS_MAX):
            self._put_some(keys[start : start + _PAIRS_MAX], values[start : start + _PAIRS_MAX])

    def _put_some(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        if set(map(type, keys)) == {str} and set(map(type, values)) == {int}:
            # The tag of a text is a space.
            text = " " + " ".join(keys)
            whole = _whole(values) if text.isascii() else None
            if whole is not None and len(text) + len(whole) <= min(_BYTES_MAX, self._record_bytes_max):
                self._see(_keys.STR, keys[0])
                count = len(keys)
                key_lengths = lengths([len(key) + 1 for key in keys])
                self._output.pairs(count, key_lengths, lengths([8]) * count, text.encode("ascii"), whole)
                return
        encoded, inexact = _keys.encode_column(keys, inside=False)
        self._see_all(keys, encoded)
        self.put_encoded(keys, encoded, encoded_values(keys, values, inexact))

    def put_encoded(self, keys: Sequence[Any], encoded: list[bytes], values: list[bytes], heads: list[int] | None = None) -> None:
        """Writes encoded pairs. `keys`: the keys, for error messages. `encoded`: their bytes. `values`: the bytes of the values. `heads`:
        the length of the prefix of each key that decides its partition, in bytes; None for the whole key."""
        for start in range(0, len(encoded), _PAIRS_MAX):
            some = slice(start, start + _PAIRS_MAX)
            self._put_columns(keys[some], encoded[some], values[some], None if heads is None else heads[some])

    def _put_columns(self, keys: Sequence[Any], encoded: list[bytes], values: list[bytes], heads: list[int] | None) -> None:
        key_lengths, value_lengths = list(map(len, encoded)), list(map(len, values))
        size, count = sum(key_lengths) + sum(value_lengths), len(encoded)
        if count > 1 and size > min(_BYTES_MAX, self._record_bytes_max):
            for some in (slice(0, count // 2), slice(count // 2, count)):
                self._put_columns(keys[some], encoded[some], values[some], None if heads is None else heads[some])
            return
        if size > self._record_bytes_max:
            raise TooLarge(
                f"the pair with the key {keys[0]!r:.200} has {size} bytes; this job allows {self._record_bytes_max} bytes per pair: set "
                f"memory={max(64, (4 * size >> 20) + 1)}M"
            )
        columns = [lengths(key_lengths), lengths(value_lengths)]
        if heads is None:
            self._output.pairs(count, *columns, b"".join(encoded), b"".join(values))
        else:
            self._output.tailed_pairs(count, *columns, lengths(heads), b"".join(encoded), b"".join(values))

    def _see_all(self, keys: Sequence[Any], encoded: list[bytes]) -> None:
        tags = bytes(map(itemgetter(0), encoded))
        for tag in dict.fromkeys(tags):
            self._see(tag, keys[tags.index(tag)])

    def _see(self, tag: int, key: Any) -> None:
        if self._seen is None:
            self._seen = (tag, key)
        elif self._seen[0] != tag:
            raise MixedKeys(self._seen[1], key)


def _by_key(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, list[Any]] | None:
    """Returns the values of each key; None if they must not be packed: too few or too large values, equal keys that are not identical, or
    mutable values."""
    kinds = set(map(type, keys))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(keys)))
    elif len(kinds) > 1:
        return None
    if not kinds <= _SAME or len(keys) < _least_of_each(values) * len(set(keys)) or not _values.are_plain(values):
        return None
    if size_of(values) > _VALUE_BYTES_MAX * len(values):
        return None
    lists = defaultdict(list)
    for key, value in zip(keys, values):
        lists[key].append(value)
    return lists


def _least_of_each(values: Sequence[Any]) -> int:
    return max(_TOGETHER_MIN.get(kind, _TOGETHER_MIN_OF_OTHERS) for kind in set(map(type, values)))


def _pieces(values: list[Any]) -> list[bytes]:
    """Returns the encoded values of a key in pieces of about `_TOGETHER_BYTES_MAX` bytes."""
    data = _values.encode_several(values)
    count = min(len(values), -(-len(data) // _TOGETHER_BYTES_MAX))
    if count == 1:
        return [data]
    step = -(-len(values) // count)
    return [_values.encode_several(values[start : start + step]) for start in range(0, len(values), step)]


def encoded_values(keys: Sequence[Any], values: Sequence[Any], inexact: list[int]) -> list[bytes]:
    """Returns the bytes of values. `inexact`: the indexes of keys that cannot be restored from their bytes; the values at these indexes
    carry a copy of the key."""
    encoded = _values.encode_column(values)
    for place in inexact:
        encoded[place] = _values.encode_with_key(keys[place], values[place])
    return encoded


def _whole(values: Sequence[int]) -> bytes | None:
    """Returns whole numbers as 64-bit values of frames; None if one is larger."""
    try:
        column = array("q", values)
    except OverflowError:
        return None
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
