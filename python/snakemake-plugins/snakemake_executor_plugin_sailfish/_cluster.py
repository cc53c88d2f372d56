"""Calls of the program `sailfish` about jobs of one run of Snakemake."""

from __future__ import annotations

import bisect
import json
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sailfish._engine import program

#: Pauses between calls while the server does not answer; the program itself repeats a call for some seconds.
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 1.0, 15.0
#: Failures of a submission after each of which the server answered that there is no such job: it refuses it.
_REFUSALS = 2
#: Cancellations that run at once.
_CANCELLATIONS = 8
#: Longest name of a job, in bytes, and of the part that says what it is.
_LABEL_BYTES_MAX = 200
#: Time for a call: more than the program repeats one for.
_CALL_SECONDS_MAX = 300.0


class CallFailed(Exception):
    """Error of a call. The message is that of the program."""


class ServerAway(Exception):
    """Error of a server that did not answer for too long."""


@dataclass(frozen=True)
class Needs:
    """Needs of a job, in Sailfish's terms."""

    cores: int = 1
    memory_megabytes: int = 0
    time_minutes: int = 0
    has_network: bool = False


@dataclass(frozen=True)
class JobState:
    """The state of a job that was submitted."""

    job: int
    is_over: bool
    has_succeeded: bool
    reason: str


class Cluster:
    """The server, and the jobs that this run has submitted to it."""

    def __init__(self, server: str, away_seconds_max: float, warn: Callable[[str], None]) -> None:
        self._server = server
        self._away_seconds_max = away_seconds_max
        self._warn = warn
        # The names of all jobs of this run end with it, so one list has them all, and a lost answer is found again.
        self._run = uuid.uuid4().hex[:12]
        self._submitted: list[int] = []
        self._lock = threading.Lock()

    def submit(self, label: str, number: str, script: str, needs: Needs, files: Iterable[Path], env_file: Path | None) -> int:
        """Submits a script for a shell and returns the number of the job. `label` and `number` tell the job from others of this run.

        Errors: `CallFailed` if the server refuses it, `ServerAway`."""
        name = f"{_shortened(label)} {number} {self._run}"
        words = ["submit", f"--server={self._server}", f"--name={name}", f"--cores={needs.cores}"]
        words += [f"--memory={needs.memory_megabytes}M"] * (needs.memory_megabytes > 0)
        words += [f"--limit=time={needs.time_minutes}m"] * (needs.time_minutes > 0)
        words += ["--network"] * needs.has_network
        words += [f"--file={file}" for file in files]
        words += [] if env_file is None else [f"--env-file={env_file}"]
        refusals = 0

        def once() -> int:
            nonlocal refusals
            try:
                return int(_call([*words, "--", "sh", "-ec", script]).split()[0])
            except CallFailed as failed:
                # The answer may have been lost: only the list says whether there is a job. This fails while the server is away.
                found = self._list(name, 1)
                if found:
                    return found[0].job
                refusals += 1
                if refusals >= _REFUSALS:
                    raise _Refused(str(failed)) from None
                raise

        try:
            job = self._repeat(once)
        except _Refused as refused:
            raise CallFailed(str(refused)) from None
        with self._lock:
            bisect.insort(self._submitted, job)
        return job

    def states(self, jobs: Iterable[int]) -> dict[int, JobState]:
        """Returns the states of these jobs, with one question. A job that the server does not know is left out. Error: `CallFailed`."""
        asked = set(jobs)
        if not asked:
            return {}
        with self._lock:
            # The list has the newest jobs first: those from the oldest that is asked about.
            limit = len(self._submitted) - bisect.bisect_left(self._submitted, min(asked))
        # A submission may be repeated that the server had accepted.
        return {state.job: state for state in self._list(self._run, 2 * limit) if state.job in asked}

    def cancel(self, jobs: Iterable[int]) -> list[str]:
        """Cancels jobs, and returns the messages of those that could not be cancelled."""

        def cancel(job: int) -> str:
            try:
                _call(["cancel", f"--server={self._server}", str(job)])
            except CallFailed as failed:
                return str(failed)
            return ""

        with ThreadPoolExecutor(_CANCELLATIONS) as pool:
            return [message for message in pool.map(cancel, jobs) if message]

    def logs(self, job: int) -> str:
        """Returns the output of the program of a job, and the errors that it printed. Error: `CallFailed`."""
        return _call(["logs", f"--server={self._server}", str(job)], with_stderr=True)

    def _list(self, name: str, limit: int) -> list[JobState]:
        rows = json.loads(_call(["jobs", f"--server={self._server}", "--json", f"--limit={limit}", f"--name={name}"]))
        return [_state(row) for row in rows]

    def _repeat(self, call: Callable[[], int]) -> int:
        """Repeats a call until it succeeds, or the server was away for too long."""
        end = time.monotonic() + self._away_seconds_max
        pause = _PAUSE_SECONDS_MIN
        while True:
            try:
                return call()
            except CallFailed as failed:
                if time.monotonic() >= end:
                    raise ServerAway(f"{failed}: the server was asked for {self._away_seconds_max:.0f} s") from None
                self._warn(f"{failed}: trying again")
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)


class _Refused(Exception):
    """Error of a submission that the server refuses."""


def _shortened(label: str) -> str:
    return label.encode()[:_LABEL_BYTES_MAX].decode(errors="ignore")


def _state(row: dict[str, object]) -> JobState:
    state = row["state"]
    reason = row["error"] or f"it was {state}"
    return JobState(int(str(row["job"])), state not in ("running", "committing"), state == "succeeded", str(reason))


def _call(words: list[str], with_stderr: bool = False) -> str:
    try:
        ran = subprocess.run([program(), *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=_CALL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise CallFailed(f"`sailfish {words[0]}` has not ended for {_CALL_SECONDS_MAX:.0f} s") from None
    printed, told = (text.decode(errors="replace") for text in (ran.stdout, ran.stderr))
    if ran.returncode != 0:
        raise CallFailed(told.strip().removeprefix("sailfish: ") or f"`sailfish {words[0]}` ended with exit code {ran.returncode}")
    return printed + told if with_stderr else printed
