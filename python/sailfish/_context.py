"""Counters and a status, for functions of a job. They go to the engine on standard error, as Hadoop Streaming has it. Outside of a job both
do nothing, so that tests can call functions as they are."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections import Counter

#: The most bytes of the names of a counter and its group together.
_NAME_BYTES_MAX = 1000

_counts: Counter[tuple[str, str]] = Counter()
#: Whether this process runs the functions of a job.
_is_in_job = False


def counter(name: str, count: int = 1, group: str = "user") -> None:
    """Adds to a counter of the job, from within a function of it. Only attempts that win count. Outside of a job it counts nothing.

    Errors: `ValueError` for a name or a group that is empty, has a comma or a line end, or is too long."""
    for part in (name, group):
        if not part or "," in part or "\n" in part:
            raise ValueError(f"{part!r} is no name for a counter: it has at least one character, and no comma and no line end")
    if len(f"{group},{name}".encode()) > _NAME_BYTES_MAX:
        raise ValueError(f"the counter {name!r:.80} has more than the {_NAME_BYTES_MAX} bytes that a name may have")
    number = operator.index(count)
    if _is_in_job:
        _counts[group, name] += number


def status(text: str) -> None:
    """Tells how far a task is, from within a function of the job: shown with the task, and with its failure. Outside of a job it does
    nothing."""
    if _is_in_job:
        _report("status:" + " ".join(text.split()))


def begin() -> None:
    """Marks this process as one that runs the functions of a job."""
    global _is_in_job
    _is_in_job = True


def flush() -> None:
    """Tells the engine the counts so far, and writes out text that functions have printed."""
    for (group, name), count in _counts.items():
        _report(f"counter:{group},{name},{count}")
    _counts.clear()
    for stream in (sys.stdout, sys.stderr):
        # A function may have put something else in their place.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def end() -> None:
    """Tells the engine that the worker has said all about a task."""
    _report("end")


def _report(text: str) -> None:
    # On a line of its own, whatever was printed before.
    sys.stdout.flush()
    sys.stderr.write(f"\nreporter:{text}\n")
    sys.stderr.flush()
