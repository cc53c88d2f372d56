"""Tests of dataflows, compared with plain Python: random data, sizes and skews, and data that is spilled to disk.

The name of a case contains its seed, so it can be repeated: `pytest 'python/tests/test_dataflows.py::test_like_python[join-left-3]'`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
import zoneinfo
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timezone
from functools import reduce
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import sailfish as sf
from sailfish import _hot_keys, _keys
from sailfish._plan import Plan
from sailfish._result import Result
from sailfish._run import Settings
from sailfish._shuffles import Sides

#: The number of random cases per operation.
SEEDS = int(os.environ.get("SAILFISH_PYTHON_SEEDS", "4"))

Pair = tuple[Any, Any]


class Data:
    """Pairs of a random type, number and skew."""

    def __init__(self, seed: int) -> None:
        chosen = random.Random(seed)
        self.size = chosen.choice([0, 1, 2, 50, 3000, 20_000])
        self.keys = chosen.choice([1, 7, 400, 10_000])
        kinds: list[Callable[[int], Any]] = [str, int, lambda n: (n % 5, f"k{n}\0"), lambda n: n / 4, _day, _bytes]
        self.key_of = chosen.choice(kinds)
        self.skew = chosen.choice([0.0, 1.2, 3.0])
        self._chosen = chosen

    def pairs(self, size: int | None = None) -> list[Pair]:
        chosen = self._chosen
        size = self.size if size is None else size
        numbers = [int(self.keys * chosen.random() ** (1 + self.skew)) for _ in range(size)]
        return [(self.key_of(number), chosen.randrange(-1000, 1000)) for number in numbers]


def _day(number: int) -> date:
    return date.fromordinal(number + 1)


def _bytes(number: int) -> bytes:
    return number.to_bytes(3, "big").strip(b"\0")


def grouped(pairs: Iterable[Pair]) -> dict[Any, list[Any]]:
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def joined(left: list[Pair], right: list[Pair], how: str) -> Iterator[Pair]:
    lefts, rights = grouped(left), grouped(right)
    for key in lefts.keys() | rights.keys():
        if key in lefts and key in rights:
            yield from ((key, (one, other)) for one in lefts[key] for other in rights[key])
        elif key in lefts and how in ("left", "full"):
            yield from ((key, (one, None)) for one in lefts[key])
        elif key in rights and how in ("right", "full"):
            yield from ((key, (None, other)) for other in rights[key])


def windows(values: list[Any], size: int, step: int) -> list[list[Any]]:
    return [values[start : start + size] for start in range(0, len(values) - size + 1, step)]


def spread(pair: Pair) -> list[Any]:
    return [pair[0]] * (pair[1] % 3)


def least(key: Any, values: Iterator[int]) -> Pair:
    return key, min(values)


def each_with_key(key: Any, values: Iterator[int]) -> Iterator[Pair]:
    return ((key, value * 2) for value in values)


def with_member(members: set[Any], member: Any) -> set[Any]:
    """Adds a member to a set in place. Returns the set."""
    members.add(member)
    return members


def with_last(so_far: tuple[list[Any], dict[Any, Any]], item: Any) -> tuple[list[Any], dict[Any, Any]]:
    """Appends an item to the list in place. Returns the tuple with the list."""
    so_far[0].append(item)
    return so_far


Flow = Callable[["sf.Dataset[Any]", "sf.Dataset[Any]"], "sf.Dataset[Any]"]
Model = Callable[[list[Pair], list[Pair]], Iterable[Any]]

#: Operations on two datasets of pairs, each with its model on two lists.
OPERATIONS: dict[str, tuple[Flow, Model]] = {
    "map": (lambda a, b: a.map(lambda p: p[1] + 1), lambda a, b: [v + 1 for _, v in a]),
    "filter": (lambda a, b: a.filter(lambda p: p[1] % 3), lambda a, b: [p for p in a if p[1] % 3]),
    "flat_map": (lambda a, b: a.flat_map(spread), lambda a, b: [k for p in a for k in spread(p)]),
    "key_by": (lambda a, b: a.key_by(lambda p: p[1]), lambda a, b: [(p[1], p) for p in a]),
    "map_values": (lambda a, b: a.map_values(str), lambda a, b: [(k, str(v)) for k, v in a]),
    "keys": (lambda a, b: a.keys(), lambda a, b: [k for k, _ in a]),
    "values": (lambda a, b: a.values(), lambda a, b: [v for _, v in a]),
    "union": (lambda a, b: a.union(b.map_values(abs), a), lambda a, b: a + [(k, abs(v)) for k, v in b] + a),
    "sum": (lambda a, b: a.reduce_by_key(sum), lambda a, b: [(k, sum(vs)) for k, vs in grouped(a).items()]),
    "max": (lambda a, b: a.reduce_by_key(max), lambda a, b: [(k, max(vs)) for k, vs in grouped(a).items()]),
    "reduce_by_key": (
        lambda a, b: a.reduce_by_key(lambda x, y: x ^ y),
        lambda a, b: [(k, reduce(lambda x, y: x ^ y, vs)) for k, vs in grouped(a).items()],
    ),
    "aggregate_by_key": (
        lambda a, b: a.aggregate_by_key((0, 0), lambda t, v: (t[0] + v, t[1] + 1), lambda t, u: (t[0] + u[0], t[1] + u[1])),
        lambda a, b: [(k, (sum(vs), len(vs))) for k, vs in grouped(a).items()],
    ),
    # `add` changes the initial value in place.
    "aggregate_by_key_set": (
        lambda a, b: a.aggregate_by_key(set(), with_member, lambda s, t: s | t).map_values(sorted),
        lambda a, b: [(k, sorted(set(vs))) for k, vs in grouped(a).items()],
    ),
    "aggregate_by_key_list": (
        lambda a, b: a.aggregate_by_key(([], {}), with_last, lambda s, t: (s[0] + t[0], {})).map_values(lambda s: sorted(s[0])),
        lambda a, b: [(k, sorted(vs)) for k, vs in grouped(a).items()],
    ),
    "count_by_key": (lambda a, b: a.count_by_key(), lambda a, b: Counter(k for k, _ in a).items()),
    "count_by_value": (
        lambda a, b: a.map(lambda p: (p[1] % 9, p[0])).count_by_value(),
        lambda a, b: Counter((v % 9, k) for k, v in a).items(),
    ),
    "group_by": (lambda a, b: a.group_by().map_values(sorted), lambda a, b: [(k, sorted(vs)) for k, vs in grouped(a).items()]),
    "group_by_key": (
        lambda a, b: a.group_by(lambda p: p[1] % 10).map(lambda k, ps: (k, sorted(v for _, v in ps))),
        lambda a, b: [(k, sorted(v for _, v in ps)) for k, ps in grouped((p[1] % 10, p) for p in a).items()],
    ),
    "group_map": (lambda a, b: a.group_by().map(least), lambda a, b: [(k, min(vs)) for k, vs in grouped(a).items()]),
    "group_flat_map": (lambda a, b: a.group_by().flat_map(each_with_key), lambda a, b: [(k, v * 2) for k, v in a]),
    "distinct": (lambda a, b: a.keys().distinct(), lambda a, b: {k for k, _ in a}),
    "distinct_pairs": (lambda a, b: a.union(b).distinct(), lambda a, b: {*a, *b}),
    "sorted_groups": (
        lambda a, b: a.group_by().sorted(reverse=True).map_values(list),
        lambda a, b: [(k, sorted(vs, reverse=True)) for k, vs in grouped(a).items()],
    ),
    "windows": (
        lambda a, b: a.group_by().sorted().windows(3, step=2),
        lambda a, b: [(k, window) for k, vs in grouped(a).items() for window in windows(sorted(vs), 3, 2)],
    ),
    "windows_by": (
        lambda a, b: a.group_by(lambda p: 0).sorted(by=lambda p: (p[1], p[0])).windows(2),
        lambda a, b: [(0, window) for window in windows(sorted(a, key=lambda p: (p[1], p[0])), 2, 1)],
    ),
    "cogroup": (
        lambda a, b: a.cogroup(b, a.map_values(abs)).map_values(lambda lists: [sorted(each) for each in lists]),
        lambda a, b: (
            [
                (k, [sorted(grouped(a).get(k, [])), sorted(grouped(b).get(k, [])), sorted(map(abs, grouped(a).get(k, [])))])
                for k in {key for key, _ in a + b}
            ]
            if len(a) < 100
            else cogrouped(a, b)
        ),
    ),
    "after_shuffles": (
        lambda a, b: a.reduce_by_key(sum).filter(lambda p: p[1] > 0).union(b).map(lambda p: p[1] % 7).distinct().map(str),
        lambda a, b: {str(v % 7) for _, v in [*((k, sum(vs)) for k, vs in grouped(a).items() if sum(vs) > 0), *b]},
    ),
    "shared": (lambda a, b: shared(a.reduce_by_key(sum)), lambda a, b: shared_model(a)),
}
for how in ("inner", "left", "right", "full"):
    # A few values per key, because a join multiplies them.
    OPERATIONS[f"join-{how}"] = (
        lambda a, b, how=how: few(a).join(few(b), how=how),  # type: ignore[misc]
        lambda a, b, how=how: joined(few_model(a), few_model(b), how),  # type: ignore[misc]
    )


def few(a: sf.Dataset[Any]) -> sf.Dataset[Any]:
    return a.group_by().sorted().flat_map(lambda key, values: [(key, value) for value in list(values)[:4]])


def few_model(pairs: list[Pair]) -> list[Pair]:
    return [(key, value) for key, values in grouped(pairs).items() for value in sorted(values)[:4]]


def cogrouped(a: list[Pair], b: list[Pair]) -> list[Pair]:
    one, other = grouped(a), grouped(b)
    keys = one.keys() | other.keys()
    return [(k, [sorted(one.get(k, [])), sorted(other.get(k, [])), sorted(map(abs, one.get(k, [])))]) for k in keys]


def shared(sums: sf.Dataset[Pair]) -> sf.Dataset[Any]:
    """Joins a stage with itself. Two other stages read the stage."""
    return sums.join(sums.map_values(lambda v: v + 1)).map(lambda p: p[1]).union(sums.values().distinct().map(lambda v: (v, v)))


def shared_model(a: list[Pair]) -> list[Any]:
    sums = [sum(values) for values in grouped(a).values()]
    return [(v, v + 1) for v in sums] + [(v, v) for v in set(sums)]


def same(got: Iterable[Any], expected: Iterable[Any]) -> None:
    assert sorted(map(repr, got)) == sorted(map(repr, expected))


@pytest.mark.parametrize(("operation", "seed"), [(name, seed) for name in OPERATIONS for seed in range(SEEDS)])
def test_like_python(operation: str, seed: int) -> None:
    flow, model = OPERATIONS[operation]
    data = Data(seed * 1000 + list(OPERATIONS).index(operation))
    a, b = data.pairs(), data.pairs(data.size // 3)
    same(flow(sf.from_iterable(a), sf.from_iterable(b)).collect(), model(a, b))


@pytest.mark.parametrize("seed", range(2 * SEEDS))
def test_sorted_items_match_python(seed: int) -> None:
    data = Data(seed)
    pairs = data.pairs()
    keys = [key for key, _ in pairs]
    dataset = sf.from_iterable(pairs)
    assert dataset.keys().sort_by().collect() == sorted(keys)
    assert dataset.sort_by(lambda p: (p[0], p[1]), reverse=True).collect() == sorted(pairs, reverse=True)
    assert dataset.top(10).collect() == sorted(pairs, reverse=True)[:10]
    assert [p[1] for p in dataset.top(5, key=lambda p: p[1]).collect()] == sorted((v for _, v in pairs), reverse=True)[:5]
    assert dataset.count() == len(pairs)


#: Operations on data that exceeds the memory of the job.
SPILLED = {
    "group_by": (lambda a: a.group_by().map(lambda k, vs: (k, sum(map(len, vs))))),
    "sorted": (lambda a: a.group_by().sorted(by=len, reverse=True).map(lambda k, vs: (k, sum(map(len, vs))))),
    "join": (lambda a: a.join(sf.from_iterable([(n, n) for n in range(1000)])).map(lambda p: (p[0], len(p[1][0])))),
    "cogroup": (lambda a: a.cogroup(a.map_values(len)).map(lambda p: (p[0], sum(map(len, p[1][0]))))),
    "sort_by": (lambda a: a.sort_by(lambda p: (p[0], p[1])).map(lambda p: (p[0], len(p[1])))),
}


@pytest.mark.parametrize("operation", SPILLED)
def test_spilled_data_gives_the_same(operation: str) -> None:
    chosen = random.Random(operation)
    pairs = [(int(1000 * chosen.random() ** 3), chosen.randbytes(chosen.randrange(1200))) for _ in range(130_000)]
    result = SPILLED[operation](sf.from_iterable(pairs))._kept("pickle", {"memory": "64M"})
    shuffle = result.report["shuffle"]
    assert shuffle["runs"] > shuffle["runs_in_memory"], "nothing was spilled"
    if operation in ("join", "sort_by"):
        same(result, ((key, len(value)) for key, value in pairs))
    else:
        same(result, ((key, sum(map(len, values))) for key, values in grouped(pairs).items()))
    if operation == "sort_by":
        assert [key for key, _ in result] == sorted(key for key, _ in pairs)


def test_join_with_a_large_side() -> None:
    left = [(n % 2, bytes(2000)) for n in range(60_000)]
    right = [(1, "one"), (1, "two"), (2, "three")]
    joined = sf.from_iterable(left).join(sf.from_iterable(right), how="full").map(lambda p: (p[0], p[1][0] is None, p[1][1]))
    assert Counter(joined.collect(memory="128M")) == {
        (0, False, None): 30_000,
        (1, False, "one"): 30_000,
        (1, False, "two"): 30_000,
        (2, True, "three"): 1,
    }


def test_equal_instants_are_counted_separately() -> None:
    """Two instants with the same clock time are equal in Python, but are different keys. Equal numbers are one key."""
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    early, late = (datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1))
    counted = sf.from_iterable([early, late, late, "x", "x"][:3] * 5).count_by_value().collect()
    assert sorted(count for _, count in counted) == [5, 10]
    assert sf.from_iterable([1, True, 1.0, 2]).count_by_value().collect() == [(1, 3), (2, 1)]
    with pytest.raises(sf.JobFailed, match="which cannot be a key"):
        sf.from_iterable(["a", ["b"]]).count_by_value().collect()


def test_script_classes_pass_between_stages(tmp_path: Path) -> None:
    """Instances of classes of `__main__` pass from stage to stage, and back to the client."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sailfish as sf\n"
        "class P:\n"
        "    def __init__(self, x): self.x = x\n"
        "print(sf.from_iterable([P(1)]).map(lambda p: p.x).collect())\n"
        "made = sf.from_iterable([1, 2]).map(lambda x: (1, P(x)))\n"
        "lists = made.group_by().map_values(list).join(sf.from_iterable([(1, 0)]))\n"
        "(key, (ps, zero)), = lists.collect()\n"
        "print(sorted(p.x for p in ps), all(isinstance(p, P) for p in ps))\n"
    )
    path = os.pathsep.join([str(Path(sf.__file__).parent.parent), *sys.path])
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert (ran.stdout, ran.returncode) == ("[1]\n[1, 2] True\n", 0), ran.stderr


def test_missing_program_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAILFISH_PROGRAM", "/not/there")
    with pytest.raises(sf.EngineMissing, match="SAILFISH_PROGRAM names '/not/there'"):
        sf.from_iterable([1]).collect()


def test_sample_is_reproducible() -> None:
    dataset = sf.from_iterable(range(50_000))
    some = dataset.sample(0.1, seed=3).collect()
    assert 4500 < len(some) < 5500
    assert len(set(some)) == len(some)
    assert sorted(some) == sorted(dataset.sample(0.1, seed=3).collect())
    assert sorted(some) != sorted(dataset.sample(0.1, seed=4).collect())
    assert dataset.sample(0).collect() == []
    assert len(dataset.sample(1.0).collect()) == 50_000


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    return [{"name": f'n,"{number}', "size": number, "part": number % 7} for number in range(5000)]


def test_text_survives_write_and_read(tmp_path: Path) -> None:
    result = sf.from_iterable(["a", "ä b", ""]).write_text(tmp_path / "out")
    same(result, ["a", "ä b", ""])
    same(sf.read_text(tmp_path / "out").collect(), ["a", "ä b", ""])
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_jsonl_survives_write_and_read(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    sf.from_iterable(rows).write_jsonl(tmp_path / "out")
    same(sf.read_jsonl(tmp_path / "out").collect(), rows)


def test_csv_survives_write_and_read(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    result = sf.from_iterable(rows).sort_by(lambda row: row["size"]).write_csv(tmp_path / "out", memory="64M")
    texts = [{name: str(value) for name, value in row.items()} for row in rows]
    assert list(result) == texts
    same(sf.read_csv(tmp_path / "out").collect(), texts)
    pairs = sf.from_iterable([(1, "a"), (2, "b;")])
    with pytest.raises(sf.JobFailed, match=r"has no column names: set columns=\[...\]"):
        pairs.write_csv(tmp_path / "pairs")
    written = [{"n": "1", "t": "a"}, {"n": "2", "t": "b;"}]
    same(pairs.write_csv(tmp_path / "pairs", columns=["n", "t"]), written)
    same(sf.read_csv(tmp_path / "pairs").collect(), written)
    odd = [{"a": "x\ry", "b": '5" pipe'}, {"a": "z,", "b": "2\r"}, {"a": "", "b": "x" * 200_000}]
    same(sf.from_iterable(odd).write_csv(tmp_path / "odd"), odd)
    same(sf.read_csv(tmp_path / "odd").collect(), odd)
    (tmp_path / "inches.csv").write_text('a,b\n5" pipe,2\n')
    same(sf.read_csv(tmp_path / "inches.csv").collect(), [{"a": '5" pipe', "b": "2"}])
    (tmp_path / "bare.csv").write_text("1;a\n2;b\n")
    bare = sf.read_csv(tmp_path / "bare.csv", columns=["n", "t"], delimiter=";")
    same(bare.collect(), [{"n": "1", "t": "a"}, {"n": "2", "t": "b"}])


def test_csv_of_many_splits(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    lines = [f"{number},{'x' * (number % 50)}" for number in range(200_000)]
    path.write_text("number,text\n" + "\n".join(lines) + "\n")
    read = sf.read_csv(path).map(lambda row: int(row["number"]))
    assert sum(read.collect()) == sum(range(200_000))


def test_parquet_survives_write_and_read(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    sf.from_iterable(rows).write_parquet(tmp_path / "out")
    same(sf.read_parquet(tmp_path / "out").collect(), rows)
    with pytest.raises(sf.JobFailed, match="has no column 'sizes'; it has name, size, part"):
        sf.read_parquet(tmp_path / "out", columns=["sizes"]).collect()
    same(sf.read_parquet(tmp_path / "out", columns=["size"]).collect(), [{"size": row["size"]} for row in rows])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows * 100), tmp_path / "large.parquet", row_group_size=10_000)
    parts = sf.read_parquet(tmp_path / "large.parquet").map(lambda row: (row["part"], row["size"]))
    # Parquet files and lines in one join.
    both = parts.reduce_by_key(sum).join(sf.read_text(_lines(tmp_path, "0 zero", "3 three")).map(lambda line: (int(line[0]), line[2:])))
    sums = {part: 100 * sum(row["size"] for row in rows if row["part"] == part) for part in (0, 3)}
    same(both.collect(), [(0, (sums[0], "zero")), (3, (sums[3], "three"))])
    raw = parts.join(sf.from_iterable([(0, "zero")])).count()
    assert raw == 100 * sum(row["part"] == 0 for row in rows)
    schema = pyarrow.schema([("key", pyarrow.int64()), ("value", pyarrow.string())])
    sf.from_iterable([(1, None), (2, "x")]).write_parquet(tmp_path / "typed", schema)
    assert pyarrow.parquet.read_table(tmp_path / "typed").schema.equals(schema)


def _lines(directory: Path, *lines: str) -> Path:
    path = directory / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_to_arrow_returns_a_table(rows: list[dict[str, Any]]) -> None:
    pytest.importorskip("pyarrow")
    table = sf.from_iterable(rows[:10]).sort_by(lambda row: row["size"]).to_arrow()
    assert table.to_pylist() == rows[:10]
    pairs = sf.from_iterable([("a", 1), ("b", 2)]).reduce_by_key(sum).to_arrow()
    assert pairs.sort_by("key").to_pydict() == {"key": ["a", "b"], "value": [1, 2]}


def test_explain_shows_the_plan() -> None:
    words = sf.read_text("books").flat_map(str.split).map(lambda word: (word, 1))
    shown = words.reduce_by_key(sum).filter(lambda pair: pair[1] > 1).join(words, how="left").explain()
    assert "stage 1-reduce_by_key" in shown
    assert "flat_map(str.split)" in shown
    assert "reduce_by_key(sum), combined in the map tasks" in shown
    # The filter runs in the reduce tasks of the sums.
    assert shown.index("reduce: filter") < shown.index("stage 2-join\n")
    assert "by key -> join (left)" in shown
    assert "map (side 2): read_text(books)" in shown


def test_html_for_notebooks(tmp_path: Path) -> None:
    def counted(line: str) -> str:
        sf.counter("<seen>")
        return line

    flow = sf.from_iterable(["a b", "b"]).map(counted).flat_map(str.split).count_by_value().sort_by()
    assert "stage 1-count_by_value" in flow._repr_html_()
    page = flow.write_text(tmp_path / "out")._repr_html_()
    ElementTree.fromstring(page.replace("&#9632;", ""))
    assert page.count("<rect") >= 6
    assert "agrees" in page
    assert "<td>user,&lt;seen&gt;</td><td>2</td>" in page


def test_dataset_is_lazy(tmp_path: Path) -> None:
    dataset = sf.read_text(tmp_path / "not there").map(len)
    # A path outside the working directory is shown as an absolute path.
    assert f"read_text({tmp_path / 'not there'}) -> map(len)" in dataset.explain()
    with pytest.raises(sf.JobFailed, match="not there does not exist"):
        dataset.collect()


def first_even(numbers: list[int]) -> int:
    return next(number for number in numbers if number % 2 == 0)


def test_stop_iteration_of_a_function_fails() -> None:
    """A `StopIteration` of a function is an error, although `map` and `filter` treat it as the end of the data."""
    for numbers in ([[1], [2], [4]], [[2], [1], [4]], [[2], [1]]):
        dataset = sf.from_iterable(numbers)
        flows: list[sf.Dataset[Any]] = [
            dataset.map(first_even),
            dataset.filter(first_even),
            dataset.flat_map(lambda some: [first_even(some)]),
            dataset.map(lambda some: (1, some)).map_values(first_even),
            dataset.sort_by(first_even),
            dataset.group_by(len).sorted(by=first_even).map_values(list),
            dataset.group_by(len).flat_map(lambda key, values: values).map(first_even),
        ]
        for flow in flows:
            with pytest.raises(sf.JobFailed, match="StopIteration"):
                flow.collect()


def test_hot_keys_are_compared_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hot keys that Python cannot compare: the same instant of the repeated hour in two time zones, which are unequal in Python; and None,
    which has no order."""
    monkeypatch.setattr(_hot_keys, "_SIDE_BYTES_MIN", 10)
    for side in ("left", "right"):
        (tmp_path / side).write_text("".join(f"{number}\n" for number in range(300)))
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    late, instant = datetime(2023, 10, 29, 2, 30, tzinfo=berlin, fold=1), datetime(2023, 10, 29, 1, 30, tzinfo=timezone.utc)
    for one, other in ((late, instant), (None, None)):
        left = sf.read_text(tmp_path / "left").map(lambda line, key=one: (key, line))  # type: ignore[misc]
        right = sf.read_text(tmp_path / "right").map(lambda line, key=other: (key, line))  # type: ignore[misc]
        assert left.join(right).count() == 300 * 300


def test_sample_differs_between_files(tmp_path: Path) -> None:
    for day in range(100):
        (tmp_path / f"day-{day}").mkdir()
        (tmp_path / f"day-{day}" / "data.txt").write_text("".join(f"{line}\n" for line in range(10)))
    chosen = sf.read_text(tmp_path).sample(0.3).collect()
    assert 200 < len(chosen) < 400
    assert set(chosen) == set(map(str, range(10)))
    both = (
        sf.read_text(tmp_path)
        .map(lambda line: ("a", line))
        .union(sf.read_text(tmp_path).map(lambda line: ("b", line)))
        .sample(0.3)
        .collect()
    )
    assert sorted(line for side, line in both if side == "a") != sorted(line for side, line in both if side == "b")


def test_large_items_of_the_client() -> None:
    assert sf.from_iterable([bytes([n % 256]) * 100_000 for n in range(300)]).map(len).collect(memory="64M") == [100_000] * 300


def test_files_may_be_an_iterator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of an iterator reach all stages, also after the search for hot keys."""
    monkeypatch.setattr(_hot_keys, "_SIDE_BYTES_MIN", 1)
    side = tmp_path / "side"
    side.write_text("7")
    lines = sf.read_text(_lines(tmp_path, "a", "b")).map(lambda line: (line, int(Path("side").read_text())))
    flow = (
        lines.join(lines)
        .map(lambda pair: (pair[0], int(Path("side").read_text())))
        .sort_by(lambda pair: (pair[0], Path("side").read_text()))
    )
    assert flow.collect(files=iter([side])) == [("a", 7), ("b", 7)]


def test_thousands_of_unions() -> None:
    many: sf.Dataset[int] = sf.from_iterable([0])
    for _ in range(2000):
        many = many.union(sf.from_iterable([1]))
    assert many.explain().count("from_iterable") == 2001


def test_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sf.from_iterable([1, 2]).count() == 2
        assert sum(sf.from_iterable([1, 2])) == 3
        with pytest.raises(sf.JobFailed):
            sf.from_iterable(["x"]).map(int).collect()
        result = sf.MapReduce(_lines(tmp_path, "a"), lambda line: [(line, 1)], sum).run()
        assert list(result) == [("a", 1)]
        shutil.rmtree(result.output)
        with pytest.raises(FileNotFoundError, match="is missing or incomplete"):
            list(result)
        del result
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


class TestWrong:
    """Tests of mistakes and their error messages."""

    def test_wrong_arguments_are_refused(self) -> None:
        dataset = sf.from_iterable([(1, 2)])
        with pytest.raises(TypeError, match="map takes a function, and 5 is not callable"):
            dataset.map(5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="how='outer' is not known"):
            dataset.join(dataset, how="outer")
        with pytest.raises(TypeError, match="union takes datasets"):
            dataset.union([2])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="group_by takes a function"):
            dataset.group_by("x")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="has duplicate names"):
            sf.read_csv("x", columns=["a", "a"])
        with pytest.raises(TypeError, match="join takes datasets"):
            dataset.join([(1, 2)])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"reduce_by_key\(len\).*group_by"):
            dataset.reduce_by_key(len)
        with pytest.raises(ValueError, match="fraction=2"):
            dataset.sample(2)
        with pytest.raises(ValueError, match="both must be at least 1"):
            dataset.group_by().windows(0)
        with pytest.raises(TypeError, match="columns='name'"):
            sf.read_csv("x", columns="name")
        with pytest.raises(TypeError, match="there is no option 'memroy': choose engine, memory"):
            dataset.collect(memroy="1G")
        with pytest.raises(ValueError, match="set scratch="):
            dataset.collect(engine="http://127.0.0.1:1")

    def failing(self, dataset: sf.Dataset[Any]) -> str:
        with pytest.raises(sf.JobFailed) as failed:
            dataset.collect()
        return str(failed.value)

    def test_failed_function_is_named(self, tmp_path: Path) -> None:
        lines = sf.read_text(_lines(tmp_path, "1", "x", "2"))

        def number(line: str) -> int:
            return int(line)

        said = self.failing(lines.map(str.strip).map(number).filter(bool))
        assert "the map(number) function failed" in said
        assert "lines.txt at byte 2: ValueError: invalid literal" in said
        said = self.failing(lines.map(lambda line: (line, 0)).group_by().map(lambda key, values: 1 / next(values)))
        assert "ZeroDivisionError" in said
        assert "group_by().map(lambda of line" in said
        assert "with the key '1'" in said

    def test_items_must_be_pairs(self) -> None:
        texts: sf.Dataset[Any] = sf.from_iterable(["ab"])
        assert "the input has 'ab', which is not a (key, value) pair" in self.failing(texts.reduce_by_key(sum))
        for flow in (texts.keys(), texts.values(), texts.count_by_key(), texts.map_values(len)):
            assert "'ab' is not a (key, value) pair" in self.failing(flow)
        assert "lambda of line" in self.failing(texts.map(lambda text: text).join(texts))

    def test_failed_item_is_shown(self) -> None:
        said = self.failing(sf.from_iterable(["1", "x"]).map(int))
        assert "the map(int) function failed, the item 'x': ValueError" in said
        assert "_worker.py" not in said
        said = self.failing(sf.from_iterable(["1"]).flat_map(lambda text: None))  # type: ignore[arg-type,return-value]
        assert "given the item '1', returned None: it must yield items" in said
        said = self.failing(sf.from_iterable([(1, "a"), (1, 2)]).reduce_by_key(lambda a, b: a + b))
        assert "the reduce_by_key(lambda of line" in said
        said = self.failing(sf.from_iterable([0]).sort_by(lambda number: 1 / number))
        assert "the sort_by function failed, the item 0 or after it: ZeroDivisionError" in said
        mixed: list[Any] = [("a\nb", 1), ("c\td", 2)]
        for pair in mixed:
            with pytest.raises(sf.JobFailed, match="so tsv cannot hold it: use output_format='jsonl'"):
                sf.MapReduce(__file__, lambda line, pair=pair: [pair], output="never").run()  # type: ignore[misc]
        with pytest.raises(sf.JobFailed, match="nan cannot be written as JSON"):
            sf.from_iterable([math.nan]).write_jsonl("never")

    def test_invalid_keys_are_refused(self) -> None:
        flows: list[Callable[[sf.Dataset[Any]], sf.Dataset[Any]]] = [
            lambda a: a.group_by().map_values(list),
            lambda a: a.join(a),
            lambda a: a.map(lambda p: p[0]).sort_by(),
        ]
        mixed: list[Pair] = [(1, 2), ("a", 2)]
        for flow in flows:
            said = self.failing(flow(sf.from_iterable([([1], 2)])))
            assert "which cannot be a key" in said
            said = self.failing(flow(sf.from_iterable(mixed)))
            assert "cannot be compared" in said

    def test_values_must_be_comparable(self) -> None:
        mixed: list[Pair] = [(1, 2), (1, "a")]
        said = self.failing(sf.from_iterable(mixed).group_by().sorted().map_values(list))
        assert "2 (int) and 'a' (str) cannot be compared" in said
        assert "(1, 2) (tuple) and (1, 'a') (tuple) cannot be compared" in self.failing(sf.from_iterable(mixed).sort_by())
        grouped = sf.from_iterable(mixed).group_by(lambda pair: 0).sorted(reverse=True)
        assert "cannot be compared" in self.failing(grouped.map_values(list))

    def test_invalid_rows_are_refused(self, tmp_path: Path) -> None:
        path = _lines(tmp_path, "a,b", "1,2", "1,2,3")
        assert "lines.txt at byte 8: " in self.failing(sf.read_csv(path))
        assert "has 3 fields, but there are 2 columns" in self.failing(sf.read_csv(path))
        assert "a quoted field goes on" in self.failing(sf.read_csv(_lines(tmp_path, "a,b", '1,"2', '3"')))
        with pytest.raises(sf.JobFailed, match="has other columns"):
            sf.from_iterable([{"a": 1}, {"b": 1}]).write_csv(tmp_path / "out")
        with pytest.raises(sf.JobFailed, match="contains a line end"):
            sf.from_iterable(["a\nb"]).write_text(tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_iterator_as_item_is_refused(self) -> None:
        assert "which can be read only once" in self.failing(sf.from_iterable([(1, 2)]).group_by().map(lambda key, values: values))


def test_empty_input_gives_no_items(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    lines: sf.Dataset[Any] = sf.read_text(tmp_path / "empty")
    assert lines.collect() == []
    assert lines.count() == 0
    assert lines.map(lambda line: (line, 1)).reduce_by_key(sum).join(sf.from_iterable([(1, 2)])).collect() == []
    assert lines.sort_by().top(3).collect() == []
    result: Result = lines.write_text(tmp_path / "out")
    assert list(result) == []


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("parquet", ["", "left", "left, right"])
def test_hot_keys_of_joins_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, parquet: str) -> None:
    import pyarrow
    import pyarrow.parquet

    monkeypatch.setattr(_hot_keys, "_SIDE_BYTES_MIN", 1000)
    chosen = random.Random(how)
    (tmp_path / "in").mkdir()
    # On the left, half of the rows have the key "hot"; on the right, a fifth have "hot 2". Each hot key also has rows on the other side;
    # the key "alone" has rows on the right only.
    left = [("hot" if chosen.random() < 0.5 else f"k{chosen.randrange(3000)}", number) for number in range(30_000)]
    right = [(chosen.choice(["hot 2", *(f"k{chosen.randrange(3000)}" for _ in range(4))]), number) for number in range(5000)]
    left += [("hot 2", -1), ("hot 2", -2)]
    right += [("hot", -1), ("alone", -1)]
    for side, rows in (("left", left), ("right", right)):
        if side in parquet:
            table = pyarrow.table({"key": [row[0] for row in rows], "value": [row[1] for row in rows]})
            pyarrow.parquet.write_table(table, tmp_path / "in" / f"{side}.parquet", row_group_size=1700)
        else:
            (tmp_path / "in" / f"{side}.txt").write_text("".join(f"{key},{value}\n" for key, value in rows))

    def pair(line: str) -> Pair:
        key, _, value = line.partition(",")
        return key, int(value)

    def read(side: str) -> sf.Dataset[Pair]:
        files = tmp_path / "in" / f"{side}*"
        return sf.read_parquet(files).map(lambda row: (row["key"], row["value"])) if side in parquet else sf.read_text(files).map(pair)

    flow = read("left").join(read("right"), how=how)
    same(flow.collect(), joined(left, right, how))
    plan = Plan(flow._node)
    _hot_keys.cut(plan, Settings())
    shuffle = plan.last.shuffle
    assert isinstance(shuffle, Sides)
    cut = {_keys.decode_inside(key): side for key, (side, ways) in shuffle.hot.items() if ways > 1}
    of_left, of_right = {"hot": 0}, {"hot 2": 1}
    assert cut == {"inner": {**of_left, **of_right}, "left": of_left, "right": of_right, "full": {}}[how]


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    script = f"""
import os, time
import sailfish as sf

def waits(number):
    while not os.path.exists({str(go_on)!r}):
        time.sleep(0.01)
    return number, number

print(sf.from_iterable([1, 2]).map(waits).group_by().map_values(len).sort_by().collect())
"""
    path = os.pathsep.join([str(Path(sf.__file__).parent.parent), *sys.path])
    terminal, end = os.openpty()
    ran = subprocess.Popen(
        [sys.executable, "-c", script], stdin=end, stdout=subprocess.PIPE, stderr=end, env={**os.environ, "PYTHONPATH": path}
    )
    os.close(end)
    drawn = b""
    with contextlib.suppress(OSError):
        # `os.read` fails when the process has closed its end of the terminal.
        while piece := os.read(terminal, 4096):
            drawn += piece
            if b"1-group_by map" in drawn:
                go_on.touch()
    os.close(terminal)
    said, _ = ran.communicate()
    assert (said, ran.returncode) == (b"[(1, 1), (2, 1)]\n", 0)
    text = drawn.decode()
    assert "1-group_by map ─" in text
    assert text.endswith("\r\x1b[K")
    assert '"progress"' not in text
