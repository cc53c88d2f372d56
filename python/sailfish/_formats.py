"""How records are read from the input, and how results are written."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ._sizes import size_of
from ._values import pickled

if TYPE_CHECKING:
    from ._frames import Output
    from ._spec import Spec

#: What may be read, and what a record is then.
INPUT_FORMATS = {
    "text": "a line as str, without its end",
    "bytes": "a line as bytes, without its end",
    "jsonl": "what the JSON of a line says",
}
#: What may be written. `fixed:N` is read as well.
OUTPUT_FORMATS = ("tsv", "jsonl", "pickle", "parquet")
#: Rows of a Parquet file that are written together.
_ROWS_AT_ONCE = 1 << 16
#: And about how many bytes.
_BYTES_AT_ONCE = 32 << 20

Pairs = Sequence[tuple[Any, Any]]


class Reader(Protocol):
    """Parts blocks into records."""

    def records(self, block: bytes) -> list[Any]: ...

    def offset_of(self, block: bytes, index: int) -> int:
        """Where a record begins in its block."""

    def error_at(self, block: bytes, error: Exception) -> int:
        """Where in a block it was that could not be read."""


def reader_of(spec: Spec, layout: dict[str, Any]) -> Reader:
    """The reader of a job. `layout`: how the engine parts records."""
    if "fixed" in layout:
        return Fixed(layout["fixed"]["record_bytes"])
    if spec.input_format == "text":
        return Lines(lambda lines: _decoded(lines, spec.encoding, spec.errors))
    if spec.input_format == "jsonl":
        return Lines(lambda lines: [json.loads(line) for line in lines.split(b"\n")[:-1] if line.strip()], _json_offset)
    return Lines(lambda lines: lines.split(b"\n")[:-1])


def _decoded(block: bytes, encoding: str, errors: str) -> list[str]:
    lines = block.decode(encoding, errors).split("\n")
    lines.pop()
    return lines


def _json_offset(block: bytes, index: int) -> int:
    """Empty lines are no records."""
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
    """Reads lines, which all have their end."""

    def __init__(self, part: Callable[[bytes], list[Any]], offset_of: Callable[[bytes, int], int] = _line_offset) -> None:
        self._part, self._offset_of = part, offset_of

    def records(self, block: bytes) -> list[Any]:
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
    """Reads records of one length."""

    def __init__(self, record_bytes: int) -> None:
        self._record_bytes = record_bytes

    def records(self, block: bytes) -> list[bytes]:
        length = self._record_bytes
        return [block[start : start + length] for start in range(0, len(block), length)]

    def offset_of(self, block: bytes, index: int) -> int:
        return index * self._record_bytes

    def error_at(self, block: bytes, error: Exception) -> int:
        return 0


class Writer(Protocol):
    """Writes pairs into a part."""

    def write(self, pairs: Pairs) -> None: ...

    def close(self) -> None: ...


def writer_of(spec: Spec, output: Output) -> Writer:
    """The writer of a job."""
    if spec.output_format == "tsv":
        return Plain(output, _tsv)
    if spec.output_format == "jsonl":
        return Plain(output, _jsonl)
    if spec.output_format == "pickle":
        return Plain(output, lambda pairs: pickled(list(pairs)))
    return Parquet(output)


def _tsv(pairs: Pairs) -> bytes:
    return "".join([f"{key}\t{value}\n" for key, value in pairs]).encode()


def _jsonl(pairs: Pairs) -> bytes:
    dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_no_json).encode
    return "".join([dumps({"key": key, "value": value}) + "\n" for key, value in pairs]).encode()


def _no_json(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{value!r:.200} is a {type(value).__qualname__}, which JSON does not know; output_format='pickle' takes it")


class Plain:
    """Writes pairs by a function that makes bytes of them."""

    def __init__(self, output: Output, to_bytes: Callable[[Pairs], bytes]) -> None:
        self._output, self._to_bytes = output, to_bytes

    def write(self, pairs: Pairs) -> None:
        if pairs:
            self._output.output(len(pairs), self._to_bytes(pairs))

    def close(self) -> None:
        pass


def needed(module: str, what: str) -> Any:
    """A library that is not always there. Error: says what installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ModuleNotFoundError(f"{what} needs {package}: pip install {package}", name=package) from error


class Parquet:
    """Writes pairs as the columns `key` and `value` of a Parquet file."""

    def __init__(self, output: Output) -> None:
        self._arrow = needed("pyarrow", "output_format='parquet'")
        self._parquet = needed("pyarrow.parquet", "output_format='parquet'")
        self._output = output
        self._rows: list[tuple[Any, Any]] = []
        self._bytes = 0
        self._writer: Any = None
        self._ended = 0

    def write(self, pairs: Pairs) -> None:
        self._rows.extend(pairs)
        self._bytes += size_of(pairs)
        if len(self._rows) >= _ROWS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        columns = {"key": [key for key, _ in self._rows], "value": [value for _, value in self._rows]}
        for name, column in columns.items():
            _check_column(name, column)
        table = self._arrow.table(columns)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._arrow.PythonFile(_Sink(self), mode="w"), table.schema)
        else:
            # Safely: what would lose anything is an error.
            table = table.cast(self._writer.schema)
        self._ended += len(self._rows)
        self._rows, self._bytes = [], 0
        self._writer.write_table(table)

    def close(self) -> None:
        if self._rows or self._writer is None:
            self._flush()
        self._writer.close()

    def put(self, data: bytes) -> None:
        ended, self._ended = self._ended, 0
        self._output.output(ended, data)


def _check_column(name: str, column: list[Any]) -> None:
    """Refuses what Arrow would make something else of, without a word."""
    kinds = set(map(type, column)) - {type(None)}
    if len(kinds) > 1 and kinds != {int, float}:
        named = ", ".join(sorted(kind.__qualname__ for kind in kinds))
        raise TypeError(f"the column {name!r} would have values of several types ({named}), and a column of Parquet has one")
    if datetime in kinds and len({value.tzinfo is None for value in column if value is not None}) > 1:
        raise TypeError(f"the column {name!r} would have times with and without a time zone, and a column of Parquet has one kind")


class _Sink:
    """A file for pyarrow: what it writes goes on to the engine."""

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
