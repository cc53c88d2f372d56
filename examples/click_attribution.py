"""ClickAttribution: the impression of an ad that led to each click (COGROUP, FILTER).

Of the Sailfish paper's jobs (Table 3) this is the one whose input was grown from 25 % to 100 %. The number of reduce tasks grew with it,
since it follows from the data (section 6.3.2). 6.8 TB of events become 8.2 TB between map and reduce, 1.2 times as much; here because each
impression is told its campaign. The few that come from robots are dropped before.
"""

from __future__ import annotations

import bisect
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

#: (second, ad, campaign, site)
Impression = tuple[int, str, str, str]
#: (second, ad)
Click = tuple[int, str]
#: (second of the click, ad, campaign, site, seconds since the impression)
Attribution = tuple[int, str, str, str, int]

ADS = 1_000
CAMPAIGNS = [f"campaign-{number:02d}" for number in range(60)]
WINDOW_SECONDS = 1800
DAY_SECONDS = 86_400


def is_human(line: str) -> bool:
    """Returns whether a line is not from a robot, which says so in the last column."""
    return not line.endswith("\tbot")


def impression(line: str) -> tuple[str, Impression]:
    """Returns ``(user, impression)``, with the campaign that the ad belongs to."""
    second, user, ad, site, _ = line.split("\t")
    return user, (int(second), ad, CAMPAIGNS[int(ad[3:]) % len(CAMPAIGNS)], site)


def click(line: str) -> tuple[str, Click]:
    """Returns ``(user, click)``."""
    second, user, ad = line.split("\t")
    return user, (int(second), ad)


def attributed(item: tuple[str, Sequence[Iterable[Any]]]) -> Iterator[tuple[str, Attribution | None]]:
    """Yields ``(user, attribution)`` for each click of a user: to the last impression of the ad before it, if that is not too long ago,
    else None."""
    impressions: Iterable[Impression]
    clicks: Iterable[Click]
    user, (impressions, clicks) = item
    by_ad: defaultdict[str, list[Impression]] = defaultdict(list)
    for shown in sorted(impressions):
        by_ad[shown[1]].append(shown)
    for second, ad in sorted(clicks):
        before = bisect.bisect_left(by_ad[ad], (second + 1, "", "", ""))
        if before and second - by_ad[ad][before - 1][0] <= WINDOW_SECONDS:
            shown_at, _, campaign, site = by_ad[ad][before - 1]
            yield user, (second, ad, campaign, site, second - shown_at)
        else:
            yield user, None


def is_attributed(item: tuple[str, Attribution | None]) -> bool:
    return item[1] is not None


def flow(inputs: Path) -> sf.Dataset[tuple[str, Attribution | None]]:
    """Returns a dataset of ``(user, attribution)``."""
    import sailfish as sf

    impressions = sf.read_text(inputs / "impressions").filter(is_human).map(impression)
    clicks = sf.read_text(inputs / "clicks").map(click)
    return impressions.cogroup(clicks).flat_map(attributed).filter(is_attributed)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of `impressions` (second, user, ad, site, agent) and of `clicks` (second, user, ad)."""
    users = [f"user-{number:07d}" for number in range(max(20, min(size_bytes // 2_000, 1_000_000)))]
    # A user sees some ads again and again, so that clicks have impressions to choose from: the ad follows from the user, nearly.
    seen = [[f"{user}\tad-{(number * 7 + extra) % ADS:04d}" for number, user in enumerate(users)] for extra in range(3)]
    seconds = [str(number) for number in range(DAY_SECONDS)]
    sites = [f"site-{number:03d}\t{agent}" for number in range(300) for agent in ["Linux x86"] * 40 + ["bot"] * 2]

    def impressions_block(rng: random.Random, index: int, first: int) -> list[str]:
        count = generated.BLOCK_LINES
        return generated.rows(rng.choices(seconds, k=count), rng.choices(seen[first // count % 3], k=count), rng.choices(sites, k=count))

    def clicks_block(rng: random.Random, index: int, first: int) -> list[str]:
        count = generated.BLOCK_LINES
        return generated.rows(rng.choices(seconds, k=count), rng.choices(seen[0], k=count))

    clicks_bytes = size_bytes // 20
    impressions_bytes = size_bytes - clicks_bytes
    generated.write_files(
        directory, "impressions", generated.file_count(impressions_bytes), impressions_bytes, seed, impressions_block, compress
    )
    generated.write_files(directory, "clicks", generated.file_count(clicks_bytes), clicks_bytes, seed, clicks_block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
