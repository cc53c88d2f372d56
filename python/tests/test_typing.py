"""Tests of the types that mypy infers: mypy checks the calls of `assert_type` in this file. The functions also run as tests."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sailfish as sf

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value: object, kind: object) -> None:
        """Does nothing at run time."""


SALES = [("Ulm", 3), ("Bonn", 5), ("Ulm", 4)]


def groups_of_pairs() -> None:
    sales = sf.from_iterable(SALES)
    assert_type(sales, sf.Dataset[tuple[str, int]])
    groups = sales.group_by()
    assert_type(groups, sf.Groups[str, int])
    assert_type(groups.sorted(), sf.Groups[str, int])
    assert_type(groups.map_values(len), sf.Dataset[tuple[str, int]])
    assert_type(groups.map_values(list), sf.Dataset[tuple[str, list[int]]])
    assert_type(groups.map_values(set), sf.Dataset[tuple[str, set[int]]])
    assert_type(groups.map_values(sorted), sf.Dataset[tuple[str, list[int]]])
    assert_type(groups.map_values(sum), sf.Dataset[tuple[str, int]])
    assert_type(groups.map_values(max), sf.Dataset[tuple[str, int]])
    assert_type(groups.map_values(min), sf.Dataset[tuple[str, int]])
    assert_type(groups.map_values(any), sf.Dataset[tuple[str, bool]])
    assert_type(groups.map_values(all), sf.Dataset[tuple[str, bool]])
    assert_type(groups.windows(2), sf.Dataset[tuple[str, list[int]]])
    assert groups.map_values(len).sort_by().collect() == [("Bonn", 1), ("Ulm", 2)]


def groups_by_a_key() -> None:
    words = sf.from_iterable(["or", "be", "not"])
    groups = words.group_by(len)
    assert_type(groups, sf.Groups[int, str])
    assert_type(words.group_by(key=lambda word: word[0]), sf.Groups[str, str])
    assert_type(groups.map_values(len), sf.Dataset[tuple[int, int]])
    assert groups.map_values(len).sort_by().collect() == [(2, 2), (3, 1)]


def functions_of_the_user() -> None:
    def mean(sizes: Iterator[int]) -> float:
        return statistics.fmean(sizes)

    def largest(city: str, sizes: Iterator[int]) -> str:
        return f"{city} {max(sizes)}"

    def each(city: str, sizes: Iterator[int]) -> Iterator[tuple[int, str]]:
        for size in sizes:
            yield size, city

    groups = sf.from_iterable(SALES).group_by()
    assert_type(groups.map_values(mean), sf.Dataset[tuple[str, float]])
    assert_type(groups.map_values(lambda sizes: [size / 2 for size in sizes]), sf.Dataset[tuple[str, list[float]]])
    assert_type(groups.map(largest), sf.Dataset[str])
    assert_type(groups.flat_map(each), sf.Dataset[tuple[int, str]])
    # A type error on purpose. The dataflow is not run.
    groups.map_values(lambda sizes: sizes.real)  # type: ignore[attr-defined]
    assert groups.map(largest).sort_by().collect() == ["Bonn 5", "Ulm 4"]


def groups_of_any_items() -> None:
    rows: sf.Dataset[Any] = sf.from_iterable([("a", 1)])
    assert_type(rows.group_by(), sf.Groups[Any, Any])
    texts = sf.from_iterable(["a"])
    texts.group_by()  # type: ignore[call-arg]
    assert rows.group_by().map_values(len).collect() == [("a", 1)]


def dicts_of_pairs() -> None:
    sales = sf.from_iterable(SALES)
    assert_type(dict(sales), dict[str, int])
    assert_type(sales.keys(), sf.Dataset[str])
    assert_type(sales.reduce_by_key(sum), sf.Dataset[tuple[str, int]])
    assert dict(sales.reduce_by_key(sum)) == {"Ulm": 7, "Bonn": 5}


def steps_of_workflows() -> None:
    def shout(text: Path, count: int, shouted: Path) -> None:
        shouted.write_text(text.read_text().upper() * count)

    wf = sf.Workflow("types")
    said = wf.command("said", ["echo", "a"], stdout="said", cores=1, timeout="90s", env={"A": "b"})
    assert_type(said, sf.WorkflowStep)
    assert_type(said.output(), sf.WorkflowFile)
    assert_type(wf.function(shout, said, 2, outputs=["shouted"], memory=1 << 20, after=[said, "said"]), sf.WorkflowStep)

    @wf.step(said.output("said"), outputs=["copy"], keep=True)
    def copy(text: Path, copied: Path) -> None:
        copied.write_text(text.read_text())

    assert_type(copy, sf.WorkflowStep)
    assert_type(said.output().path, Path)
    with pytest.raises(TypeError, match="there is no option 'core'"):
        wf.command("wrong", "true", core=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="cores='1' must be a whole number"):
        wf.command("wrong", "true", cores="1")  # type: ignore[arg-type]


CHECKED: list[Callable[[], None]] = [
    groups_of_pairs,
    groups_by_a_key,
    functions_of_the_user,
    groups_of_any_items,
    dicts_of_pairs,
    steps_of_workflows,
]


@pytest.mark.parametrize("checked", CHECKED)
def test_checked_functions_run(checked: Callable[[], None]) -> None:
    checked()
