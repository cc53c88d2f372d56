"""The files of a workflow that its jobs need beside their inputs: Snakefiles, scripts, configurations."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path


def outside(sources: Iterable[str]) -> list[str]:
    """Returns the sources that do not lie below the current directory: they cannot be shipped."""
    return sorted(each for each in sources if os.path.relpath(each).split(os.sep)[0] == os.pardir)


def pack(sources: Iterable[str], archive: Path) -> None:
    """Writes an archive of files below the current directory. Equal files make equal archives, so that a node gets them once."""

    def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = 0
        return entry

    inside = {os.path.relpath(each) for each in sources}.difference(map(os.path.relpath, outside(sources)))
    with tarfile.open(archive, "w") as tar:
        for path in sorted(inside):
            # The time of a source decides nothing: the main process has chosen the jobs.
            tar.add(path, recursive=False, filter=without_owner)
