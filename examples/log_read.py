"""LogRead: the readers and the bytes read of each data set (GROUP BY).

Of the Sailfish paper's jobs (Table 3) this is the one with skew in reduce input: of 512 I-files, those from 0 to 200 hold 4.5 GB each and
the others 0.5 GB (Figure 13), so that the former get three reduce tasks each and the latter one (Figure 14). Here two data sets in five
are read nine times as much as the others. There are few data sets, since keys are hashed to I-files: many keys in each I-file would
make all of them equally large. A reduce task gets whole keys, so an I-file is split between them, and never within one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

Read = tuple[int, int, str]

DATA_SETS = 40
#: Busy data sets are the same share as the I-files from 0 to 200 of 512.
BUSY_DATA_SETS = 16
BUSY_WEIGHT = 9


def read(line: str) -> tuple[str, Read]:
    """Returns ``(data set, (bytes, offset, reader))``."""
    _, reader, data_set, offset, size = line.split("\t")
    return data_set, (int(size), int(offset), reader)


def summary(data_set: str, reads: Iterable[Read]) -> tuple[str, tuple[int, int, Read]]:
    """Returns ``(data set, (reads, bytes, the largest read))``."""
    count = total_bytes = 0
    largest: Read = (-1, -1, "")
    for each in reads:
        count += 1
        total_bytes += each[0]
        largest = max(largest, each)
    return data_set, (count, total_bytes, largest)


def flow(inputs: Path) -> sf.Dataset[tuple[str, tuple[int, int, Read]]]:
    """Returns a dataset of ``(data set, summary)``."""
    import sailfish as sf

    return sf.read_text(inputs).map(read).group_by().map(summary)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of time, reader, data set, offset, bytes."""
    names = [f"data-set-{number:02d}" for number in range(DATA_SETS)]
    data_sets = generated.urn(names, [BUSY_WEIGHT if number < BUSY_DATA_SETS else 1 for number in range(DATA_SETS)])
    readers = [f"reader-{number:05d}" for number in range(20_000)]
    offsets = [str(number * 4096) for number in range(200_000)]
    sizes = [str(number) for number in range(512, 262_144, 512)]

    def block(rng: random.Random, index: int, first: int) -> list[str]:
        count = generated.BLOCK_LINES
        times = map(str, range(1_700_000_000 + first, 1_700_000_000 + first + count))
        columns = (rng.choices(column, k=count) for column in (readers, data_sets, offsets, sizes))
        return generated.rows(list(times), *columns)

    generated.write_files(directory, "", generated.file_count(size_bytes), size_bytes, seed, block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
