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
from ._spec import PARQUET, STORED_PREFIX

#: The function of this package that reads each output format.
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
    """The result of a successful job. Iterating yields the pairs of a `MapReduce`, or the items of a dataflow: the original objects from
    ``pickle``, Arrow values from ``parquet``, JSON values from ``jsonl``, and texts from ``tsv`` and CSV."""

    def __init__(self, output: str, output_format: str, reports: list[dict[str, Any]], kept: str | None) -> None:
        # A stored file has a URL.
        self._output = f"sailfish://{output.removeprefix(STORED_PREFIX)}" if output.startswith(STORED_PREFIX) else output
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
            raise NotImplementedError(f"the output is at {self._output}, which is not in a file system: {self._read_with()}")
        return Path(self._output)

    def _read_with(self) -> str:
        reader = _READERS.get(self.output_format)
        if self.output_format in PARQUET and self._output.startswith("sailfish://"):
            return f"read it with pandas.read_parquet({self._output!r})"
        return f"read it with sailfish.{reader}({self._output!r})" if reader else f"no reader supports the format {self.output_format}"

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
        """The files of the output, in the order of their keys. Errors: `FileNotFoundError` if the output is missing or incomplete; the
        errors of `output`."""
        if not self.output.joinpath("_SUCCESS").exists():
            raise FileNotFoundError(f"the output {self.output} is missing or incomplete: it has no _SUCCESS")
        return sorted(self.output.glob("part-*"))

    def counter(self, name: str, group: str = "user") -> int:
        """Returns the value of a counter that functions of the job added to with `sailfish.counter`; 0 if they did not."""
        return sum(report["counters"].get(f"{group},{name}", 0) for report in self.reports)

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts:
            yield from read_part(part, self.output_format)


def read_part(part: Path, output_format: str) -> Iterator[Any]:
    """Yields the pairs or items of a part."""
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
