"""Sessions of a web log: the views of a user without a pause of half an hour, and the pages that follow each other within a session.

`flow` makes the sessions of each user from the user's page views in the order of time. `transitions` slides a window of two over the same
order. The values of a group are sorted by the engine, so that neither needs to hold all page views of a user.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

#: (second, page)
View = tuple[int, str]
#: (first second, seconds until the last view, views)
Session = tuple[int, int, int]

PAUSE_SECONDS = 1800


def view(line: str) -> tuple[str, View]:
    """Returns ``(user, (second, page))``."""
    second, user, page = line.split("\t")
    return user, (int(second), page)


def sessions_of(user: str, views: Iterable[View]) -> Iterator[tuple[str, Session]]:
    """Yields ``(user, session)``, from views in the order of time."""
    start = last = count = 0
    for second, _ in views:
        if count and second - last >= PAUSE_SECONDS:
            yield user, (start, last - start, count)
            count = 0
        if not count:
            start = second
        last = second
        count += 1
    if count:
        yield user, (start, last - start, count)


def is_same_session(item: tuple[str, list[View]]) -> bool:
    """Returns whether two views that follow each other have no pause between them."""
    _, (before, after) = item
    return after[0] - before[0] < PAUSE_SECONDS


def transition(item: tuple[str, list[View]]) -> tuple[tuple[str, str], int]:
    """Returns ``((page, next page), 1)``."""
    _, (before, after) = item
    return (before[1], after[1]), 1


def flow(inputs: Path) -> sf.Dataset[tuple[str, Session]]:
    """Returns a dataset of ``(user, session)``."""
    import sailfish as sf

    return sf.read_text(inputs).map(view).group_by().sorted().flat_map(sessions_of)


def transitions(inputs: Path) -> sf.Dataset[tuple[tuple[str, str], int]]:
    """Returns a dataset of ``((page, next page), count)``."""
    import sailfish as sf

    pairs = sf.read_text(inputs).map(view).group_by().sorted().windows(2)
    return pairs.filter(is_same_session).map(transition).reduce_by_key(sum)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of second, user, page; each file is a stretch of time, in no order within it."""
    # Some twenty views for each user in a day, so that pauses of less and of more than half an hour are common.
    users = generated.zipf_urn([f"user-{number:07d}" for number in range(max(10, min(size_bytes // 700, 1_000_000)))])
    pages = generated.zipf_urn([f"/page-{number:03d}.html" for number in range(500)])
    files = generated.file_count(size_bytes)
    stretch_seconds = 86_400 // files

    def block(rng: random.Random, index: int, first: int) -> list[str]:
        count = generated.BLOCK_LINES
        start = 1_700_000_000 + index * stretch_seconds
        seconds = map(str, rng.choices(range(start, start + stretch_seconds), k=count))
        return generated.rows(list(seconds), rng.choices(users, k=count), rng.choices(pages, k=count))

    generated.write_files(directory, "", files, size_bytes, seed, block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
