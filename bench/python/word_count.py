"""Word count: the number of occurrences of each word in a text."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

WORDS = 100_000


def words(line: str) -> list[str]:
    return line.split()


def one(word: str) -> tuple[str, int]:
    """Returns ``(word, 1)``."""
    return word, 1


def flow(inputs: Path) -> sf.Dataset[tuple[str, int]]:
    """Returns a dataset of ``(word, count)``."""
    import sailfish as sf

    return sf.read_text(inputs).flat_map(words).map(one).reduce_by_key(sum)


def flow_frequencies(inputs: Path) -> sf.Dataset[tuple[str, int]]:
    """Returns a dataset of ``(word, count)``."""
    import sailfish as sf

    return sf.read_text(inputs).flat_map(words).count_by_value()


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of ten words."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgk"
    vocabulary = generated.zipf_urn(["".join(rng.choices(letters, k=rng.randint(2, 10))) for _ in range(WORDS)])
    # Lines consist of random groups of words, so that a line takes two random numbers instead of ten.
    phrases = [" ".join(rng.choices(vocabulary, k=5)) for _ in range(100_000)]

    def block(rng: random.Random, index: int, first: int) -> list[str]:
        halves = (rng.choices(phrases, k=generated.BLOCK_LINES) for _ in range(2))
        return list(map(" ".join, zip(*halves)))

    generated.write_files(directory, "", generated.file_count(size_bytes), size_bytes, seed, block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
