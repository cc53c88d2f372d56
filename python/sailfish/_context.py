"""What functions of a job may call: counters and a status. They go to the engine on standard error, as Hadoop Streaming has it."""

from __future__ import annotations

import sys
from collections import Counter

_counts: Counter[tuple[str, str]] = Counter()


def counter(name: str, count: int = 1, group: str = "user") -> None:
    """Adds to a counter of the job, from within a function of it. What attempts count that do not win is not counted."""
    for part in (name, group):
        if not part or "," in part or "\n" in part:
            raise ValueError(f"{part!r} is no name for a counter: it has at least one character, and no comma and no line end")
    _counts[group, name] += count


def status(text: str) -> None:
    """Tells how far a task is, from within a function of the job: shown with the task, and with its failure."""
    print("reporter:status:" + " ".join(text.split()), file=sys.stderr, flush=True)


def flush() -> None:
    """Tells the engine what was counted."""
    for (group, name), count in _counts.items():
        print(f"reporter:counter:{group},{name},{count}", file=sys.stderr)
    _counts.clear()
    sys.stderr.flush()
