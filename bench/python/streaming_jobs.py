"""streaming_jobs.py map|reduce JOB: the mapper or the reducer of a job for Hadoop Streaming. Reducers that add up are also combiners."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import command
import log_count
import log_read
import word_count

Lines = Iterable[str]


def key_of(line: str) -> str:
    return line.partition("\t")[0]


def map_words(lines: Lines) -> Iterator[str]:
    for line in lines:
        for word in word_count.words(line):
            yield command.line(word_count.one(word))


def map_requests(lines: Lines) -> Iterator[str]:
    for line in lines:
        yield command.line(log_count.request(line))


def reduce_counts(lines: Lines) -> Iterator[str]:
    for key, group in groupby(lines, key_of):
        yield command.line((key, sum(int(line.partition("\t")[2]) for line in group)))


def map_reads(lines: Lines) -> Iterator[str]:
    for line in lines:
        data_set, (size, offset, reader) = log_read.read(line)
        yield f"{data_set}\t{size}\t{offset}\t{reader}"


def reads(group: Lines) -> Iterator[log_read.Read]:
    for line in group:
        _, size, offset, reader = line.split("\t")
        yield int(size), int(offset), reader


def reduce_reads(lines: Lines) -> Iterator[str]:
    for data_set, group in groupby(lines, key_of):
        yield command.line(log_read.summary(data_set, reads(group)))


JOBS: dict[tuple[str, str], Callable[[Lines], Iterator[str]]] = {
    ("map", "word_count"): map_words,
    ("reduce", "word_count"): reduce_counts,
    ("map", "log_count"): map_requests,
    ("reduce", "log_count"): reduce_counts,
    ("map", "log_read"): map_reads,
    ("reduce", "log_read"): reduce_reads,
}
#: Jobs whose reducer may also be the combiner.
COMBINING = ("word_count", "log_count")


def main(side: str, job: str) -> None:
    for line in JOBS[side, job](line.rstrip("\n") for line in sys.stdin):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
