"""Workflow: the most requested pages of a web site, by steps on whole files.

A function counts the pages of each log file, all files at the same time. Another function adds up the counts, and a command of the shell
picks the largest. `log_count.py generate DIR` makes the log files.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import Counter
from pathlib import Path

import sailfish as sf

PAGES_SHOWN = 10


def count(log: Path, counts: Path) -> None:
    """Writes a line of page and requests for each page of a log file."""
    with log.open() as lines:
        pages = Counter(line.split("\t", 4)[3] for line in lines)
    counts.write_text("".join(f"{page}\t{requests}\n" for page, requests in pages.items()))


def add_up(parts: list[Path], total: Path) -> None:
    """Adds up the counts of several files."""
    pages: Counter[str] = Counter()
    for part in parts:
        for line in part.read_text().splitlines():
            page, requests = line.split("\t")
            pages[page] += int(requests)
    total.write_text("".join(f"{page}\t{requests}\n" for page, requests in pages.items()))


def workflow(logs: list[Path], directory: Path) -> sf.Workflow:
    """Returns a workflow that writes the files `total` and `most` of a directory."""
    wf = sf.Workflow("most requested pages", directory)
    parts = [wf.function(count, log.resolve(), name=f"count {log.name}", outputs=[f"counts/{log.stem}"]) for log in logs]
    total = wf.function(add_up, parts, outputs=["total"], keep=True)
    wf.command("most", f"LC_ALL=C sort -t '\t' -k 2,2nr -k 1,1 | head -n {PAGES_SHOWN}", stdin=total, stdout="most")
    return wf


def main() -> None:
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]), formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("logs", type=Path, help="directory of log files")
    parser.add_argument("directory", type=Path, help="existing directory for the results")
    parser.add_argument("--server", help="URL of a server, whose nodes run the steps")
    arguments = parser.parse_args()
    wf = workflow(sorted(arguments.logs.glob("*.txt")), arguments.directory)
    wf.run(server=arguments.server)
    print(wf.steps[-1].output().read_text(), end="")


if __name__ == "__main__":
    main()
