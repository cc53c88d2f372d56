"""What a job gives back."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._formats import needed


class Result:
    """The end of a job that went well. Iterating gives the pairs: as they were from ``pickle``, as Arrow has them from ``parquet``,
    as JSON has them from ``jsonl``, and as texts from ``tsv``."""

    def __init__(self, output: str, output_format: str, report: dict[str, Any], kept: tempfile.TemporaryDirectory[str] | None) -> None:
        #: The directory with the parts.
        self.output = Path(output)
        self.output_format = output_format
        #: As of `sailfish run --json`: plan, bytes, times, proof.
        self.report = report
        self._kept = kept

    def __repr__(self) -> str:
        return f"<sailfish.Result of {len(self.parts)} parts in {str(self.output)!r}>"

    @property
    def parts(self) -> list[Path]:
        """The files of the output, in the order of the keys within them."""
        return sorted(self.output.glob("part-*"))

    def counter(self, name: str, group: str = "user") -> int:
        """What the functions of the job counted with `sailfish.counter`."""
        counted: int = self.report["counters"].get(f"{group},{name}", 0)
        return counted

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for part in self.parts:
            yield from read_part(part, self.output_format)


def read_part(part: Path, output_format: str) -> Iterator[tuple[Any, Any]]:
    """The pairs of a part."""
    if output_format == "parquet":
        table = needed("pyarrow.parquet", "a part in the format parquet").read_table(part)
        yield from zip(table.column("key").to_pylist(), table.column("value").to_pylist())
        return
    with part.open("rb") as file:
        if output_format == "pickle":
            while file.peek(1):
                yield from pickle.load(file)
            return
        for line in file:
            text = line.decode().removesuffix("\n")
            if output_format == "jsonl":
                pair = json.loads(text)
                yield pair["key"], pair["value"]
            else:
                key, _, value = text.partition("\t")
                yield key, value
