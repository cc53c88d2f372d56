"""The result of a job."""

from __future__ import annotations

import csv
import json
import pickle
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import _html
from ._needed import needed
from ._spec import PARQUET

#: The reader of each output format.
_READERS = {
    "text": "read_text",
    "tsv": "read_text",
    "json": "read_jsonl",
    "jsonl": "read_jsonl",
    "csv": "read_csv",
    "rows": "read_parquet",
    "parquet": "read_parquet",
}


class Result:
    """The result of a job that succeeded. Iterating gives the pairs: as they were from ``pickle``, as Arrow has them from ``parquet``, as
    JSON has them from ``jsonl``, and as texts from ``tsv``; of a dataflow its items in the same way."""

    def __init__(self, output: str, output_format: str, reports: list[dict[str, Any]], kept: str | None) -> None:
        self._output = output
        self.output_format = output_format
        #: The report of each stage, as `sailfish run --json` prints it: plan, bytes, times, proof.
        self.reports = reports
        if kept is not None:
            weakref.finalize(self, shutil.rmtree, kept, ignore_errors=True)

    @property
    def location(self) -> str:
        """The absolute path of the output directory, or its URL."""
        return self._output

    @property
    def output(self) -> Path:
        """The directory with the parts. Error: `NotImplementedError` for an output on an object store, which has only a `location`."""
        if "://" in self._output:
            raise NotImplementedError(f"the output is not in a file system, but at {self._output}, its location: {self._read_with()}")
        return Path(self._output)

    def _read_with(self) -> str:
        reader = _READERS.get(self.output_format)
        return f"read it with sailfish.{reader}({self._output!r})" if reader else f"nothing here reads {self.output_format} from there"

    @property
    def report(self) -> dict[str, Any]:
        """The report of the stage that wrote the output."""
        return self.reports[-1]

    def __repr__(self) -> str:
        return f"<sailfish.Result of {_html.parts(len(self.report['parts']))} in {self._output!r}>"

    def _repr_html_(self) -> str:
        return _html.of_result(self._output, self.reports)

    @property
    def parts(self) -> list[Path]:
        """The files of the output, in the order of the keys within them. Errors: `FileNotFoundError` where the output is no longer whole;
        those of `output`."""
        if not self.output.joinpath("_SUCCESS").exists():
            raise FileNotFoundError(f"{self.output} is not there, or not whole: it has no _SUCCESS")
        return sorted(self.output.glob("part-*"))

    def counter(self, name: str, group: str = "user") -> int:
        """Returns the sum that the functions of the job counted with `sailfish.counter`."""
        return sum(report["counters"].get(f"{group},{name}", 0) for report in self.reports)

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts:
            yield from read_part(part, self.output_format)


def read_part(part: Path, output_format: str) -> Iterator[Any]:
    """Yields the pairs, or items, of a part."""
    if output_format in PARQUET:
        table = needed("pyarrow.parquet", "a part in the format parquet").read_table(part)
        rows = table.to_pylist()
        yield from rows if output_format == "rows" else ((row["key"], row["value"]) for row in rows)
        return
    if output_format == "csv":
        csv.field_size_limit((1 << 31) - 1)
        with part.open(newline="", encoding="utf-8") as lines:
            yield from csv.DictReader(lines)
        return
    with part.open("rb") as file:
        if output_format in ("pickle", "count"):
            while file.peek(1):
                yield from pickle.load(file)
            return
        for line in file:
            yield _of_line(line.decode().removesuffix("\n"), output_format)


def _of_line(text: str, output_format: str) -> Any:
    if output_format == "text":
        return text
    if output_format == "json":
        return json.loads(text)
    if output_format == "jsonl":
        pair = json.loads(text)
        return pair["key"], pair["value"]
    key, _, value = text.partition("\t")
    return key, value
