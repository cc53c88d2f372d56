"""Tests of paths, options, results, and datasets as dicts."""

from __future__ import annotations

import gc
import os
import pwd
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sailfish as sf
from sailfish._plan import Read
from sailfish._run import Settings, absolute, paths_of


def runs_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list to which each run of a dataset from now on appends its output format."""
    seen: list[str] = []
    kept = sf.Dataset._kept

    def counted(self: sf.Dataset[Any], output_format: str, options: dict[str, Any]) -> sf.Result:
        seen.append(output_format)
        return kept(self, output_format, options)

    monkeypatch.setattr(sf.Dataset, "_kept", counted)
    return seen


def test_dict_of_a_dataset_takes_two_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = sf.from_iterable([("a", 1), ("b", 2), ("a", 3)])
    runs = runs_of(monkeypatch)
    assert dict(pairs) == {"a": 3, "b": 2}
    # One run for the keys and one for all values.
    assert len(runs) == 2
    assert {**pairs.reduce_by_key(sum)} == {"a": 4, "b": 2}
    assert dict(sf.from_iterable([(1, "x"), (1.0, "y")])) == {1: "y"}
    assert dict(pairs.filter(lambda pair: False)) == {}
    filled = {"z": 0}
    filled.update(pairs)
    assert filled == {"z": 0, "a": 3, "b": 2}


class Value:
    """An object that takes weak references."""


def test_dict_frees_the_values() -> None:
    pairs = sf.from_iterable([("a", Value()), ("b", Value())])
    made = dict(pairs)
    seen = [weakref.ref(value) for value in made.values()]
    del made
    gc.collect()
    assert [reference() for reference in seen] == [None, None]
    assert pairs._lookups is None
    # Listing the keys stores their number, but no values.
    assert list(pairs.keys()) == ["a", "b"]
    assert pairs._lookups is not None
    assert pairs._lookups._values is None
    assert set(dict(pairs)) == {"a", "b"}


def test_dataset_cannot_be_indexed() -> None:
    with pytest.raises(sf.JobFailed, match=r"'ab' is not a \(key, value\) pair"):
        dict(sf.from_iterable(["ab"]))
    with pytest.raises(TypeError, match=r"a dataset cannot be indexed: collect\(\)"):
        sf.from_iterable([(1, 2)])[1]
    changing = sf.from_iterable([1]).map(lambda _: (os.urandom(8), 1))
    with pytest.raises(RuntimeError, match="the functions of the dataset are not deterministic"):
        dict(changing)
    assert changing._lookups is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("a b", "/usr/a b"),
        ("~/x/*.gz", f"{Path.home()}/x/*.gz"),
        ("~root/x", f"{pwd.getpwnam('root').pw_dir}/x"),
        ("./~", "/usr/~"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("FILE:///a%20b/c#d?e", "/a b/c#d?e"),
        ("s3://bucket/key", "s3://bucket/key"),
        ("s3a://bucket/a//b", "s3://bucket/a//b"),
        ("s3://bucket/~", "s3://bucket/~"),
    ],
)
def test_paths_are_made_absolute(path: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")
    assert absolute(path) == expected
    assert paths_of(path) == paths_of([path]) == [expected]
    node = sf.read_text(path)._node
    assert isinstance(node, Read)
    assert node.paths == (expected,)


@pytest.mark.parametrize("scheme", ["https", "http", "gs", "hdfs", "ftp", "abfs", "sftp"])
def test_unknown_schemes_are_refused_by_name(scheme: str, tmp_path: Path) -> None:
    url = f"{scheme}://host/key"
    told = rf"'{url}': {scheme}:// is not supported: copy the data to a file system or to s3://"
    for use in (
        lambda: sf.read_text(url),
        lambda: sf.read_parquet([tmp_path / "x", url]),
        lambda: sf.MapReduce(url, lambda line: []),
        lambda: sf.MapReduce("x", lambda line: [], output=url),
        lambda: sf.from_iterable([1]).write_text(url),
    ):
        with pytest.raises(ValueError, match=told):
            use()
    for name in ("files", "scratch"):
        with pytest.raises(ValueError, match=f"{name}='{url}' must be a path in the file system of this machine, not a {scheme}:// URL"):
            sf.from_iterable([1]).collect(**{name: [url] if name == "files" else url})


def test_wrong_urls_are_refused() -> None:
    with pytest.raises(ValueError, match="names a file on the host 'other'"):
        sf.read_text("file://other/a")
    with pytest.raises(ValueError, match=r"pathlib\.Path removes one slash"):
        sf.read_text(Path("s3://bucket/key"))


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "in").write_text("a\n")
    (tmp_path / "side").write_text("b")
    result = sf.read_text("~/in").map(lambda line: line + Path("side").read_text()).write_text("~/out", files=["~/side"])
    assert result.output == tmp_path / "out"
    assert sf.read_text(f"file://{tmp_path}/out").collect() == ["ab"]


def result_at(location: str, output_format: str = "text", parts: int = 1) -> sf.Result:
    return sf.Result(location, output_format, [{"parts": [{"bytes": 1}] * parts}], None)


def test_repr_counts_parts() -> None:
    assert repr(result_at("/a", parts=1)) == "<sailfish.Result of 1 part in '/a'>"
    assert repr(result_at("/a", parts=2)) == "<sailfish.Result of 2 parts in '/a'>"


def test_result_on_an_object_store() -> None:
    result = result_at("s3://bucket/key")
    assert result.location == "s3://bucket/key"
    assert repr(result) == "<sailfish.Result of 1 part in 's3://bucket/key'>"
    for output_format, hint in (
        ("text", r"read it with sailfish.read_text\('s3://bucket/key'\)"),
        ("json", r"sailfish.read_jsonl\("),
        ("rows", r"sailfish.read_parquet\("),
        ("csv", r"sailfish.read_csv\("),
        ("pickle", "no reader supports the format pickle"),
    ):
        stored = result_at("s3://bucket/key", output_format)
        for use in (lambda stored=stored: stored.output, lambda stored=stored: stored.parts, lambda stored=stored: list(stored)):
            with pytest.raises(NotImplementedError, match=f"the output is at s3://bucket/key, which is not in a file system: .*{hint}"):
                use()


def test_scratch_must_be_a_directory(server: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"set scratch=\.\.\. to a directory .*an object store does not work"):
        sf.from_iterable([1]).collect(engine=server)
    with pytest.raises(ValueError, match="scratch='s3://bucket/x' must be a path in the file system of this machine"):
        sf.from_iterable([1]).collect(engine=server, scratch="s3://bucket/x")


def test_documented_options_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    job = sf.MapReduce(tmp_path / "in", lambda line: [(line, 1)], sum, name="made")
    assert job.run().report["name"] == "made"
    named = job.run(engine=None, memory="64M", slots=1, progress=False, python=None, sync=False, name="run")
    assert (dict(named), named.report["name"]) == ({"a": 1}, "run")
    assert sf.from_iterable([1]).collect(engine=None, sync=False, name="collected") == [1]
    assert Settings(engine=None).is_local


def test_limits_end_a_function(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")

    def waits(line: str) -> list[tuple[str, int]]:
        time.sleep(60)
        return []

    job = sf.MapReduce(tmp_path / "in", waits)
    with pytest.raises(sf.JobFailed, match="--limit time=1s of the job"):
        job.run(limits={"time": "1s"})
    with pytest.raises(sf.JobFailed, match="--limit open-files=3: no program starts with so few"):
        job.run(limits={"open_files": 3})
    with pytest.raises(TypeError, match="limits='time=1s' must map names to values"):
        job.run(limits="time=1s")  # type: ignore[arg-type]


def test_dict_of_a_result(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")

    def words(line: str) -> Iterator[tuple[str, int]]:
        yield line, 1

    assert dict(sf.MapReduce(tmp_path / "in", words, sum).run()) == {"a": 1}


def test_overwrite_spares_foreign_files(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    with pytest.raises(sf.JobFailed, match=r"thesis\.tex"):
        sf.from_iterable(["a"]).write_text(tmp_path, overwrite=True)
    assert thesis.read_text() == "years of work"
    for text in ("one", "two"):
        result = sf.from_iterable([text]).write_text(tmp_path / "out", overwrite=True)
    assert list(result) == ["two"]


def test_dir_lists_the_public_names() -> None:
    assert set(sf.__all__) <= set(dir(sf))
    assert {"MapReduce", "read_text", "from_iterable", "counter"} <= set(dir(sf))


def test_parents_of_an_output_are_made(tmp_path: Path) -> None:
    assert list(sf.from_iterable(["a"]).write_text(tmp_path / "no" / "such" / "out")) == ["a"]


@pytest.mark.parametrize("initial", [set(), frozenset()])
def test_each_key_has_its_initial_value(initial: set[int]) -> None:
    pairs = sf.from_iterable([(number % 3, number) for number in range(9)])

    def add(members: Any, number: int) -> Any:
        if isinstance(members, set):
            members.add(number)
            return members
        return members | {number}

    folded = dict(pairs.aggregate_by_key(initial, add, lambda some, others: some | others).collect())
    assert {key: set(members) for key, members in folded.items()} == {0: {0, 3, 6}, 1: {1, 4, 7}, 2: {2, 5, 8}}
