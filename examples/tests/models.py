"""Models of the examples: dictionaries in memory, written from the descriptions of the jobs, mostly without their functions."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import behavior_model
import nday_model
import near_duplicates

Items = list[Any]


def fields(directory: Path) -> Iterator[list[str]]:
    """Yields the columns of all lines below a directory."""
    for path in sorted(directory.rglob("*.txt*")):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        yield from (line.split("\t") for line in data.decode().splitlines())


def log_count(inputs: Path) -> Items:
    return list(Counter(page for _, _, _, page, *_ in fields(inputs)).items())


def log_proc(inputs: Path) -> Items:
    seen: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for _, host, service, milliseconds, _ in fields(inputs):
        seen[service] += [(int(each), host) for each in milliseconds.split(",")]
    return [(service, (len(all_), sum(each for each, _ in all_), *max(all_))) for service, all_ in seen.items()]


def log_read(inputs: Path) -> Items:
    seen: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for _, reader, data_set, offset, size in fields(inputs):
        seen[data_set].append((int(size), int(offset), reader))
    return [(data_set, (len(reads), sum(size for size, _, _ in reads), max(reads))) for data_set, reads in seen.items()]


def n_day_model(inputs: Path) -> Items:
    users: defaultdict[str, list[str]] = defaultdict(list)
    for user, entries in fields(inputs / "model"):
        users[user] += [entry for entry in entries.split() if int(entry.split(":")[0]) > nday_model.TODAY - nday_model.DAYS]
    for user, entries in fields(inputs / "day"):
        users[user] += [f"{nday_model.TODAY}:{entry}" for entry in sorted(entries.split())]
    return [(user, " ".join(entries)) for user, entries in users.items() if entries]


def behavior(inputs: Path) -> Items:
    scores: defaultdict[str, Counter[str]] = defaultdict(Counter)
    kinds = {
        "views": (behavior_model.VIEW, behavior_model.interests),
        "searches": (behavior_model.SEARCH, behavior_model.search_interests),
        "clicks": (behavior_model.CLICK, behavior_model.interests),
    }
    for kind, (weight, parse) in kinds.items():
        for columns in fields(inputs / kind):
            for user, (minute, topic) in parse("\t".join(columns)):
                age_days = (behavior_model.LAST_MINUTE - minute) // 1440
                scores[user][topic] += weight * 2**20 // 2**age_days
    return [
        (user, sorted(found.items(), key=lambda one: (-one[1], one[0]))[: behavior_model.TOPICS_KEPT]) for user, found in scores.items()
    ]


def click_attribution(inputs: Path) -> Items:
    shown: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for second, user, ad, site, agent in fields(inputs / "impressions"):
        if agent != "bot":
            shown[user, ad].append((int(second), site))
    items: Items = []
    for clicked, user, ad in fields(inputs / "clicks"):
        before = [(second, site) for second, site in shown[user, ad] if 0 <= int(clicked) - second <= 1800]
        if before:
            # Two impressions in one second: the one with the last site counts.
            last, site = max(before)
            items.append((user, (int(clicked), ad, f"campaign-{int(ad[3:]) % 60:02d}", site, int(clicked) - last)))
    return items


def segment_exploder(inputs: Path) -> Items:
    reached: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for _, user, segment, campaign, country, state, city, _ in fields(inputs / "impressions"):
        for place in (country, f"{country}/{state}", f"{country}/{state}/{city}"):
            reached[campaign, place, segment].append(user)
    targets = {(campaign, place, segment) for campaign, place, segment in fields(inputs / "targets")}
    return [(each, (len(reached[each]), len(set(reached[each])))) for each in targets if len(set(reached[each])) >= 2]


def near_duplicate_removal(inputs: Path) -> Items:
    documents = {columns[0]: columns[1] for columns in fields(inputs)}
    hashed = {name: near_duplicates.shingles(text) for name, text in documents.items()}
    in_bucket: defaultdict[near_duplicates.Bucket, list[str]] = defaultdict(list)
    for name, text in documents.items():
        for bucket, _ in near_duplicates.buckets((name, text)):
            in_bucket[bucket].append(name)
    labels = {name: name for name in documents}
    edges = {
        (one, other)
        for names in in_bucket.values()
        for one in names
        for other in names
        if one != other and len(hashed[one] & hashed[other]) / len(hashed[one] | hashed[other]) >= near_duplicates.SIMILARITY_MIN
    }
    # The smallest name travels along the edges until nothing changes.
    changed = True
    while changed:
        changed = False
        for one, other in edges:
            if labels[other] > labels[one]:
                labels[other], changed = labels[one], True
    return [(name, text) for name, text in documents.items() if labels[name] == name]


def page_views(inputs: Path) -> dict[str, list[tuple[int, str]]]:
    """Returns the page views of each user, sorted."""
    views: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for second, user, page in fields(inputs):
        views[user].append((int(second), page))
    return {user: sorted(seen) for user, seen in views.items()}


def sessions(inputs: Path) -> Items:
    items: Items = []
    for user, views in page_views(inputs).items():
        seconds = [second for second, _ in views]
        starts = [0, *(place for place in range(1, len(seconds)) if seconds[place] - seconds[place - 1] >= 1800), len(seconds)]
        for start, end in pairwise(starts):
            items.append((user, (seconds[start], seconds[end - 1] - seconds[start], end - start)))
    return items


def transitions(inputs: Path) -> Items:
    counts: Counter[tuple[str, str]] = Counter()
    for views in page_views(inputs).values():
        counts.update((one[1], next_[1]) for one, next_ in pairwise(views) if next_[0] - one[0] < 1800)
    return list(counts.items())
