"""Tests that encoded values decode to the same values, singly and in columns."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sailfish import _values

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
ANY: st.SearchStrategy[Any] = st.recursive(
    PLAIN, lambda inner: st.one_of(st.lists(inner), st.tuples(inner, inner), st.dictionaries(st.text(), inner))
)
COLUMNS: st.SearchStrategy[list[Any]] = st.one_of(
    st.lists(st.text()),
    st.lists(st.integers()),
    st.lists(st.tuples(PLAIN, PLAIN)),
    st.lists(st.tuples(st.integers(0, 9))),
    st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple)),
    st.lists(ANY),
)


def same(got: Any, expected: Any) -> bool:
    """Returns whether two values are equal and have the same type, so that True differs from 1."""
    return repr(got) == repr(expected) and type(got) is type(expected)


@given(ANY)
def test_value_survives_encoding(value: Any) -> None:
    data = _values.encode(value)
    assert same(_values.decode(data), value)
    assert (len(data) == 8) == (type(value) is int and -(1 << 63) <= value < 1 << 63)
    with_key = _values.encode_with_key((1.0, "key"), value)
    assert same(_values.decode(with_key), value)
    assert same(_values.key_of(with_key), (True, (1.0, "key")))


@given(COLUMNS, st.binary(max_size=5))
def test_column_survives_encoding(values: list[Any], before: bytes) -> None:
    encoded = _values.encode_column(values)
    assert list(map(_values.decode, encoded)) == values
    if not values:
        return
    payload = before + b"".join(encoded)
    ends = list(accumulate(map(len, encoded), initial=len(before)))
    decoded, raw, counts = _values.decode_column(payload, ends, any(len(data) == 8 for data in encoded))
    assert same(decoded, values)
    assert raw is None or raw == encoded
    assert counts is None or set(counts) == {1}


def test_types_that_marshal_changes_are_preserved() -> None:
    class Text(str):
        pass

    for value in ((bytearray(b"ab"), 1), (memoryview(b"ab").tobytes(), 1), (Text("a"), 2), ((1, [2]), 3), (math.nan, math.inf)):
        decoded = _values.decode(_values.encode_column([value])[0])
        assert list(map(type, decoded)) == list(map(type, value))
