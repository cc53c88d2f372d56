"""The rows of one key on one side of a join, spilled to a file if they exceed the memory."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import IO, Any

from ._sizes import Batches, size_of
from ._values import pickled

#: The approximate limit of the rows in memory, in bytes.
_BYTES_MAX = 64 << 20
#: This many rows stay in memory without being measured.
_FEW = 16
#: The file is read once per this many rows of the other side.
_BESIDE = 1 << 14


class Rows:
    """Rows that can be read several times."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._file: IO[bytes] | None = None
        left = iter(rows)
        # Most keys have few rows. Measuring them would take longer than all other work on them.
        self._kept = list(islice(left, _FEW))
        if len(self._kept) == _FEW:
            self._take(left)

    def _take(self, left: Iterator[Any]) -> None:
        """Adds the remaining rows, and moves rows to a file when they exceed the memory."""
        batch, self._kept = self._kept, []
        size, batches = 0, Batches()
        while batch:
            batches.saw(batch)
            self._kept.extend(batch)
            size += size_of(batch)
            if size > _BYTES_MAX:
                self._store()
                size = 0
            batch = list(islice(left, batches.items))

    def _store(self) -> None:
        if self._file is None:
            # The directory of the task, which is deleted with the task.
            self._file = tempfile.TemporaryFile(dir=".")  # noqa: SIM115
        self._file.write(pickled(self._kept))
        self._kept = []

    def __iter__(self) -> Iterator[Any]:
        for rows in self._parts():
            yield from rows

    def _parts(self) -> Iterator[list[Any]]:
        if self._file is not None:
            end = self._file.seek(0, 2)
            at = 0
            while at < end:
                self._file.seek(at)
                yield pickle.load(self._file)
                at = self._file.tell()
        yield self._kept

    def beside(self, others: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Returns pairs of each row with each of the other rows."""
        if self._file is None:
            if len(self._kept) == 1:
                return zip(repeat(self._kept[0]), others)
            return ((row, other) for other in others for row in self._kept)
        return self._beside(others)

    def _beside(self, others: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        left = iter(others)
        while some := list(islice(left, _BESIDE)):
            for rows in self._parts():
                yield from ((row, other) for other in some for row in rows)
