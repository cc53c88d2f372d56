"""dask_jobs.py JOB INPUT OUTPUT: runs a job by Dask's bags with two processes. Writes lines `key TAB value` below OUTPUT.

Run it with the interpreter of bench/peers/setup-dask.sh.
"""

from __future__ import annotations

import operator
import sys
from pathlib import Path
from typing import Any

import command
import dask  # type: ignore[import-not-found,unused-ignore]
import dask.bag  # type: ignore[import-not-found,unused-ignore]
import mean_by_key
import word_count


def lines(inputs: Path) -> Any:
    """Returns the lines of the inputs, without their line ends, which Dask keeps. Each file is a partition."""
    return dask.bag.read_text([str(path) for path in sorted(inputs.iterdir())]).map(str.rstrip, "\n")


def word_counts(inputs: Path) -> Any:
    pairs = lines(inputs).map(word_count.words).flatten().map(word_count.one)
    return pairs.foldby(key_of, with_count, 0, operator.add, 0)


def with_count(so_far: int, pair: tuple[str, int]) -> int:
    return so_far + pair[1]


def frequencies(inputs: Path) -> Any:
    return lines(inputs).map(word_count.words).flatten().frequencies()


def grouped_means(inputs: Path) -> Any:
    return lines(inputs).map(mean_by_key.measurement).groupby(key_of).map(mean_of_group)


def mean_of_group(group: tuple[str, list[tuple[str, int]]]) -> tuple[str, float]:
    return group[0], mean_by_key.mean(value for _, value in group[1])


def key_of(pair: tuple[str, int]) -> str:
    return pair[0]


def with_pair(so_far: mean_by_key.Sum, pair: tuple[str, int]) -> mean_by_key.Sum:
    return mean_by_key.with_value(so_far, pair[1])


def mean_of(item: tuple[str, mean_by_key.Sum]) -> tuple[str, float]:
    return item[0], mean_by_key.divided(item[1])


def means(inputs: Path) -> Any:
    # The documentation of Dask advises `foldby` instead of `groupby`, which writes all items to disk.
    pairs = lines(inputs).map(mean_by_key.measurement)
    return pairs.foldby(key_of, with_pair, (0, 0), mean_by_key.added, (0, 0)).map(mean_of)


JOBS = {"word_count": word_counts, "word_frequencies": frequencies, "mean_by_key": grouped_means, "mean_folded": means}


def main(job: str, inputs: str, output: str) -> None:
    with dask.config.set(scheduler="processes", num_workers=2):
        JOBS[job](Path(inputs)).map(command.line).to_textfiles(f"{output}/part-*")


if __name__ == "__main__":
    main(*sys.argv[1:])
