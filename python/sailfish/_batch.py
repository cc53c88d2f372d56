"""Many pairs at once as columns of a frame. Where all keys are texts, or all values whole numbers, that takes a few calls for all of
them and not some for each."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any

from . import _keys, _values
from ._frames import Output, lengths

#: Pairs in a frame, and bytes of their keys and values, unless one pair has more.
_PAIRS_MAX = 8192
_BYTES_MAX = 1 << 20


class MixedKeys(TypeError):
    """Keys of kinds that Python does not compare."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(
            f"the keys {first!r:.200} ({type(first).__name__}) and {second!r:.200} ({type(second).__name__}) cannot be compared, so there "
            "is no order to put them in: let the map function yield keys of one kind"
        )


class TooLarge(ValueError):
    """A pair has more bytes than any may have here."""


class Encoder:
    """Puts pairs out in frames."""

    def __init__(self, output: Output, record_bytes_max: int) -> None:
        self._output = output
        self._record_bytes_max = record_bytes_max
        #: The tag of the keys so far, and one of them.
        self._seen: tuple[int, Any] | None = None

    def put(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Puts out pairs of keys and values."""
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
        self._put_any(keys, values)

    def _put_any(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        put_keys: list[bytes] = []
        put_values: list[bytes] = []
        size = 0
        for key, value in zip(keys, values):
            data, is_exact = _keys.encode(key)
            self._see(data[0], key)
            encoded = _values.encode(value) if is_exact else _values.encode_with_key(key, value)
            pair_bytes = len(data) + len(encoded)
            if pair_bytes > self._record_bytes_max:
                raise TooLarge(
                    f"the pair of the key {key!r:.200} has {pair_bytes} bytes, more than the {self._record_bytes_max} that a pair may have "
                    f"here; it needs memory={(4 * pair_bytes >> 20) + 1}M"
                )
            if size + pair_bytes > _BYTES_MAX and put_keys:
                self._write(put_keys, put_values)
                put_keys, put_values, size = [], [], 0
            put_keys.append(data)
            put_values.append(encoded)
            size += pair_bytes
        self._write(put_keys, put_values)

    def _write(self, keys: list[bytes], values: list[bytes]) -> None:
        key_lengths, value_lengths = lengths(map(len, keys)), lengths(map(len, values))
        self._output.pairs(len(keys), key_lengths, value_lengths, b"".join(keys), b"".join(values))

    def _see(self, tag: int, key: Any) -> None:
        if self._seen is None:
            self._seen = (tag, key)
        elif self._seen[0] != tag:
            raise MixedKeys(self._seen[1], key)


def _whole(values: Sequence[int]) -> bytes | None:
    """Whole numbers of 64 bits, as values of frames; None where one is larger."""
    try:
        column = array("q", values)
    except OverflowError:
        return None
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
