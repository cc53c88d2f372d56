"""Group-by: the mean of the values of each key. `flow` groups all values of a key; `flow_folded` combines them before the shuffle."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

KEYS = 100_000

#: (sum, count). The values are integers, so that the mean does not depend on the order of additions.
Sum = tuple[int, int]


def measurement(line: str) -> tuple[str, int]:
    """Returns ``(key, value)``."""
    key, value, _ = line.split("\t")
    return key, int(value)


def mean(values: Iterable[int]) -> float:
    total = count = 0
    for value in values:
        total += value
        count += 1
    return total / count


def added(one: Sum, other: Sum) -> Sum:
    return one[0] + other[0], one[1] + other[1]


def with_value(so_far: Sum, value: int) -> Sum:
    return so_far[0] + value, so_far[1] + 1


def divided(sum_: Sum) -> float:
    return sum_[0] / sum_[1]


def flow(inputs: Path) -> sf.Dataset[tuple[str, float]]:
    """Returns a dataset of ``(key, mean)``."""
    import sailfish as sf

    return sf.read_text(inputs).map(measurement).group_by().map_values(mean)


def flow_folded(inputs: Path) -> sf.Dataset[tuple[str, float]]:
    """Returns a dataset of ``(key, mean)``."""
    import sailfish as sf

    return sf.read_text(inputs).map(measurement).aggregate_by_key((0, 0), with_value, added).map_values(divided)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of a key, a value, and an unused text."""
    keys = generated.zipf_urn([f"key-{number:06d}" for number in range(KEYS)])
    values = [str(number) for number in range(1, 100_000)]
    texts = [f"text of some length, number {number:04d}" for number in range(1000)]

    def block(rng: random.Random, index: int, first: int) -> list[str]:
        return generated.rows(*(rng.choices(column, k=generated.BLOCK_LINES) for column in (keys, values, texts)))

    generated.write_files(directory, "", generated.file_count(size_bytes), size_bytes, seed, block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
