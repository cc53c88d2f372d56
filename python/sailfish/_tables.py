"""Tables of other libraries, recognized by name: nothing imports the libraries."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ._needed import needed
from ._result import Result

#: Classes whose iteration gives no rows, by package and name, with the call that does.
_TABLES = {
    ("pandas", "DataFrame"): 'from_iterable(df.to_dict("records")) has its rows',
    ("pandas", "Series"): "from_iterable(series.tolist()) has its values",
    ("polars", "DataFrame"): "from_iterable(df.to_dicts()) has its rows",
    ("polars", "LazyFrame"): "from_iterable(df.collect().to_dicts()) has its rows",
    ("polars", "Series"): "from_iterable(series.to_list()) has its values",
    ("pyarrow", "Table"): "from_iterable(table.to_pylist()) has its rows",
    ("pyarrow", "RecordBatch"): "from_iterable(batch.to_pylist()) has its rows",
    ("pyarrow", "RecordBatchReader"): "from_iterable(reader.read_all().to_pylist()) has its rows",
    ("pyarrow", "ChunkedArray"): "from_iterable(array.to_pylist()) has its values",
    ("pyarrow", "Array"): "from_iterable(array.to_pylist()) has its values",
}
#: The most parts whose types are compared.
_PARTS_MAX = 1000


def refuse_table(items: object) -> None:
    """Refuses a table: items of columns, or of values that only their library knows, are never meant. Error: `TypeError`."""
    for kind in type(items).__mro__:
        package = kind.__module__.partition(".")[0]
        hint = _TABLES.get((package, kind.__name__))
        if hint is not None:
            raise TypeError(f"from_iterable takes items, and not a {package}.{kind.__name__}: {hint}")


def warn_of_types(result: Result, remedy: str) -> None:
    """Warns where programs that read the directory as one table, with the types of the first part, fail or lose rows. A task that writes a
    part does not know the others: a column with nothing but None has the type null."""
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
                    f"take the types of the first part for all fail or lose rows; {remedy}",
                    stacklevel=3,
                )
                return


def _types(parquet: Any, part: Path) -> dict[str, str]:
    """Returns the names and types of the columns of a part."""
    return {field.name: str(field.type) for field in parquet.read_schema(part)}
