"""Tests of combining in map tasks: results equal the model, and invalid pairs raise clear errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sailfish import _combine, _keys
from sailfish._batch import Encoder
from sailfish._combine import Adding, Counting, Running, Stuck, Window, WrongPair
from sailfish._failed import Failed

Pair = tuple[Any, Any]

KEYS = st.one_of(
    *(st.integers(-3, 3), st.booleans(), st.text("ab", max_size=2), st.sampled_from([0.0, -0.0, 1.0, 2.5, math.nan]), st.none()),
    *(st.tuples(st.integers(0, 2), st.text("ab", max_size=1)), st.tuples(st.tuples(st.integers(0, 1)))),
    st.sampled_from([datetime(2026, 10, 25, 2, 30), datetime(2026, 10, 25, 2, 30, fold=1), datetime(2026, 1, 1, tzinfo=timezone.utc)]),
)
WHOLE = st.one_of(st.integers(-5, 5), st.integers(1 << 62, 1 << 66), st.booleans())


class Pieces(Encoder):
    """An encoder that keeps the pairs it is given."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []

    def put(self, keys: Any, values: Any) -> None:
        self.pairs += zip(keys, values)


def running(fold: Callable[..., Any], adding: Adding | None = None) -> tuple[Running, Pieces]:
    pieces = Pieces()
    return Running(pieces, fold, Window(pieces, fold), adding, "fold"), pieces


def by_key(pairs: list[Pair]) -> dict[bytes, list[Any]]:
    groups: dict[bytes, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(_keys.encode(key)[0], []).append(value)
    return groups


def folded(fold: Callable[..., Any], pairs: list[Pair]) -> dict[bytes, Any]:
    return {key: fold(values) for key, values in by_key(pairs).items()}


@pytest.fixture(params=[1 << 18, 3], ids=["", "full"])
def keys_max(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits the number of aggregates: to the default, and to three, so that they are written often."""
    monkeypatch.setattr(_combine, "_KEYS_MAX", request.param)
    monkeypatch.setattr(_combine, "_LOOK_EVERY", 2)
    monkeypatch.setattr(_combine, "_OTHERS_MAX", 2)


@pytest.mark.usefixtures("keys_max")
class TestModel:
    @given(st.lists(st.lists(st.tuples(KEYS, WHOLE))), st.sampled_from([sum, min, max]))
    def test_folds_of_whole_numbers(self, blocks: list[list[Pair]], fold: Callable[..., Any]) -> None:
        folding, pieces = running(fold)
        for block in blocks:
            folding.take(iter(block))
        folding.close()
        all_pairs = [pair for block in blocks for pair in block]
        assert folded(fold, pieces.pairs) == folded(fold, all_pairs)

    @given(st.lists(st.tuples(KEYS, st.one_of(WHOLE, st.sampled_from([0.5, 0.25, 8.0])))))
    def test_sums_of_mixed_numbers(self, pairs: list[Pair]) -> None:
        folding, pieces = running(sum)
        folding.take(iter(pairs))
        folding.close()
        made, expected = folded(sum, pieces.pairs), folded(sum, pairs)
        assert made.keys() == expected.keys()
        assert all(math.isclose(made[key], expected[key], rel_tol=1e-9) for key in made)
        assert {key: type(value) for key, value in made.items()} == {key: type(value) for key, value in expected.items()}

    @given(st.lists(st.tuples(KEYS, st.integers(0, 9))))
    def test_aggregating_functions(self, pairs: list[Pair]) -> None:
        adding = Adding(lambda so_far, value: (*so_far, value), True, ())
        folding, pieces = running(adding.of_many, adding)
        folding.take(iter(pairs))
        folding.close()
        assert folded(lambda parts: sorted(value for part in parts for value in part), pieces.pairs) == folded(sorted, pairs)

    @given(st.lists(st.lists(KEYS)))
    def test_counts(self, blocks: list[list[Any]]) -> None:
        pieces = Pieces()
        counting = Counting(pieces)
        for block in blocks:
            counting.put(block)
        counting.close()
        assert folded(sum, pieces.pairs) == folded(sum, [(key, 1) for block in blocks for key in block])


class Both(NamedTuple):
    name: str
    number: int


def test_named_tuples_are_pairs() -> None:
    folding, pieces = running(sum)
    folding.take(iter([("a", 1), Both("a", 2), Both("b", 3), ("b", 4), Both("b", 5)]))
    folding.close()
    assert dict(pieces.pairs) == {"a": 3, "b": 12}


@pytest.mark.parametrize("fold", [sum, max])
@pytest.mark.parametrize("wrong", [["a", 1], "a1", {"a", 1}, ("a",), ("a", 1, 1), None, 5, {"a": 1, "b": 2}, [["a"], 1]])
def test_wrong_pairs_are_refused_at_every_position(fold: Callable[..., Any], wrong: Any) -> None:
    for before in ([], [("a", 1)], [("a", 1), (1, 1), ("b", 1)]):
        folding, _ = running(fold)
        with pytest.raises(WrongPair) as refused:
            folding.take(iter([*before, wrong]))
        assert refused.value.args == (wrong,)


class NoHash(str):
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("key", [[1], {}, object(), 1j, [(1, [2])], (1, {2: 3}), NoHash("a")])
def test_wrong_keys_are_refused_at_every_position(key: Any) -> None:
    for before in ([], [("a", 1)]):
        folding, _ = running(sum)

        def all_of_it(folding: Running = folding, before: list[Pair] = before) -> None:
            folding.take(iter([*before, (key, 1)]))
            folding.close()

        with pytest.raises(Stuck) as refused:
            all_of_it()
        assert isinstance(refused.value.error, TypeError)
        assert refused.value.error.__context__ is None
        assert type(key).__name__ in str(refused.value.error) or "key" in str(refused.value.error)


@pytest.mark.parametrize(
    ("fold", "adding", "pairs"),
    [
        (sum, None, [("a", "x")]),
        (sum, None, [("a", 1), ("a", "x")]),
        (max, None, [("a", 1), ("a", "x")]),
        (max, Adding(lambda before, value: before // value), [("a", 1), ("b", 1), ("a", 0)]),
        (max, Adding(lambda before, value: before // value, True, 1), [("a", 0)]),
    ],
)
def test_failed_fold_names_the_key(fold: Callable[..., Any], adding: Adding | None, pairs: list[Pair]) -> None:
    folding, _ = running(fold, adding)
    with pytest.raises(Failed, match="the fold function failed with the key 'a': "):
        folding.take(iter(pairs))


def test_errors_of_the_source_reach_the_caller() -> None:
    def pairs() -> Iterator[Pair]:
        yield "a", 1
        raise ValueError("theirs")

    folding, _ = running(sum)
    with pytest.raises(ValueError, match="theirs"):
        folding.take(pairs())


@given(st.lists(st.tuples(KEYS, st.integers(0, 9))))
def test_fold_sees_values_in_order(pairs: list[Pair]) -> None:
    adding = Adding(lambda before, value: before * 10 % 97 + value)
    folding, pieces = running(adding.of_many, adding)
    folding.take(iter(pairs))
    folding.close()
    assert folded(adding.of_many, pieces.pairs) == folded(adding.of_many, pairs)


def test_growing_aggregates_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_combine, "_BYTES_MAX", 1 << 20)
    adding = Adding(lambda before, value: before + value)
    folding, pieces = running(adding.of_many, adding)
    folding.take((number % 7, bytes(1000)) for number in range(7000))
    assert max(len(value) for _, value in pieces.pairs) < 300_000
    folding.close()
    assert {key: len(value) for key, value in folded(b"".join, pieces.pairs).items()} == dict.fromkeys(
        (_keys.encode(key)[0] for key in range(7)), 1_000_000
    )


def test_aggregates_are_written_when_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_combine, "_BYTES_MAX", 1 << 20)
    folding, pieces = running(sum)
    folding.take((f"{number:01000}", 1) for number in range(10_000))
    assert len(pieces.pairs) > 8_000
    folding.close()
    assert len(pieces.pairs) == 10_000
