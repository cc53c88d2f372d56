"""Tests that encoded keys keep the order of Python, and decode to the same keys."""

from __future__ import annotations

import math
from collections import namedtuple
from datetime import date, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sailfish import _keys, _values

NUMBERS = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 2000), 1 << 2000),
    st.floats(allow_nan=False),
    st.floats(-3, 3),
    st.sampled_from([0.0, -0.0, 0.5, -0.5, 5e-324, -5e-324, 2.0**53, -(2.0**53) + 1, 255, 256, -256, 65535, 65536, -1024, -1025]),
)
TEXTS = st.text(st.characters(codec=None)) | st.text("\x00\x01a\udc80\U0010ffff")
BYTES = st.binary() | st.binary().map(lambda data: data.replace(b"a", b"\x00"))
AWARE = st.datetimes(timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))))
KINDS = [NUMBERS, TEXTS, BYTES, st.dates(), st.datetimes(), AWARE]
SAME_KIND = st.sampled_from(KINDS).flatmap(lambda kind: st.lists(kind, min_size=2, max_size=6))


def tuples(kinds: list[st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Any]]:
    """Returns tuples that Python can compare: each position has one type."""
    row = st.tuples(*kinds)
    shorter = st.tuples(row, st.integers(0, len(kinds))).map(lambda pair: pair[0][: pair[1]])
    return st.lists(shorter | st.tuples(shorter), min_size=2, max_size=6).filter(lambda rows: _comparable(rows))


def _comparable(rows: list[Any]) -> bool:
    try:
        sorted(rows)
    except TypeError:
        return False
    return True


ROWS = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4).flatmap(tuples)


@given(SAME_KIND | ROWS)
def test_order_and_equality_match_python(keys: list[Any]) -> None:
    encoded = [_keys.encode(key)[0] for key in keys]
    for left, left_bytes in zip(keys, encoded):
        for right, right_bytes in zip(keys, encoded):
            assert (left < right) == (left_bytes < right_bytes), (left, right)
            assert (left == right) == (left_bytes == right_bytes), (left, right)


def same(left: Any, right: Any) -> bool:
    """Returns whether two keys are equal, and have the same types inside."""
    if type(left) is not type(right) or repr(left) != repr(right):
        return False
    return not isinstance(left, tuple) or all(map(same, left, right))


@given(st.one_of(*KINDS) | ROWS.map(lambda rows: rows[0]))
def test_keys_survive_encoding(key: Any) -> None:
    data, is_exact = _keys.encode(key)
    assert _keys.decode(data) == key
    assert not is_exact or same(_keys.decode(data), key)
    value = _values.encode_with_key(key, "value")
    there, back = _values.key_of(value)
    assert there and same(back, key) and _values.decode(value) == "value"


TUPLES_OF_TEXTS = st.lists(st.lists(TEXTS | st.text("ab", max_size=2), max_size=3).map(tuple), min_size=1)


@given(SAME_KIND | ROWS | TUPLES_OF_TEXTS, st.booleans())
def test_columns_encode_like_single_keys(keys: list[Any], inside: bool) -> None:
    one_by_one = list(map(_keys.encode_inside if inside else _keys.encode, keys))
    inexact = [place for place, (_, is_exact) in enumerate(one_by_one) if not is_exact]
    assert _keys.encode_column(keys, inside) == ([data for data, _ in one_by_one], inexact)


def test_inexact_keys_are_reported() -> None:
    Point = namedtuple("Point", "x y")

    class Level(IntEnum):
        LOW = 1

    berlin = datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    for key in [True, 1.0, -0.0, Level.LOW, (1, 2.0), Point(1, 2), berlin, datetime(2020, 1, 1, fold=1)]:
        assert not _keys.encode(key)[1], key
    for key in [1, 0.5, math.inf, math.nan, "a", b"a", None, (1, None, ("x",)), date(1, 1, 1), datetime(2020, 1, 1)]:
        assert _keys.encode(key)[1], key


def test_nan_is_one_key_after_all_numbers() -> None:
    nan = _keys.encode(math.nan)[0]
    assert nan == _keys.encode(float("-nan"))[0]
    assert all(_keys.encode(number)[0] < nan for number in [math.inf, 10**1000, 0, -math.inf])


@pytest.mark.parametrize("key", [[1], {1}, {}, object(), 1j, (1, [2])])
def test_invalid_keys_are_named(key: Any) -> None:
    with pytest.raises(_keys.KeyTypeError, match=r"is a builtins.*, which cannot be a key"):
        _keys.encode(key)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec=None)), st.binary()),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_values_survive_encoding(value: Any) -> None:
    data = _values.encode(value)
    assert (len(data) == 8) == (type(value) is int and -(1 << 63) <= value < 1 << 63)
    assert repr(_values.decode(data)) == repr(value)
    assert _values.key_of(data) == (False, None)
