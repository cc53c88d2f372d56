"""Tests of stored files: `sf.files`, and `sailfish://` of fsspec with the libraries that read and write through it."""

from __future__ import annotations

import gc
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sailfish as sf


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def write_tree(root: Path) -> None:
    (root / "b" / "empty").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "b" / "ö c").write_bytes(bytes(range(256)) * 2000)


def test_directory_is_put_listed_and_got(tmp_path: Path) -> None:
    write_tree(tmp_path / "in")
    assert sf.files.ls() == []
    assert not sf.files.exists("data")
    assert sf.files.put("in", "data") == 1
    listed = sf.files.ls("data", recursive=True)
    assert sorted(each.name for each in listed) == ["data/a.txt", "data/b", "data/b/empty", "data/b/ö c"]
    assert [each.name for each in sf.files.ls()] == ["data"]
    assert [each.name for each in sf.files.ls("data/a.txt")] == ["data/a.txt"]
    found = sf.files.stat("data/b/ö c")
    assert (found.kind, found.bytes, found.version) == ("file", 512_000, 1)
    assert sf.files.get("data") == Path("data")
    assert (tmp_path / "data/a.txt").read_text() == "one\ntwo\n"
    with pytest.raises(sf.files.FilesFailed, match="exists already"):
        sf.files.get("data")
    assert sf.files.put("in/a.txt", "data/", keep_versions=2, ttl="7d") == 2
    with pytest.raises(sf.files.FilesFailed, match="--ttl"):
        sf.files.put("in/a.txt", "data/", ttl="soon")
    sf.files.cp("data", "twin")
    sf.files.mv("twin/a.txt", "first")
    sf.files.mkdir("x/y", parents=True)
    sf.files.rm("data", "twin", recursive=True)
    assert [each.name for each in sf.files.ls("/", recursive=True)] == ["first", "x", "x/y"]
    assert len(sf.files.versions()) == 7


def test_errors_are_those_of_python(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sf.files.put("nowhere", "x")
    with pytest.raises(FileNotFoundError):
        sf.files.stat("x")
    (tmp_path / "a").write_text("a")
    sf.files.put("a", "a")
    with pytest.raises(FileNotFoundError, match="no file or directory b"):
        sf.files.open("b")
    with pytest.raises(FileNotFoundError):
        sf.files.ls("b")
    with pytest.raises(sf.files.FilesFailed, match=r"`\.\.`"):
        sf.files.put("a", "../a")
    with pytest.raises(ValueError, match="mode 'a'"):
        sf.files.open("a", "a")
    sf.files.mkdir("d")
    with pytest.raises(IsADirectoryError):
        sf.files.open("d")


def test_reads_are_those_of_the_bytes() -> None:
    whole = random.Random(1).randbytes(5_000_000)
    with sf.files.open("data", "wb") as out:
        for start in range(0, len(whole), 700_001):
            out.write(whole[start : start + 700_001])
    with sf.files.open("data") as file:
        assert file.read() == whole
        moves = random.Random(2)
        for _ in range(12):
            place, count = moves.randrange(len(whole)), moves.randrange(2_000_000)
            file.seek(place)
            assert file.read(count) == whole[place : place + count]
        file.seek(-7, io.SEEK_END)
        assert file.read() == whole[-7:]
        assert file.read() == b""


def test_text_has_lines() -> None:
    with sf.files.open("lines", "w") as out:
        print("größe", "zwei", sep="\n", file=out)
    with sf.files.open("lines", "r") as file:
        assert list(file) == ["größe\n", "zwei\n"]


def test_reader_keeps_its_version() -> None:
    for text in ("old" * 1_000_000, "new"):
        with sf.files.open("data", "w") as out:
            out.write(text)
        if text != "new":
            reader = sf.files.open("data", "r")
            assert reader.read(3) == "old"
    assert reader.read() == "old" * 999_999
    reader.close()
    assert sf.files.open("data", "r").read() == "new"


def write_and_fail(mode: str, data: Any) -> None:
    with sf.files.open("data", mode) as out:
        out.write(data)
        raise ZeroDivisionError


def test_failed_block_stores_nothing() -> None:
    for mode, data in (("wb", b"half"), ("w", "half")):
        with pytest.raises(ZeroDivisionError):
            write_and_fail(mode, data)
        left: Any = sf.files.open("data", mode)
        left.write(data)
        del left
        gc.collect()
    assert sf.files.ls() == []


def test_fsspec_reads_and_writes(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    write_tree(tmp_path / "in")
    sf.files.put("in", "data")
    system = fsspec.filesystem("sailfish")
    assert sorted(system.ls("data", detail=False)) == ["data/a.txt", "data/b"]
    assert sorted(system.find("sailfish://data")) == ["data/a.txt", "data/b/ö c"]
    assert system.glob("data/*.txt") == ["data/a.txt"]
    assert system.isdir("data/b") and system.isfile("data/a.txt") and not system.exists("x")
    assert system.cat_file("data/b/ö c", 250, 260) == bytes([*range(250, 256), *range(4)])
    with fsspec.open("sailfish://out/new.txt", "w") as out:
        out.write("three\n")
    with fsspec.open("sailfish://out/new.txt", "r") as file:
        assert file.read() == "three\n"
    system.cp("data/a.txt", "out/copy.txt")
    system.mv("out/copy.txt", "out/moved.txt")
    system.put(str(tmp_path / "in"), "again", recursive=True)
    assert sorted(system.find("again")) == ["again/a.txt", "again/b/ö c"]
    system.get("again/a.txt", str(tmp_path / "got"))
    assert (tmp_path / "got").read_text() == "one\ntwo\n"
    system.rm("out", recursive=True)
    with pytest.raises(FileExistsError):
        system.makedirs("data")
    with pytest.raises(FileNotFoundError):
        system.info("out")
    assert [each["name"] for each in system.ls("/")] == ["again", "data"]


def test_tables_go_through_urls() -> None:
    pytest.importorskip("fsspec")
    pandas, polars, duckdb = (pytest.importorskip(name) for name in ("pandas", "polars", "duckdb"))
    parquet = pytest.importorskip("pyarrow.parquet")
    import fsspec

    frame = pandas.DataFrame({"word": ["whale", "sea", "ship"] * 30_000, "count": range(90_000)})
    frame.to_csv("sailfish://tables/words.csv", index=False)
    frame.to_parquet("sailfish://tables/words.parquet")
    pandas.testing.assert_frame_equal(pandas.read_csv("sailfish://tables/words.csv"), frame)
    pandas.testing.assert_frame_equal(pandas.read_parquet("sailfish://tables/words.parquet"), frame)
    system = fsspec.filesystem("sailfish")
    table = parquet.read_table("tables/words.parquet", filesystem=system, columns=["count"])
    assert table.num_rows == 90_000
    with sf.files.open("tables/words.parquet") as file:
        assert polars.read_parquet(file).equals(polars.from_pandas(frame))
    with sf.files.open("tables/polars.parquet", "wb") as out:
        polars.from_pandas(frame).write_parquet(out)
    connection = duckdb.connect()
    connection.register_filesystem(system)
    answer = connection.execute("SELECT word, sum(count) FROM 'sailfish://tables/polars.parquet' GROUP BY word ORDER BY word")
    assert answer.fetchall() == [(word, int(total)) for word, total in frame.groupby("word")["count"].sum().items()]


def test_jobs_read_stored_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text("whale sea\n" * (number + 1))
    sf.files.put("in", "books", keep_versions=2)
    words = sf.read_text("files:books").flat_map(str.split)
    assert "read_text(files:books)" in words.explain()
    assert sorted(words.count_by_value().collect()) == [("sea", 6), ("whale", 6)]
    (tmp_path / "in" / "0.txt").write_text("ship\n")
    sf.files.put("in", "books", keep_versions=2)
    assert sf.read_text("sailfish://books").count() == 6
    assert sf.read_text("sailfish://books@1").count() == 6
    assert dict(sf.MapReduce("files:books/0.txt", lambda line: [(line, 1)], sum).run()) == {"ship": 1}
    with pytest.raises(sf.JobFailed, match="no file or directory nothing"):
        sf.read_text("files:nothing").count()


def test_stored_modules_are_importable(tmp_path: Path) -> None:
    (tmp_path / "stored_beside.py").write_text("WHERE = 'stored'\n")
    (tmp_path / "in").write_text("a line\n")
    sf.files.put("stored_beside.py", "lib/stored_beside.py")
    (tmp_path / "stored_beside.py").unlink()

    def where(line: str) -> Iterator[tuple[str, int]]:
        import stored_beside  # type: ignore[import-not-found]

        yield stored_beside.WHERE, 1

    for name in ("files:lib/stored_beside.py", "sailfish://lib/stored_beside.py@1"):
        assert dict(sf.MapReduce(tmp_path / "in", where, sum, files=[name]).run()) == {"stored": 1}
    with pytest.raises(sf.JobFailed, match="lib is a directory"):
        sf.MapReduce(tmp_path / "in", where, files=["files:lib"]).run()


def test_jobs_write_stored_files() -> None:
    pandas = pytest.importorskip("pandas")
    rows = sf.from_iterable([{"word": word, "count": count} for count, word in enumerate(["sea", "ship", "whale"] * 100)])
    result = rows.write_csv("files:tables/csv")
    assert result.location == "sailfish://tables/csv"
    with pytest.raises(NotImplementedError, match=r"read_csv\('sailfish://tables/csv'\)"):
        _ = result.output
    assert sf.read_csv("sailfish://tables/csv").count() == 300
    rows.write_parquet("files:tables/parquet")
    assert {each.name.rpartition(".")[2] for each in sf.files.ls("tables/parquet")} == {"parquet"}
    assert len(pandas.read_parquet("sailfish://tables/parquet")) == 300
    counts = rows.map(lambda row: row["word"]).count_by_value().map(lambda pair: f"{pair[0]} {pair[1]}")
    counts.write_text("files:counts")
    with sf.files.open("counts", "r") as file:
        assert sorted(file) == ["sea 100\n", "ship 100\n", "whale 100\n"]
    sf.MapReduce("files:counts", lambda line: [tuple(line.split())], output="sailfish://again").run()
    assert sf.files.stat("again").kind == "file"
