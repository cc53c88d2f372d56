"""LogProc: summaries of the measurements of each service, from logs that pack them differently (GROUP BY).

Of the Sailfish paper's jobs (Table 3) this is the one with skew in map output: input and intermediate data are 1.1 TB each, but a few map
tasks put out up to 30 GB, where the mean is 2.75 GB, because their files hold many more records than others of the same size. Here one
file in twelve comes from uploaders that send a hundred measurements in a line; lines of the other files have one measurement and a
message. So each map task of the former puts out ten times its input, and together they put out most of all.
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

Measurement = tuple[str, int]

#: One file in this many has lines of many measurements.
PACKED_FILE_EVERY = 12
PACKED_MEASUREMENTS = 100
SERVICES = 2_000


def measurements(line: str) -> Iterator[tuple[str, Measurement]]:
    """Yields ``(service, (host, milliseconds))`` for each measurement of a line."""
    _, host, service, milliseconds, _ = line.split("\t")
    for each in milliseconds.split(","):
        yield service, (host, int(each))


def summary(service: str, values: Iterable[Measurement]) -> tuple[str, tuple[int, int, int, str]]:
    """Returns ``(service, (measurements, sum of milliseconds, the slowest, its host))``."""
    count = total = 0
    slowest = (-1, "")
    for host, milliseconds in values:
        count += 1
        total += milliseconds
        slowest = max(slowest, (milliseconds, host))
    return service, (count, total, *slowest)


def flow(inputs: Path) -> sf.Dataset[tuple[str, tuple[int, int, int, str]]]:
    """Returns a dataset of ``(service, summary)``."""
    import sailfish as sf

    return sf.read_text(inputs).flat_map(measurements).group_by().map(summary)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of time, host, service, milliseconds with commas between, message."""
    hosts = [f"host-{number:04d}" for number in range(5_000)]
    services = generated.zipf_urn([f"service-{number:04d}" for number in range(SERVICES)])
    each = [str(number) for number in range(5, 100)]
    rng = random.Random(seed)
    batches = [",".join(rng.choices(each, k=PACKED_MEASUREMENTS)) + "\t" for _ in range(4_000)]
    vocabulary = ["request", "answered", "from", "cache", "after", "retry", "upstream", "connection", "shard", "warning", "timeout"]
    single = [f"{rng.choice(each)}\t{' '.join(rng.choices(vocabulary, k=10))}" for _ in range(20_000)]

    def block(rng: random.Random, index: int, first: int) -> list[str]:
        count = generated.BLOCK_LINES
        times = map(str, range(1_700_000_000 + first, 1_700_000_000 + first + count))
        rest = batches if index % PACKED_FILE_EVERY == 0 else single
        return generated.rows(list(times), rng.choices(hosts, k=count), rng.choices(services, k=count), rng.choices(rest, k=count))

    generated.write_files(directory, "", generated.file_count(size_bytes), size_bytes, seed, block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
