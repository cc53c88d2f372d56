"""SegmentExploder: the reach of ad campaigns in their target groups of users, by country, state and city (COGROUP, FLATTEN, FILTER).

Of the Sailfish paper's jobs (Table 3) this is the one that explodes: 14.1 TB become 25.2 TB between map and reduce, 1.8 times as much, for
each impression is a record for its country, one for its state and one for its city.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

#: (campaign, place)
Where = tuple[str, str]
#: (user, segment)
Viewer = tuple[str, str]
#: ((campaign, place, segment), (impressions, users))
Reach = tuple[tuple[str, str, str], tuple[int, int]]

CAMPAIGNS = 2_000
SEGMENTS = 40
USERS_MIN = 2


def places(line: str) -> Iterator[tuple[Where, Viewer]]:
    """Yields ``((campaign, place), (user, segment))`` for the country, the state and the city of an impression."""
    _, user, segment, campaign, country, state, city, _ = line.split("\t")
    state = f"{country}/{state}"
    for place in (country, state, f"{state}/{city}"):
        yield (campaign, place), (user, segment)


def target(line: str) -> tuple[Where, str]:
    """Returns ``((campaign, place), segment that the campaign wants to reach there)``."""
    campaign, place, segment = line.split("\t")
    return (campaign, place), segment


def reach(item: tuple[Where, Sequence[Iterable[Any]]]) -> Iterator[Reach]:
    """Yields ``((campaign, place, segment), (impressions, users))`` for each segment that the campaign wants to reach at the place."""
    viewers: Iterable[Viewer]
    wanted: Iterable[str]
    (campaign, place), (viewers, wanted) = item
    by_segment: defaultdict[str, list[str]] = defaultdict(list)
    for user, segment in viewers:
        by_segment[segment].append(user)
    for segment in sorted(set(wanted)):
        users = by_segment[segment]
        yield (campaign, place, segment), (len(users), len(set(users)))


def is_worth_telling(item: Reach) -> bool:
    """Returns whether a reach is about more than one person."""
    return item[1][1] >= USERS_MIN


def flow(inputs: Path) -> sf.Dataset[Reach]:
    """Returns a dataset of ``((campaign, place, segment), (impressions, users))``."""
    import sailfish as sf

    impressions = sf.read_text(inputs / "impressions").flat_map(places)
    targets = sf.read_text(inputs / "targets").map(target)
    return impressions.cogroup(targets).flat_map(reach).filter(is_worth_telling)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of `impressions` (second, user, segment, campaign, country, state, city, page) and of `targets` (campaign, place,
    segment)."""
    user_count = max(20, min(size_bytes // 2_000, 1_000_000))
    campaign_count = max(3, min(size_bytes // 100_000, CAMPAIGNS))
    users = [f"user-{number:07d}\tseg-{number * 13 % SEGMENTS:02d}" for number in range(user_count)]
    campaigns = generated.zipf_urn([f"campaign-{number:04d}" for number in range(campaign_count)])
    cities = [
        (country, f"state{state}", f"city{city:02d}") for country in ("us", "in", "br", "de") for state in range(8) for city in range(12)
    ]
    rng = random.Random(seed)
    seen_at = [
        "\t".join(rng.choice(cities)) + f"\thttps://site-{rng.randrange(300)}.example/{rng.randrange(10**6):06d}" for _ in range(50_000)
    ]
    seconds = [str(number) for number in range(1_700_000_000, 1_700_086_400)]
    places_known = sorted({"/".join(city[:depth]) for city in cities for depth in (1, 2, 3)})
    segments = [f"seg-{number:02d}" for number in range(SEGMENTS)]

    def impressions_block(rng: random.Random, index: int, first: int) -> list[str]:
        return generated.rows(*(rng.choices(column, k=generated.BLOCK_LINES) for column in (seconds, users, campaigns, seen_at)))

    def targets_block(rng: random.Random, index: int, first: int) -> list[str]:
        return generated.rows(*(rng.choices(column, k=generated.BLOCK_LINES) for column in (campaigns, places_known, segments)))

    targets_bytes = size_bytes // 50
    impressions_bytes = size_bytes - targets_bytes
    generated.write_files(
        directory, "impressions", generated.file_count(impressions_bytes), impressions_bytes, seed, impressions_block, compress
    )
    generated.write_files(directory, "targets", 1, targets_bytes, seed, targets_block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
