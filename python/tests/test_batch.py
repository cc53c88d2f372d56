"""Tests that pairs survive the frames of a map task and the sort of the engine, packed or not."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sailfish import _batch, _frames, _groups, _keys, _values
from sailfish._batch import Encoder, MixedKeys, TooLarge

Pair = tuple[Any, Any]
Frame = tuple[int, bytes]

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.integers(), st.floats(allow_nan=False), st.text("é\0\udc80"), st.binary()
)
VALUES = st.one_of(PLAIN, st.tuples(PLAIN, PLAIN), st.lists(st.integers(0, 9)))
#: Lists of a few comparable keys, so that many values have the same key.
KEYS: st.SearchStrategy[list[Any]] = st.sampled_from(
    [
        ["", "a", "a\0", "é"],
        [0, 1, -1, 1 << 80],
        [0, 0.0, True, 1, 1.0, -0.0, 2.5],
        [b"", b"a"],
        [None],
        [(), ("a",), ("a", 1), ("b", 0)],
        [(0,), (0.0,), (False,)],
    ]
)
#: Batches of pairs with one type of keys, and one or many types of values.
BATCHES = KEYS.flatmap(
    lambda keys: st.lists(
        st.sampled_from([VALUES, PLAIN, st.integers(-9, 9), st.text("ab"), st.tuples(st.text("ab"), st.integers(0, 9))]).flatmap(
            lambda values: st.lists(st.tuples(st.sampled_from(keys), values), max_size=30)
        )
    )
)


class Kept(_frames.Output):
    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def write(self, kind: int, *pieces: bytes | memoryview) -> None:
        self.frames.append((kind, b"".join(pieces)))


class Given(_frames.Input):
    def __init__(self, frames: list[Frame]) -> None:
        self._left = iter(frames)

    def next(self) -> Frame:
        return next(self._left)


def put(batches: list[list[Pair]], record_bytes_max: int = 1 << 24) -> list[tuple[bytes, bytes]]:
    """Returns the encoded pairs that a map task writes."""
    kept = Kept()
    encoder = Encoder(kept, record_bytes_max)
    for batch in batches:
        if batch:
            encoder.put_together(*_batch.columns(batch))
    return [pair for kind, payload in kept.frames for pair in _pairs(kind, payload)]


def _pairs(kind: int, payload: bytes) -> Iterator[tuple[bytes, bytes]]:
    assert kind == _frames.PAIRS
    count = int.from_bytes(payload[:4], "little")
    columns = array("I", payload[4 : 4 + 8 * count])
    at = 4 + 8 * count
    ends = [at := at + length for length in columns]
    cells = [payload[end - length : end] for end, length in zip(ends, columns)]
    assert at == len(payload)
    return zip(cells[:count], cells[count:])


def grouped(pairs: list[tuple[bytes, bytes]], at_once: int) -> list[Frame]:
    """Returns the frames that the engine sends to a reduce task, with `at_once` pairs each."""
    frames, before = [], None
    ordered = sorted(pairs, key=itemgetter(0))
    for start in range(0, len(ordered), at_once):
        groups = [(key, [data for _, data in some]) for key, some in groupby(ordered[start : start + at_once], key=itemgetter(0))]
        values = [data for _, some in groups for data in some]
        lengths = [*(len(key) for key, _ in groups), *(len(some) for _, some in groups), *map(len, values)]
        head = struct.pack("<III", len(groups), len(values), groups[0][0] == before)
        frames.append((_frames.GROUPS, head + array("I", lengths).tobytes() + b"".join([key for key, _ in groups] + values)))
        before = groups[-1][0]
    return [*frames, (_frames.END, b"")]


@given(BATCHES, st.integers(1, 8), st.sampled_from([1 << 13, 40]))
def test_values_of_each_key_keep_their_order(batches: list[list[Pair]], at_once: int, bytes_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_batch, "_TOGETHER_BYTES_MAX", bytes_max)
        pairs = put(batches)
    expected: dict[bytes, list[Any]] = {}
    first: dict[bytes, Any] = {}
    for key, value in (pair for batch in batches for pair in batch):
        expected.setdefault(_keys.encode(key)[0], []).append(value)
        first.setdefault(_keys.encode(key)[0], key)
    got = [(key, list(values)) for key, values in _groups.groups(Given(grouped(pairs, at_once)))]
    assert repr(got) == repr([(first[data], expected[data]) for data in sorted(expected)])


def test_values_of_few_keys_are_packed() -> None:
    few = [(f"key {number % 4}", (number, "text")) for number in range(1000)]
    assert len(put([few])) == 4
    many = [(f"key {number}", (number, "text")) for number in range(1000)]
    assert len(put([many])) == 1000
    assert len(put([many[:300], few])) == 300 + 4
    # After a long batch with many keys one batch is not examined; after the next such batch, three.
    assert len(put([many, few, few])) == 1000 + 1000 + 4
    assert len(put([many, few, many, few, few, few, few])) == 2 * 1000 + 4 * 1000 + 4


@pytest.mark.parametrize(("value", "least"), [(7, 32), ((7, "text"), 3), ("text", 4), (0.5, 4), (None, 4)], ids=repr)
def test_few_values_of_a_key_are_not_packed(value: Any, least: int) -> None:
    assert len(put([[("key", value)] * least])) == 1
    assert len(put([[("key", value)] * (least - 1)])) == least - 1


@pytest.mark.parametrize("value", [[1], {"a": 1}, ([1],), bytearray(b"a"), range(3)], ids=repr)
def test_mutable_values_are_not_packed(value: Any) -> None:
    """A function that changes a packed value in place would also change values of other keys."""
    assert len(put([[("key", value)] * 100])) == 100


def test_packed_pairs_have_limited_size() -> None:
    pairs = put([[("key", "x" * 500)] * 1000])
    assert sum(len(_values.decode_column(data, [0, len(data)], False).values) for _, data in pairs) == 1000
    assert len(pairs) < 100
    assert max(len(data) for _, data in pairs) < 1 << 14
    # Large values are not packed, because it would save nothing.
    assert len(put([[("key", "x" * 2000)] * 100])) == 100


def test_invalid_pairs_raise_clear_errors() -> None:
    with pytest.raises(MixedKeys, match=r"'a' \(str\) and 1 \(int\)"):
        put([[("a", 1)] * 10, [(1, 1)] * 10])
    with pytest.raises(TooLarge, match=r"the pair with the key 'a' has \d+ bytes; this job allows 1000 bytes per pair: set memory=64M"):
        put([[("a", "x" * 2000)] * 3], record_bytes_max=1000)


class Ends:
    """An object whose unpickling raises `StopIteration`, which would end a `map`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return next, (iter(()),)


class EndsEarly:
    def __reduce__(self) -> tuple[Any, ...]:
        return next(iter(()))


def test_stop_iteration_of_a_value_is_an_error() -> None:
    frames = grouped(put([[("key", [1]), ("key", Ends()), ("key", [2])]]), 8)
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(_groups.raw_groups(Given(frames)))
    with pytest.raises(StopIteration):
        put([[("key", (EndsEarly(),)), ("key", ([2],))]])
