"""NdayModel: a model of the last N days of each user takes in one more day (JOIN).

Of the Sailfish paper's jobs (Table 3, Figure 12) this is the incremental one: half of the map tasks read files of the N-day model and put
out 10 GB each, the other half read the new day and put out 450 MB each. Here both halves have as many files, whose sizes are so related.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

#: Days that the model covers, and the day that comes in.
DAYS = 30
TODAY = 400

#: The share of the input in files of the model, as of 10 GB beside 450 MB of the day.
MODEL_PART = 10 / 10.45
ENTRIES = 24


def by_user(line: str) -> tuple[str, str]:
    """Returns ``(user, entries)``."""
    user, _, entries = line.partition("\t")
    return user, entries


def updated(item: tuple[str, tuple[str | None, str | None]]) -> tuple[str, str]:
    """Returns ``(user, entries of the model)``, of the entries `day:topic:count` until now and `topic:count` of today; either may lack."""
    user, (model, today) = item
    entries = [entry for entry in (model or "").split() if int(entry.partition(":")[0]) > TODAY - DAYS]
    entries += [f"{TODAY}:{entry}" for entry in sorted((today or "").split())]
    return user, " ".join(entries)


def is_known(item: tuple[str, str]) -> bool:
    """Returns whether a user did anything in N days; the model drops all others."""
    return bool(item[1])


def flow(inputs: Path) -> sf.Dataset[tuple[str, str]]:
    """Returns a dataset of ``(user, entries)``."""
    import sailfish as sf

    model = sf.read_text(inputs / "model").map(by_user)
    day = sf.read_text(inputs / "day").map(by_user)
    return model.join(day, how="full").map(updated).filter(is_known)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of user, entries with blanks between: day:topic:count in `model`, topic:count in `day`. A user has one line in each."""
    half = max(generated.FILES_MIN // 2, generated.file_count(int(size_bytes * MODEL_PART)))
    rng = random.Random(seed)
    topics = [f"t{number}:{count}" for number in range(300) for count in (1, 1, 2, 5)]

    def history() -> str:
        # Oldest first, from one day before those that are still in the model; a few users were not seen for long.
        age_days = rng.choice([0] * 30 + [DAYS])
        days = sorted(rng.choices(range(TODAY - DAYS - age_days, TODAY - age_days), k=ENTRIES))
        return " ".join(f"{day}:{topic}" for day, topic in zip(days, rng.choices(topics, k=ENTRIES)))

    histories = [history() for _ in range(20_000)]
    visits = [" ".join(dict.fromkeys(rng.choices(topics, k=4))) for _ in range(20_000)]

    def model_block(rng: random.Random, index: int, first: int) -> list[str]:
        numbers = range(first * half + index, (first + generated.BLOCK_LINES) * half + index, half)
        return generated.rows([f"user-{number:09d}" for number in numbers], rng.choices(histories, k=generated.BLOCK_LINES))

    def day_block(rng: random.Random, index: int, first: int) -> list[str]:
        # One user of four, so that some are new at the end of the files.
        numbers = range(4 * (first * half + index), 4 * ((first + generated.BLOCK_LINES) * half + index), 4 * half)
        users = [f"user-{number + extra:09d}" for number, extra in zip(numbers, rng.choices(range(4), k=generated.BLOCK_LINES))]
        return generated.rows(users, rng.choices(visits, k=generated.BLOCK_LINES))

    model_bytes = int(size_bytes * MODEL_PART)
    generated.write_files(directory, "model", half, model_bytes, seed, model_block, compress)
    generated.write_files(directory, "day", half, size_bytes - model_bytes, seed, day_block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
