"""Readers of input formats."""

from __future__ import annotations

import csv
import json
import os
import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ._needed import needed
from ._spec import Format
from ._values import pickled_items

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Input formats, without `fixed:N`. The value describes the record.
INPUT_FORMATS = {
    "text": "a line as str, without its line end",
    "bytes": "a line as bytes, without its line end",
    "jsonl": "the JSON value of a line",
}
#: The most bytes of the header line.
_HEADER_BYTES_MAX = 1 << 20
#: The number of rows of a Parquet file that are read at once.
_ROWS_AT_ONCE = 1 << 12


class Reader(Protocol):
    """A reader that splits blocks into records."""

    def records(self, block: bytes, name: str, offset: int) -> Iterable[Any]:
        """Returns the records of a block, which begins at byte `offset` of the file `name`."""

    def offset_of(self, block: bytes, index: int) -> int:
        """Returns the offset of the record `index` in its block, in bytes."""

    def error_at(self, block: bytes, error: Exception) -> int:
        """Returns the offset in the block at which reading failed, in bytes."""


def reader_of(format: Format, layout: dict[str, Any]) -> Reader:
    """Returns the reader of a format. `layout`: the layout of the records, as the engine describes it."""
    if isinstance(layout, dict) and "fixed" in layout:
        return Fixed(layout["fixed"]["record_bytes"])
    if format.name == "text":
        return Lines(lambda lines: _decoded(lines, format.encoding, format.errors))
    if format.name == "jsonl":
        return Lines(lambda lines: [json.loads(line) for line in lines.split(b"\n")[:-1] if line.strip()], _json_offset)
    if format.name == "csv":
        return Csv(format)
    if format.name == "parquet":
        return Parquet(format)
    if format.name == "items":
        return Items()
    return Lines(lambda lines: lines.split(b"\n")[:-1])


def _decoded(block: bytes, encoding: str, errors: str) -> list[str]:
    lines = block.decode(encoding, errors).split("\n")
    lines.pop()
    return lines


def _json_offset(block: bytes, index: int) -> int:
    """Returns the offset of a record in a block whose empty lines are skipped, in bytes."""
    offset = 0
    for line in block.split(b"\n"):
        if line.strip():
            if index == 0:
                break
            index -= 1
        offset += len(line) + 1
    return offset


def _line_offset(block: bytes, index: int) -> int:
    offset = 0
    for _ in range(index):
        offset = block.index(b"\n", offset) + 1
    return offset


class Lines:
    """A reader of lines. Each line of a block has its line end."""

    def __init__(self, part: Callable[[bytes], list[Any]], offset_of: Callable[[bytes, int], int] = _line_offset) -> None:
        self._part, self._offset_of = part, offset_of

    def records(self, block: bytes, name: str, offset: int) -> list[Any]:
        return self._part(block)

    def offset_of(self, block: bytes, index: int) -> int:
        return self._offset_of(block, index)

    def error_at(self, block: bytes, error: Exception) -> int:
        offset = 0
        for line in block.split(b"\n")[:-1]:
            try:
                self._part(line + b"\n")
            except UnicodeDecodeError as own:
                return offset + own.start
            except Exception:
                return offset
            offset += len(line) + 1
        return 0


class Fixed:
    """A reader of records of a fixed length."""

    def __init__(self, record_bytes: int) -> None:
        self._record_bytes = record_bytes

    def records(self, block: bytes, name: str, offset: int) -> list[bytes]:
        length = self._record_bytes
        return [block[start : start + length] for start in range(0, len(block), length)]

    def offset_of(self, block: bytes, index: int) -> int:
        return index * self._record_bytes

    def error_at(self, block: bytes, error: Exception) -> int:
        return 0


class WrongRow(ValueError):
    """Error of a line of a CSV file that is not a valid row."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        #: The number of the line in its block.
        self.line = line


# A field may be as long as a line.
csv.field_size_limit((1 << 31) - 1)


#: The error of a row of several lines.
_GOES_ON = "a quoted field goes on in the next line, but each row must be one line: convert the file to Parquet"


def _goes_on(line: str, delimiter: str) -> bool:
    """Returns whether a quoted field is still open at the end of a line."""
    if '"' not in line:
        return False
    try:
        # An open field also consumes the empty line that follows.
        return len(list(csv.reader((line, ""), delimiter=delimiter))) == 1
    except csv.Error:
        return False


class Csv:
    """A reader of CSV rows as dicts. Each row is one line."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self._file, self._columns = "", format.columns

    def records(self, block: bytes, name: str, offset: int) -> list[dict[str, str]]:
        text = block.decode(self._format.encoding, self._format.errors)
        lines = text.split("\n")
        lines.pop()
        before = 0
        if self._format.columns is None:
            if offset == 0:
                self._file, self._columns = name, self._names(lines.pop(0))
                before = 1
            elif self._file != name:
                self._file, self._columns = name, self._names(self._first_line(name))
        assert self._columns is not None
        return self._rows(lines, self._columns, before)

    def _rows(self, lines: list[str], columns: tuple[str, ...], before: int) -> list[dict[str, str]]:
        # One reader for all lines is three times as fast as one per line, but it does not report the line of an error.
        try:
            rows = list(csv.reader(lines, delimiter=self._format.delimiter))
        except csv.Error:
            self._refuse(lines, columns, before)
        count = len(columns)
        # An empty line gives an empty row.
        if len(rows) != len(lines) or not {0, count}.issuperset(map(len, rows)) or (lines and _goes_on(lines[-1], self._format.delimiter)):
            self._refuse(lines, columns, before)
        return [dict(zip(columns, row)) for row in rows if row]

    def _refuse(self, lines: list[str], columns: tuple[str, ...], before: int) -> NoReturn:
        """Raises `WrongRow` for the first invalid line. The caller has checked that there is one."""
        delimiter = self._format.delimiter
        for number, line in enumerate(lines, before):
            if _goes_on(line, delimiter):
                raise WrongRow(number, _GOES_ON)
            try:
                row = next(csv.reader((line,), delimiter=delimiter))
            except csv.Error as error:
                raise WrongRow(number, f"{error}: {line:.200}") from error
            if row and len(row) != len(columns):
                raise WrongRow(number, f"the row has {len(row)} fields, but there are {len(columns)} columns: {line:.200}")
        raise AssertionError("a block was refused, but each of its lines is valid")

    def _names(self, line: str) -> tuple[str, ...]:
        if _goes_on(line, self._format.delimiter):
            raise WrongRow(0, _GOES_ON)
        names = tuple(next(csv.reader((line.removeprefix("\ufeff"),), delimiter=self._format.delimiter), ()))
        if len(set(names)) != len(names) or not names:
            raise WrongRow(0, f"the first line does not name columns, or has duplicate names: {line:.200}")
        return names

    def _first_line(self, name: str) -> str:
        if not os.path.isfile(name):
            raise WrongRow(0, f"the first line of {name} names the columns, but the file cannot be opened here: set columns=[...]")
        with open(name, "rb") as file:
            return file.readline(_HEADER_BYTES_MAX).decode(self._format.encoding, self._format.errors).rstrip("\n")

    def offset_of(self, block: bytes, index: int) -> int:
        # The offset is approximate, because the header and empty lines are not records.
        return _line_offset(block, min(index, block.count(b"\n") - 1))

    def error_at(self, block: bytes, error: Exception) -> int:
        if isinstance(error, WrongRow):
            return _line_offset(block, error.line)
        return error.start if isinstance(error, UnicodeDecodeError) else 0


#: The escape byte, the escaped form of the escape byte, and the escaped form of a line end.
_ESCAPE, _ESCAPED_ESCAPE, _ESCAPED_END = b"\x1b", b"\x1b0", b"\x1b1"


def packed(items: list[Any]) -> bytes:
    """Returns items as one line of bytes: pickled, with escaped line ends."""
    return pickled_items(items).replace(_ESCAPE, _ESCAPED_ESCAPE).replace(b"\n", _ESCAPED_END) + b"\n"


class Items:
    """A reader of the output of another stage. A line holds many items."""

    def records(self, block: bytes, name: str, offset: int) -> list[Any]:
        items: list[Any] = []
        for line in block.split(b"\n")[:-1]:
            items += pickle.loads(line.replace(_ESCAPED_END, b"\n").replace(_ESCAPED_ESCAPE, _ESCAPE))
        return items

    def offset_of(self, block: bytes, index: int) -> int:
        return 0

    def error_at(self, block: bytes, error: Exception) -> int:
        return 0


class Parquet:
    """A reader of Parquet files. A block has a line of JSON per stretch of a file; the row groups that begin in the stretch are read."""

    def __init__(self, format: Format) -> None:
        self._columns = None if format.columns is None else list(format.columns)
        self._parquet = needed("pyarrow.parquet", "read_parquet")

    def records(self, block: bytes, name: str, offset: int) -> Iterator[dict[str, Any]]:
        for line in block.splitlines():
            stretch = json.loads(line)
            rows = self._of_stretch(stretch["path"], stretch["offset"], stretch["length"])
            yield from islice(rows, stretch.get("rows"))

    def _of_stretch(self, path: str, begin: int, length: int) -> Iterator[dict[str, Any]]:
        filesystem = None
        if path.startswith("s3://"):
            filesystem, path = needed("pyarrow.fs", "read_parquet").FileSystem.from_uri(path)
        with self._parquet.ParquetFile(path, filesystem=filesystem) as file:
            lacking = set(self._columns or ()) - set(file.schema_arrow.names)
            if lacking:
                raise ValueError(f"{path} has no column {sorted(lacking)[0]!r}; it has {', '.join(file.schema_arrow.names)}")
            wanted = [
                number for number in range(file.num_row_groups) if begin <= _begin_of(file.metadata.row_group(number)) < begin + length
            ]
            if not wanted:
                return
            for batch in file.iter_batches(_ROWS_AT_ONCE, wanted, self._columns):
                yield from batch.to_pylist()

    def offset_of(self, block: bytes, index: int) -> int:
        return 0

    def error_at(self, block: bytes, error: Exception) -> int:
        return 0


def row_groups(path: str) -> list[int]:
    """Returns the offsets of the row groups of a Parquet file, in bytes."""
    metadata = needed("pyarrow.parquet", "read_parquet").read_metadata(path)
    return [_begin_of(metadata.row_group(number)) for number in range(metadata.num_row_groups)]


def _begin_of(group: Any) -> int:
    """Returns the offset of the first page of a row group, in bytes."""
    if group.num_columns == 0:
        return 0
    places: list[int] = []
    for number in range(group.num_columns):
        column = group.column(number)
        places.append(min(place for place in (column.data_page_offset, column.dictionary_page_offset) if place is not None))
    return min(places)
