"""What functions of a job may call: counters and a status. They go to the engine on standard error, as Hadoop Streaming has it."""

from __future__ import annotations

import operator
import sys
from collections import Counter

#: Of the names of a counter and its group.
_NAME_BYTES_MAX = 1000

_counts: Counter[tuple[str, str]] = Counter()


def counter(name: str, count: int = 1, group: str = "user") -> None:
    """Adds to a counter of the job, from within a function of it. What attempts count that do not win is not counted."""
    for part in (name, group):
        if not part or "," in part or "\n" in part:
            raise ValueError(f"{part!r} is no name for a counter: it has at least one character, and no comma and no line end")
    if len(f"{group},{name}".encode()) > _NAME_BYTES_MAX:
        raise ValueError(f"the counter {name!r:.80} has more than the {_NAME_BYTES_MAX} bytes that a name may have")
    _counts[group, name] += operator.index(count)


def status(text: str) -> None:
    """Tells how far a task is, from within a function of the job: shown with the task, and with its failure."""
    _report("status:" + " ".join(text.split()))


def flush() -> None:
    """Tells the engine what was counted."""
    for (group, name), count in _counts.items():
        _report(f"counter:{group},{name},{count}")
    _counts.clear()


def end() -> None:
    """Tells the engine that all there is to say of a task has been said."""
    _report("end")


def _report(text: str) -> None:
    # On a line of its own, whatever was printed before.
    sys.stdout.flush()
    sys.stderr.write(f"\nreporter:{text}\n")
    sys.stderr.flush()
