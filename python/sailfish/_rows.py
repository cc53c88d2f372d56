"""Rows of one key on one side of a join: in memory, and in a file where there are many."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import IO, Any

from ._sizes import Batches, size_of
from ._values import pickled

#: About how many bytes of rows stay in memory.
_BYTES_MAX = 64 << 20
#: The number of first rows that stay in memory unmeasured.
_FEW = 16
#: The number of rows of the other side for which the file is read once.
_BESIDE = 1 << 14


class Rows:
    """Rows that are read more than once."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._file: IO[bytes] | None = None
        left = iter(rows)
        # Most keys have a few. To look how large these are would take longer than all else that is done with them.
        self._kept = list(islice(left, _FEW))
        if len(self._kept) == _FEW:
            self._take(left)

    def _take(self, left: Iterator[Any]) -> None:
        """Takes the rows behind the first few, and moves rows into a file when they exceed the memory."""
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
            # In the directory of the task, which goes with it.
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
        """Returns each row beside each of the others."""
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
