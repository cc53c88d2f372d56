"""pool_jobs.py JOB INPUT OUTPUT: runs a job by a `multiprocessing.Pool` of two processes, with a dictionary per file, which are merged."""

from __future__ import annotations

import gzip
import multiprocessing
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import command
import mean_by_key
import word_count


def lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file, without their line ends."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            yield line.rstrip("\n")


def words_of_file(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in lines(path):
        counts.update(word_count.words(line))
    return counts


def merged_words(parts: Iterable[Counter[str]]) -> Iterator[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part)
    yield from counts.items()


def sums_of_file(path: Path) -> dict[str, mean_by_key.Sum]:
    sums: dict[str, mean_by_key.Sum] = {}
    for key, value in map(mean_by_key.measurement, lines(path)):
        sums[key] = mean_by_key.with_value(sums.get(key, (0, 0)), value)
    return sums


def values_of_file(path: Path) -> dict[str, list[int]]:
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for key, value in map(mean_by_key.measurement, lines(path)):
        groups[key].append(value)
    return groups


def merged_values(parts: Iterable[dict[str, list[int]]]) -> Iterator[tuple[str, float]]:
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for part in parts:
        for key, values in part.items():
            groups[key] += values
    for key, values in groups.items():
        yield key, mean_by_key.mean(values)


def merged_sums(parts: Iterable[dict[str, mean_by_key.Sum]]) -> Iterator[tuple[str, float]]:
    sums: dict[str, mean_by_key.Sum] = {}
    for part in parts:
        for key, sum_ in part.items():
            sums[key] = mean_by_key.added(sums.get(key, (0, 0)), sum_)
    for key, sum_ in sums.items():
        yield key, mean_by_key.divided(sum_)


def main(job: str, inputs: str, output: str) -> None:
    paths = sorted(Path(inputs).iterdir())
    Path(output).mkdir()
    with multiprocessing.Pool(2) as pool, Path(output, "part-00000").open("w") as file:
        pairs: Iterable[tuple[str, object]]
        if job == "word_frequencies":
            pairs = merged_words(pool.imap_unordered(words_of_file, paths))
        elif job == "mean_by_key":
            pairs = merged_values(pool.imap_unordered(values_of_file, paths))
        elif job == "mean_folded":
            pairs = merged_sums(pool.imap_unordered(sums_of_file, paths))
        else:
            raise SystemExit(f"pool_jobs.py: there is no job {job}")
        for pair in pairs:
            print(command.line(pair), file=file)


if __name__ == "__main__":
    main(*sys.argv[1:])
