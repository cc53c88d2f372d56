"""digest.py DIR...: lines and a digest of the lines of all data files of an output, whatever their order and their files."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def digest(output: Path) -> tuple[int, str]:
    """Returns ``(lines, sum of the hashes of the lines modulo 2^128)``. Names that begin with `_` or `.` are no data."""
    count = total = 0
    for path in output.iterdir():
        if path.name.startswith(("_", ".")):
            continue
        with path.open("rb") as file:
            for line in file:
                # The last line of a Dask file has no end.
                total += int.from_bytes(hashlib.blake2b(line.rstrip(b"\n"), digest_size=16).digest(), "little")
                count += 1
    return count, f"{total % 2**128:032x}"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(*digest(Path(each)), each)
