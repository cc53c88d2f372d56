"""Inputs of the examples: text files that follow from a seed, at any size, made at tens of megabytes a second."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path

#: The most text in a file. A file is a map task where the engine does not split it.
FILE_BYTES_MAX = 32_000_000
#: The least number of files at any size: skew between map tasks needs several.
FILES_MIN = 12

#: The number of lines that are made at once.
BLOCK_LINES = 4096

#: (random, file index, number of the first line in the file) -> `BLOCK_LINES` lines, without their ends.
Block = Callable[[random.Random, int, int], Sequence[str]]


def file_count(size_bytes: int) -> int:
    """Returns the number of files for so much text."""
    return max(FILES_MIN, -(-size_bytes // FILE_BYTES_MAX))


def write_files(directory: Path, kind: str, count: int, size_bytes: int, seed: int, block: Block, compress: bool) -> None:
    """Writes `count` files below `directory/kind` that hold `size_bytes` of ASCII lines together, before compression. The bytes follow from
    the other arguments, wherever the directory is.
    """
    directory /= kind
    directory.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        rng = random.Random(f"{seed}/{kind}/{index}")
        goal_bytes = size_bytes * (index + 1) // count - size_bytes * index // count
        path = directory / f"{index:05d}.txt{'.gz' if compress else ''}"
        with path.open("wb") as file:
            if compress:
                # No name and no time in it, so that the same lines are the same file.
                with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
                    _write_lines(packed.write, rng, index, goal_bytes, block)
            else:
                _write_lines(file.write, rng, index, goal_bytes, block)


def _write_lines(write: Callable[[bytes], int], rng: random.Random, index: int, goal_bytes: int, block: Block) -> None:
    written_bytes = first = 0
    while written_bytes < goal_bytes:
        data = ("\n".join(block(rng, index, first)) + "\n").encode("ascii")
        rest_bytes = goal_bytes - written_bytes
        if len(data) > rest_bytes:
            # Whole lines only, and at least one.
            data = data[: max(data.rfind(b"\n", 0, rest_bytes), data.find(b"\n")) + 1]
            rest_bytes = 0
        write(data)
        written_bytes += len(data)
        first += BLOCK_LINES
        if rest_bytes == 0:
            break


def urn(items: Sequence[str], weights: Sequence[float]) -> list[str]:
    """Returns each item as often as its weight says, and at least once: even draws from this list are several times as fast as draws by
    weight."""
    scale = 4 * len(items) / sum(weights)
    return [item for item, weight in zip(items, weights) for _ in range(max(1, round(weight * scale)))]


def zipf_urn(items: Sequence[str]) -> list[str]:
    """Returns an urn in which the n-th item has the weight 1 / n."""
    return urn(items, [1 / rank for rank in range(1, len(items) + 1)])


def rows(*columns: Sequence[str]) -> list[str]:
    """Returns lines of columns with tabs between."""
    return list(map("\t".join, zip(*columns)))
