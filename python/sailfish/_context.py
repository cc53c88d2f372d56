"""Counters and a status, for functions of a job. They are reported to the engine on standard error, as in Hadoop Streaming. Outside of a
job both do nothing, so that tests can call the functions directly."""

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
    """Adds `count` to a counter of the job. Functions of the job call it; outside of a job it does nothing. Only successful attempts count.

    Errors: `ValueError` for a name or a group that is empty, contains a comma or a line end, or is too long."""
    for part in (name, group):
        if not part or "," in part or "\n" in part:
            raise ValueError(f"{part!r} is not a valid counter name: it must not be empty or contain a comma or a line end")
    if len(f"{group},{name}".encode()) > _NAME_BYTES_MAX:
        raise ValueError(f"the counter name {name!r:.80} is too long: group and name may have {_NAME_BYTES_MAX} bytes together")
    number = operator.index(count)
    if _is_in_job:
        _counts[group, name] += number


def status(text: str) -> None:
    """Reports the progress of the task as a text. Functions of the job call it; outside of a job it does nothing. The text is shown with
    the task, and with its failure."""
    if _is_in_job:
        _report("status:" + " ".join(text.split()))


def begin() -> None:
    """Marks this process as a worker of a job."""
    global _is_in_job
    _is_in_job = True


def flush() -> None:
    """Reports the counts so far to the engine, and flushes the text that functions have printed."""
    for (group, name), count in _counts.items():
        _report(f"counter:{group},{name},{count}")
    _counts.clear()
    for stream in (sys.stdout, sys.stderr):
        # A function may have replaced the streams.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def end() -> None:
    """Tells the engine that the reports of a task are complete."""
    _report("end")


def _report(text: str) -> None:
    # The report needs a line of its own, so it begins with a line end.
    sys.stdout.flush()
    sys.stderr.write(f"\nreporter:{text}\n")
    sys.stderr.flush()
