"""Writers of output formats."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ._needed import needed
from ._readers import packed
from ._sizes import size_of
from ._values import pickled, pickled_items

if TYPE_CHECKING:
    from ._frames import Output
    from ._spec import Spec

#: Output formats of pairs.
OUTPUT_FORMATS = ("tsv", "jsonl", "pickle", "parquet")
#: The most rows of a Parquet file that are written at once.
_ROWS_AT_ONCE = 1 << 16
#: The approximate limit of the rows that are written at once, in bytes.
_BYTES_AT_ONCE = 32 << 20
#: The most bytes of Arrow tables that are buffered until the types of all columns are known.
_WAITING_BYTES_MAX = 64 << 20
#: The number of the most common keys that `key_counts` reports.
_COMMON_KEYS = 32

Items = Sequence[Any]


class Writer(Protocol):
    """A writer of the items of an output part."""

    def write(self, items: Items) -> None: ...

    def close(self) -> None: ...


def writer_of(spec: Spec, output: Output) -> Writer:
    """Returns the writer of a spec."""
    name = spec.output_format
    if name == "parquet":
        return Parquet(output, ("key", "value"))
    if name == "rows":
        return Parquet(output, (), spec.schema)
    if name == "csv":
        return Csv(output, spec.columns, spec.multiline)
    if name == "count":
        return Count(output)
    if name == "key_counts":
        return KeyCounts(output)
    return Plain(output, _TO_BYTES[name])


def _tsv(pairs: Items) -> bytes:
    lines = [f"{key}\t{value}\n" for key, value in pairs]
    text = "".join(lines)
    if text.count("\n") != len(lines) or text.count("\t") != len(lines):
        for pair, line in zip(pairs, lines):
            if line.count("\n") != 1 or "\t" in str(pair[0]):
                raise ValueError(f"{pair!r:.200} contains a line end, or its key a tab, so tsv cannot hold it: use output_format='jsonl'")
    return text.encode()


def _text(items: Items) -> bytes:
    lines = [f"{item}\n" for item in items]
    text = "".join(lines)
    if text.count("\n") != len(lines):
        wrong = next(line for line in lines if line.count("\n") != 1)
        raise ValueError(f"{wrong[:-1]!r:.200} contains a line end, so it would be read as several lines: use write_jsonl")
    return text.encode()


def _pairs_json(pairs: Items) -> bytes:
    return _json([{"key": key, "value": value} for key, value in pairs])


def _json(items: Items) -> bytes:
    dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_no_json).encode
    item: Any = None
    lines = []
    try:
        for item in items:
            lines.append(dumps(item) + "\n")
    except ValueError as error:
        raise ValueError(f"{item!r:.200} cannot be written as JSON: {error}") from error
    return "".join(lines).encode()


def _pickle(items: Items) -> bytes:
    return pickled_items(list(items))


_TO_BYTES: dict[str, Callable[[Items], bytes]] = {
    "tsv": _tsv,
    "jsonl": _pairs_json,
    "pickle": _pickle,
    "text": _text,
    "json": _json,
    "items": lambda items: packed(list(items)),
}


def _no_json(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{value!r:.200} is a {type(value).__qualname__}, which JSON does not support")


class Plain:
    """A writer of items that a function turns into bytes."""

    def __init__(self, output: Output, to_bytes: Callable[[Items], bytes]) -> None:
        self._output, self._to_bytes = output, to_bytes

    def write(self, pairs: Items) -> None:
        if pairs:
            self._output.output(len(pairs), self._to_bytes(pairs))

    def close(self) -> None:
        pass


class Count:
    """A writer of the number of items."""

    def __init__(self, output: Output) -> None:
        self._output, self._count = output, 0

    def write(self, items: Items) -> None:
        self._count += len(items)

    def close(self) -> None:
        self._output.output(1, pickled([self._count]))


class KeyCounts:
    """A writer of the most common keys with their counts, and of the number of all pairs."""

    def __init__(self, output: Output) -> None:
        self._output, self._counts = output, Counter[Any]()

    def write(self, items: Items) -> None:
        self._counts.update([key for key, _ in items])

    def close(self) -> None:
        common = self._counts.most_common(_COMMON_KEYS)
        self._output.output(1, pickled((common, self._counts.total())))


def _csv(rows: Iterable[Sequence[Any]], quoting: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=quoting).writerows(rows)
    return text.getvalue()


class Csv:
    """A writer of dicts, tuples or lists as lines of CSV, with the names of the columns in the first line. A field with a line end is an
    error, unless `is_multiline`."""

    def __init__(self, output: Output, columns: tuple[str, ...] | None, is_multiline: bool) -> None:
        self._output, self._columns, self._is_multiline = output, columns, is_multiline
        self._has_begun = False

    def write(self, items: Items) -> None:
        if not items:
            return
        rows: list[Sequence[Any]] = []
        if not self._has_begun:
            self._has_begun = True
            if self._columns is None:
                if not isinstance(items[0], Mapping):
                    raise ValueError(f"{items[0]!r:.200} has no column names: set columns=[...]")
                self._columns = tuple(items[0])
            rows.append(self._columns)
        rows.extend(map(self._row, items))
        text = _csv(rows, csv.QUOTE_MINIMAL)
        if not self._is_multiline and text.count("\n") != len(rows):
            self._refuse_lines(rows)
        if "\r" in text:
            # Python does not always quote a CR, but reads it as the end of a row.
            text = _csv(rows, csv.QUOTE_ALL)
        self._output.output(len(items), text.encode())

    def _row(self, item: Any) -> Sequence[Any]:
        columns = self._columns
        assert columns is not None
        if isinstance(item, Mapping):
            if len(item) != len(columns) or any(name not in item for name in columns):
                raise ValueError(f"the columns are {list(columns)}, but {item!r:.200} has other columns: set columns=[...]")
            return [item[name] for name in columns]
        if not isinstance(item, (tuple, list)):
            raise TypeError(f"{item!r:.200} is not a row: a CSV row is a dict, a tuple or a list")
        if len(item) != len(columns):
            raise ValueError(f"there are {len(columns)} columns, but {item!r:.200} has {len(item)} fields")
        return item

    def _refuse_lines(self, rows: list[Sequence[Any]]) -> NoReturn:
        assert self._columns is not None
        name, row = next((name, row) for row in rows for name, field in zip(self._columns, row) if "\n" in str(field))
        raise ValueError(
            f"the column {name!r} of the row {list(row)!r:.200} contains a line end, but read_csv reads one row per line: use write_jsonl "
            "or write_parquet, or write_csv(multiline=True) for other programs"
        )

    def close(self) -> None:
        pass


def _row(item: Any) -> Mapping[str, Any]:
    """Returns an item as a row of a Parquet file. Error: `TypeError` for an item that is neither a dict nor a pair."""
    if isinstance(item, Mapping):
        return item
    if isinstance(item, tuple) and len(item) == 2:
        return {"key": item[0], "value": item[1]}
    raise TypeError(f"{item!r:.200} is not a row: a Parquet row is a dict, or a pair of key and value")


class Parquet:
    """A writer of items as rows of a Parquet file. The type of a column is the type of its first value that is not None. The first rows are
    buffered until each column has such a value, or until the buffer exceeds `_WAITING_BYTES_MAX`; a column without a value gets the type
    null."""

    def __init__(self, output: Output, columns: tuple[str, ...], schema: Any = None) -> None:
        self._arrow = needed("pyarrow", "a Parquet file")
        self._parquet = needed("pyarrow.parquet", "a Parquet file")
        self._output = output
        self._schema = schema
        self._columns: tuple[str, ...] = columns if schema is None else tuple(schema.names)
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0
        #: Tables that are buffered because a column has no type yet.
        self._waiting: list[Any] = []
        self._writer: Any = None
        self._ended = 0

    def write(self, items: Items) -> None:
        self._rows.extend(map(_row, items))
        self._bytes += size_of(items)
        if len(self._rows) >= _ROWS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        table = self._table()
        self._ended += len(self._rows)
        self._rows, self._bytes = [], 0
        if self._writer is not None:
            self._write(table)
            return
        self._waiting.append(table)
        schema = merged_schema(self._arrow, [each.schema for each in self._waiting])
        is_known = self._schema is not None or not any(_has_null(self._arrow, field.type) for field in schema)
        if is_known or sum(each.nbytes for each in self._waiting) > _WAITING_BYTES_MAX:
            self._begin(schema)

    def _table(self) -> Any:
        """Returns the rows as a table."""
        if not self._columns and self._rows:
            self._columns = tuple(self._rows[0])
        names = set(self._columns)
        wrong = next((row for row in self._rows if row.keys() != names), None)
        if wrong is not None:
            raise ValueError(f"the columns are {list(self._columns)}, but {wrong!r:.200} has other columns: all rows need the same columns")
        columns = {name: [row[name] for row in self._rows] for name in self._columns}
        if self._schema is None:
            for name, column in columns.items():
                _check_column(name, column)
        return self._arrow.table(columns, schema=self._schema)

    def _begin(self, schema: Any) -> None:
        """Opens the file and writes the buffered tables."""
        self._writer = self._parquet.ParquetWriter(self._arrow.PythonFile(_Sink(self), mode="w"), schema)
        waiting, self._waiting = self._waiting, []
        for table in waiting:
            self._write(table)

    def _write(self, table: Any) -> None:
        # `cast` is safe: it raises an error if a value would change.
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        if self._rows or (self._writer is None and not self._waiting):
            self._flush()
        if self._writer is None:
            self._begin(merged_schema(self._arrow, [table.schema for table in self._waiting]))
        self._writer.close()

    def put(self, data: bytes) -> None:
        ended, self._ended = self._ended, 0
        self._output.output(ended, data)


def _check_column(name: str, column: list[Any]) -> None:
    """Raises `TypeError` for values of several types, which Arrow would silently convert."""
    kinds = set(map(type, column)) - {type(None)}
    if len(kinds) > 1 and kinds != {int, float}:
        named = ", ".join(sorted(kind.__qualname__ for kind in kinds))
        raise TypeError(f"the column {name!r} has values of several types ({named}), but a Parquet column has one type")
    if datetime in kinds and len({value.tzinfo is None for value in column if value is not None}) > 1:
        raise TypeError(f"the column {name!r} has times with and without a time zone, but a Parquet column has one type")


def merged_schema(arrow: Any, schemas: list[Any]) -> Any:
    """Returns the merged schema of tables with the same columns: each column, and each nested field, gets its first type that is not
    null."""
    merged = list(schemas[0])
    for schema in schemas[1:]:
        merged = [_merged(arrow, one, other) for one, other in zip(merged, schema)]
    return arrow.schema(merged)


def _merged(arrow: Any, one: Any, other: Any) -> Any:
    """Returns the field `one`, with the type of `other` wherever its own type is null."""
    types = arrow.types
    if types.is_null(one.type):
        return one.with_type(other.type)
    if types.is_list(one.type) and types.is_list(other.type):
        return one.with_type(arrow.list_(_merged(arrow, one.type.value_field, other.type.value_field)))
    if types.is_struct(one.type) and types.is_struct(other.type):
        named = {field.name: field for field in other.type}
        return one.with_type(arrow.struct([_merged(arrow, field, named.get(field.name, field)) for field in one.type]))
    return one


def _has_null(arrow: Any, kind: Any) -> bool:
    """Returns whether a type, or a nested type, is null, because no value has determined it yet."""
    return bool(arrow.types.is_null(kind)) or any(_has_null(arrow, kind.field(number).type) for number in range(kind.num_fields))


class _Sink:
    """A file object for pyarrow that passes its bytes to the engine."""

    closed = False

    def __init__(self, parquet: Parquet) -> None:
        self._parquet = parquet
        self._position = 0

    def write(self, data: Any) -> int:
        written = bytes(data)
        self._parquet.put(written)
        self._position += len(written)
        return len(written)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
