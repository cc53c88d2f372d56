"""digest.py DIR...: prints the number of lines of an output and a digest that is independent of the order of lines and of the files."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def digest(output: Path) -> tuple[int, str]:
    """Returns ``(lines, sum of the hashes of the lines modulo 2^128)``. Skips files whose names begin with `_` or `.`."""
    count = total = 0
    for path in output.iterdir():
        if path.name.startswith(("_", ".")):
            continue
        with path.open("rb") as file:
            for line in file:
                # The last line of a Dask file has no line end.
                total += int.from_bytes(hashlib.blake2b(line.rstrip(b"\n"), digest_size=16).digest(), "little")
                count += 1
    return count, f"{total % 2**128:032x}"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(*digest(Path(each)), each)
