"""Tests of rows of CSV and Parquet, and of tables of other libraries."""

from __future__ import annotations

import csv
import io
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
import sailfish as sf
from hypothesis import given
from hypothesis import strategies as st
from sailfish import _writers
from sailfish._readers import Csv, WrongRow
from sailfish._spec import Format


class Kept:
    """An output that stores the bytes of a part instead of sending them to the engine."""

    def __init__(self) -> None:
        self.data, self.records = b"", 0

    def output(self, records: int, data: bytes) -> None:
        self.data += data
        self.records += records


def part_of(rows: list[dict[str, Any]], at_once: int, schema: Any = None) -> Any:
    """Returns the table of a part whose writer gets `at_once` rows per call."""
    kept = Kept()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_writers, "_ROWS_AT_ONCE", at_once)
        writer = _writers.Parquet(kept, (), schema)  # type: ignore[arg-type]
        for start in range(0, len(rows), at_once):
            writer.write(rows[start : start + at_once])
        writer.close()
    assert kept.records == len(rows)
    return pyarrow.parquet.read_table(io.BytesIO(kept.data))


LATE_TYPES: list[tuple[list[Any], str]] = [
    ([None, None, "x"], "string"),
    ([None, 1, None, 2], "int64"),
    ([None, None, 1.5], "double"),
    ([None, b"x"], "binary"),
    ([None, [1, None]], "list<element: int64>"),
    ([[], [None], ["x"], None], "list<element: string>"),
    ([{"a": None, "b": 1}, {"a": "x", "b": 2}], "struct<a: string, b: int64>"),
    ([{"a": [{"b": None}]}, {"a": None}, {"a": [{"b": True}]}], "struct<a: list<element: struct<b: bool>>>"),
    ([None, None], "null"),
    ([1, None, None], "int64"),
]


@pytest.mark.parametrize(("values", "kind"), LATE_TYPES, ids=[kind for _, kind in LATE_TYPES])
def test_first_value_decides_the_type(values: list[Any], kind: str) -> None:
    rows = [{"number": number, "late": value} for number, value in enumerate(values)]
    table = part_of(rows, 1)
    assert table.to_pylist() == rows
    assert str(table.schema.field("late").type).replace("item:", "element:") == kind


def test_rows_without_a_type_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_writers, "_WAITING_BYTES_MAX", 100)
    rows: list[dict[str, Any]] = [{"text": "x" * 40, "late": None} for _ in range(10)]
    assert part_of(rows, 1).schema.field("late").type == pyarrow.null()
    with pytest.raises((pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError), match="null"):
        part_of([*rows, {"text": "", "late": 1}], 1)
    # With a schema the types are known from the start.
    schema = pyarrow.schema([("text", pyarrow.string()), ("late", pyarrow.int64())])
    assert part_of([*rows, {"text": "", "late": 1}], 1, schema).schema.equals(schema)


def test_job_with_a_late_type(tmp_path: Path) -> None:
    rows = [{"number": number, "late": None if number < 150_000 else "x"} for number in range(150_001)]
    sf.from_iterable(rows).sort_by(lambda row: row["number"]).write_parquet(tmp_path / "out", memory="64M")
    table = pyarrow.parquet.read_table(tmp_path / "out")
    assert (table.num_rows, table["late"].drop_null().to_pylist()) == (150_001, ["x"])


def parts_in(directory: Path, values: list[list[Any]]) -> Path:
    """Writes one file per list of values. A separate task reads each file. Returns the directory."""
    directory.mkdir()
    for number, some in enumerate(values):
        text = "".join(f"{value!r:2000}\n" for value in some)
        (directory / f"{number}").write_text(text * 1000)
    return directory


def evaluated(line: str) -> Iterator[dict[str, Any]]:
    value = eval(line)
    if value != "nothing":
        yield {"a": 1, "b": value}


def test_part_of_none_alone(tmp_path: Path) -> None:
    """A column of None alone has the type null. A warning is given if other programs cannot read the directory because of it."""

    def written(name: str, values: list[list[Any]]) -> Path:
        flow = sf.read_text(parts_in(tmp_path / f"{name}-in", values)).flat_map(evaluated)
        result = flow.write_parquet(tmp_path / name)
        assert len(result.parts) > 1
        return tmp_path / name

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        readable: dict[str, list[list[Any]]] = {"all": [[None], [None]], "first": [["x"], [None]]}
        for name, values in readable.items():
            path = written(name, values)
            assert len(sf.read_parquet(path).collect()) == 2000
            tables = [pyarrow.parquet.read_table(path), pyarrow.dataset.dataset(path, format="parquet").to_table()]
            assert [table.num_rows for table in tables] == [2000, 2000]
            frame = pandas.read_parquet(path)
            assert (len(frame), set(frame["b"].dropna())) == (2000, {each for some in values for each in some} - {None})
            assert polars.read_parquet(f"{path}/part-*").height == 2000
    told = r"the column 'b' has null in part-00000.parquet and string in part-0000\d.parquet of .*late: .*schema=\.\.\.\) sets the types"
    with pytest.warns(UserWarning, match=told) as warned:
        path = written("late", [[None], ["x"]])
    assert warned[0].filename == __file__
    schemas = [pyarrow.parquet.read_schema(part) for part in sorted(path.glob("part-*"))]
    unified = pyarrow.unify_schemas(schemas, promote_options="permissive")
    assert pyarrow.dataset.dataset(path, schema=unified, format="parquet").count_rows() == 2000


TABLES: list[tuple[Callable[[], Any], str]] = [
    (lambda: pandas.DataFrame({"a": [1]}), r'pandas.DataFrame: use from_iterable\(df.to_dict\("records"\)\)'),
    (lambda: pandas.Series([1]), r"pandas.Series: use from_iterable\(series.tolist\(\)\)"),
    (lambda: polars.DataFrame({"a": [1]}), r"polars.DataFrame: use from_iterable\(df.to_dicts\(\)\)"),
    (lambda: polars.LazyFrame({"a": [1]}), r"polars.LazyFrame: use from_iterable\(df.collect\(\).to_dicts\(\)\)"),
    (lambda: polars.Series([1]), r"polars.Series: use from_iterable\(series.to_list\(\)\)"),
    (lambda: pyarrow.table({"a": [1]}), r"pyarrow.Table: use from_iterable\(table.to_pylist\(\)\)"),
    (lambda: pyarrow.array([1]), r"pyarrow.Array: use from_iterable\(array.to_pylist\(\)\)"),
]


@pytest.mark.parametrize(("make", "told"), TABLES)
def test_tables_are_refused_by_name(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(TypeError, match=rf"from_iterable takes items, not a {told}$"):
        sf.from_iterable(make())


def test_advice_for_tables_gives_the_rows() -> None:
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    table = pyarrow.table({"a": [1, 2], "b": ["x", "y"]})
    for each in (frame.to_dict("records"), polars.from_pandas(frame).to_dicts(), table.to_pylist()):
        assert sf.from_iterable(each).collect() == rows
    assert sf.from_iterable(frame["a"].tolist()).collect() == [1, 2]
    # A text is not refused: its items are its characters.
    assert sf.from_iterable("ab").collect() == ["a", "b"]


def test_line_ends_in_fields_are_refused(tmp_path: Path) -> None:
    rows = [{"name": "plain", "note": "one"}, {"name": "odd", "note": "two\nlines"}]
    with pytest.raises(sf.JobFailed) as failed:
        sf.from_iterable(rows).write_csv(tmp_path / "out")
    assert "the column 'note' of the row ['odd', 'two\\nlines'] contains a line end" in str(failed.value)
    assert "use write_jsonl or write_parquet, or write_csv(multiline=True)" in str(failed.value)
    with pytest.raises(sf.JobFailed, match=r"the column 'a\\nb' of the row"):
        sf.from_iterable([("x",)]).write_csv(tmp_path / "out", columns=["a\nb"])
    result = sf.from_iterable(rows).write_csv(tmp_path / "out", multiline=True)
    assert sorted(result, key=str) == sorted(rows, key=str)
    assert sorted(pandas.read_csv(result.parts[0])["note"]) == ["one", "two\nlines"]
    with pytest.raises(sf.JobFailed, match="a quoted field goes on in the next line"):
        sf.read_csv(tmp_path / "out").collect()


def read_rows(text: str, columns: tuple[str, ...] | None = None, delimiter: str = ",") -> list[dict[str, str]]:
    return Csv(Format("csv", columns=columns, delimiter=delimiter)).records(text.encode(), "file", 0)


def test_other_programs_read_parquet_directories(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = sf.from_iterable([{"a": number} for number in range(5)]).write_parquet(out)
    assert [part.name for part in result.parts] == ["part-00000.parquet"]
    expected = list(range(5))
    assert sorted(pandas.read_parquet(out)["a"]) == expected
    assert sorted(polars.read_parquet(f"{out}/*.parquet")["a"]) == expected
    assert sorted(polars.scan_parquet(out, hidden_file_prefix="_").collect()["a"]) == expected
    assert sorted(sf.read_parquet(out).map(lambda row: row["a"]).collect()) == expected


def test_empty_parts_are_omitted(tmp_path: Path) -> None:
    """Other programs apply the types of the first file to all files, and a file without rows has no types."""
    rows = sf.from_iterable([{"a": number} for number in range(200_000)]).sort_by(lambda row: row["a"])
    result = rows.filter(lambda row: row["a"] == 199_999).write_parquet(tmp_path / "out", memory="64M")
    assert [part.name for part in result.parts] != []
    assert list(pandas.read_parquet(tmp_path / "out")["a"]) == [199_999]
    nothing = rows.filter(lambda row: False).write_parquet(tmp_path / "nothing")
    assert len(nothing.parts) == 1
    assert len(pandas.read_parquet(tmp_path / "nothing")) == 0


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a,b\n1,2\n1,2,3\n", 2, r"has 3 fields, but there are 2 columns: 1,2,3"),
        ("a,b\n\n\r\n1\n", 3, r"has 1 fields"),
        ('a,b\n1,"2\n3",4\n', 1, "a quoted field goes on"),
        ('a,b\n1,2\n1,"2\n', 2, "a quoted field goes on"),
        # An even number of quotes does not mean that the row is closed: one is inside a field, the next opens a field.
        ('a,b\n5","x\n1,2\n', 1, "a quoted field goes on"),
        ('a,b\n5","x\n', 1, "a quoted field goes on"),
        ('a,b\n"x"y,"z\n1,2\n', 1, "a quoted field goes on"),
        ('a,"b\n1,2\n', 0, "a quoted field goes on"),
        ("a,b\n1,2\n1\r3,4\n", 2, "new-line character seen in unquoted field"),
        ('a,b\n1,"2\nx\ry\n3",4\n', 1, "a quoted field goes on"),
        ("a,a\n1,2\n", 0, "does not name columns"),
    ],
)
def test_wrong_rows_are_reported_by_line(text: str, line: int, told: str) -> None:
    with pytest.raises(WrongRow, match=told) as wrong:
        read_rows(text)
    assert wrong.value.line == line


FIELDS = st.text(st.sampled_from(["a", '"', ",", ";", " ", "\r", "é", "'"]), max_size=5)


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=8), st.sampled_from([",", ";"]), st.booleans())
def test_rows_equal_written_rows(rows: list[tuple[str, str]], delimiter: str, are_quoted: bool) -> None:
    text = io.StringIO()
    quoting: Any = csv.QUOTE_ALL if are_quoted or any("\r" in field for row in rows for field in row) else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator=random.Random(len(rows)).choice(["\n", "\r\n"]), delimiter=delimiter, quoting=quoting).writerows(rows)
    assert read_rows(text.getvalue(), ("x", "y"), delimiter) == [{"x": x, "y": y} for x, y in rows]


@given(st.lists(st.text(st.sampled_from(["a", '"', ",", "\r"]), max_size=6), max_size=5))
def test_lines_are_accepted_independently(lines: list[str]) -> None:
    """A line is accepted or refused independently of the other lines."""

    def taken(text: str) -> list[dict[str, str]] | None:
        try:
            return read_rows(text, ("x", "y"))
        except WrongRow:
            return None

    each = [taken(f"{line}\n") for line in lines]
    expected = None if None in each else [row for rows in each for row in rows or []]
    assert taken("".join(f"{line}\n" for line in lines)) == expected
