"""LogCount: the number of requests for each page of a web site (COUNT).

Of the Sailfish paper's jobs (Table 3) this is the one whose data shrinks: 1.1 TB of log become 0.04 TB between map and reduce, since
counts of one page are added up before they travel. The log here has 20,000 pages, some asked for much more often than others.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

PAGES = 20_000


def request(line: str) -> tuple[str, int]:
    """Returns ``(page, 1)``."""
    return line.split("\t", 4)[3], 1


def flow(inputs: Path) -> sf.Dataset[tuple[str, int]]:
    """Returns a dataset of ``(page, requests)``."""
    import sailfish as sf

    return sf.read_text(inputs).map(request).reduce_by_key(sum)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of time, client, method, page, status, bytes, agent."""
    pages = generated.zipf_urn([f"/section-{number % 97:02d}/page-{number:05d}.html" for number in range(PAGES)])
    clients = [f"10.{number % 251}.{number // 251 % 251}.{number % 241}" for number in range(50_000)]
    methods = ["GET"] * 9 + ["POST"]
    answers = [
        f"{status}\t{size}\tMozilla/5.0 (X11; Linux x86_64)" for size in range(200, 9000, 97) for status in (200, 200, 200, 304, 404)
    ]

    def block(rng: random.Random, index: int, first: int) -> list[str]:
        count = generated.BLOCK_LINES
        times = map(str, range(1_700_000_000 + first, 1_700_000_000 + first + count))
        columns = (rng.choices(column, k=count) for column in (clients, methods, pages, answers))
        return generated.rows(list(times), *columns)

    generated.write_files(directory, "", generated.file_count(size_bytes), size_bytes, seed, block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
