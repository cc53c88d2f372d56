"""Checks for tables of other libraries. Tables are recognized by the names of their classes, without importing the libraries."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ._needed import needed
from ._result import Result

#: Classes whose iteration does not yield rows or plain values, by package and name, with the call to use instead.
_TABLES = {
    ("pandas", "DataFrame"): 'from_iterable(df.to_dict("records"))',
    ("pandas", "Series"): "from_iterable(series.tolist())",
    ("polars", "DataFrame"): "from_iterable(df.to_dicts())",
    ("polars", "LazyFrame"): "from_iterable(df.collect().to_dicts())",
    ("polars", "Series"): "from_iterable(series.to_list())",
    ("pyarrow", "Table"): "from_iterable(table.to_pylist())",
    ("pyarrow", "RecordBatch"): "from_iterable(batch.to_pylist())",
    ("pyarrow", "RecordBatchReader"): "from_iterable(reader.read_all().to_pylist())",
    ("pyarrow", "ChunkedArray"): "from_iterable(array.to_pylist())",
    ("pyarrow", "Array"): "from_iterable(array.to_pylist())",
}
#: The types of at most this many parts are compared.
_PARTS_MAX = 1000


def refuse_table(items: object) -> None:
    """Raises `TypeError` for a table, because its iteration yields columns, or values of types that only its library knows."""
    for kind in type(items).__mro__:
        package = kind.__module__.partition(".")[0]
        hint = _TABLES.get((package, kind.__name__))
        if hint is not None:
            raise TypeError(f"from_iterable takes items, not a {package}.{kind.__name__}: use {hint}")


def warn_of_types(result: Result, remedy: str) -> None:
    """Warns about parts with different types, because programs that apply the types of the first part to the whole directory fail or lose
    rows. Tasks write their parts independently, and a column of None alone has the type null."""
    if "://" in result.location:
        return
    parquet = needed("pyarrow.parquet", "a Parquet file")
    parts = result.parts[:_PARTS_MAX]
    first = _types(parquet, parts[0]) if parts else {}
    for part in parts[1:]:
        for name, kind in _types(parquet, part).items():
            before = first.get(name, "null")
            if kind not in (before, "null"):
                warnings.warn(
                    f"the column {name!r} has {before} in {parts[0].name} and {kind} in {part.name} of {result.location}: programs that "
                    f"apply the types of the first part to all parts fail or lose rows; {remedy}",
                    stacklevel=3,
                )
                return


def _types(parquet: Any, part: Path) -> dict[str, str]:
    """Returns the names and types of the columns of a part."""
    return {field.name: str(field.type) for field in parquet.read_schema(part)}
