"""BehaviorModel: the interests of each user, from page views, searches and clicks on ads (COGROUP).

Of the Sailfish paper's jobs (Table 3) this is the large one that costs processor time as well: 3.6 TB of events become 9.47 TB between map
and reduce, 2.6 times as much, because each event is about several topics. Here too each event becomes a record for each of its topics.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

#: (minute, topic)
Interest = tuple[int, str]
Scores = list[tuple[str, int]]

TOPICS = [f"topic-{number:04d}" for number in range(400)]
MINUTES_PER_DAY = 1440
LAST_MINUTE = 30 * MINUTES_PER_DAY
VIEW, SEARCH, CLICK = 1, 3, 10
TOPICS_KEPT = 5


def interests(line: str) -> Iterator[tuple[str, Interest]]:
    """Yields ``(user, (minute, topic))`` for each topic of a page that was seen, or of an ad that was clicked on."""
    user, minute, _, codes = line.split("\t")
    for code in codes.split(","):
        yield user, (int(minute), TOPICS[int(code)])


def search_interests(line: str) -> Iterator[tuple[str, Interest]]:
    """Yields ``(user, (minute, topic))`` for each word of a search."""
    user, minute, words = line.split("\t")
    for word in words.split():
        yield user, (int(minute), TOPICS[zlib.crc32(word.encode()) % len(TOPICS)])


def model(item: tuple[str, Sequence[Iterable[Interest]]]) -> tuple[str, Scores]:
    """Returns ``(user, the topics of most interest with their scores)``, of the user's views, searches and clicks. An event counts half as
    much with each day; scores are integers, so that the order of events does not matter."""
    user, kinds = item
    scores: Counter[str] = Counter()
    for weight, events in zip((VIEW, SEARCH, CLICK), kinds):
        for minute, topic in events:
            scores[topic] += (weight << 20) >> ((LAST_MINUTE - minute) // MINUTES_PER_DAY)
    return user, sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))[:TOPICS_KEPT]


def flow(inputs: Path) -> sf.Dataset[tuple[str, Scores]]:
    """Returns a dataset of ``(user, scores)``."""
    import sailfish as sf

    views = sf.read_text(inputs / "views").flat_map(interests)
    searches = sf.read_text(inputs / "searches").flat_map(search_interests)
    clicks = sf.read_text(inputs / "clicks").flat_map(interests)
    return views.cogroup(searches, clicks).map(model)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of user, minute, page or ad, topics with commas between; in `searches`: user, minute, words."""
    users = [f"user-{number:07d}" for number in range(max(20, min(size_bytes // 2_000, 1_000_000)))]
    minutes = [str(number) for number in range(LAST_MINUTE - 30 * MINUTES_PER_DAY, LAST_MINUTE)]
    rng = random.Random(seed)
    topics = generated.zipf_urn([str(number) for number in range(len(TOPICS))])
    things = {
        "views": [f"page-{rng.randrange(10**5):05d}\t{','.join(rng.choices(topics, k=rng.randint(1, 5)))}" for _ in range(20_000)],
        "searches": [" ".join(f"word{rng.randrange(3000)}" for _ in range(rng.randint(1, 5))) for _ in range(20_000)],
        "clicks": [f"ad-{rng.randrange(10**4):04d}\t{','.join(rng.choices(topics, k=3))}" for _ in range(2_000)],
    }
    for kind, parts in {"views": 14, "searches": 5, "clicks": 1}.items():
        kind_bytes = size_bytes * parts // 20
        about = things[kind]

        def block(rng: random.Random, index: int, first: int, about: list[str] = about) -> list[str]:
            return generated.rows(*(rng.choices(column, k=generated.BLOCK_LINES) for column in (users, minutes, about)))

        generated.write_files(directory, kind, generated.file_count(kind_bytes), kind_bytes, seed, block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
