"""The `sailfish` program, which runs the jobs: how to find it, and how to run it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ._progress import Display, rows_of

#: The most lines of the program's messages that an error keeps.
_LINES_MAX = 200
#: Options of the program by the names that arguments have here. `--input` goes without a name: its message says that the input does not
#: exist.
_ARGUMENTS = {
    **{f"--{name}": name for name in ("input", "output", "memory", "slots", "name", "env")},
    **{"--input: ": "", "--file": "files", "--overwrite": "overwrite=True", "--mapper": "python"},
}
#: An option in a message: at the beginning, or behind a word of the advice. Paths, which may look alike, stand elsewhere.
_OPTION = re.compile(r'(^|^the stage "[^"]*": | add | with | inside )(--input: |--[a-z]+\b(?!-))')
#: Asks the kernel for a signal when the parent dies (`prctl`).
_PR_SET_PDEATHSIG = 1


class EngineMissing(RuntimeError):
    """Error where there is no `sailfish` program."""

    __module__ = "sailfish"


class JobFailed(RuntimeError):
    """Error of a job that failed. The message is that of the engine, with the traceback of the failed function."""

    __module__ = "sailfish"

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        #: The exit code of `sailfish run`.
        self.exit_code = exit_code


def program() -> str:
    """Finds the program: named by SAILFISH_PROGRAM, installed with this package, or on PATH. Error: `EngineMissing`."""
    named = os.environ.get("SAILFISH_PROGRAM")
    if named:
        if shutil.which(named) is None:
            raise EngineMissing(f"SAILFISH_PROGRAM names {named!r}, and there is no such program")
        return named
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        installed = Path(sysconfig.get_path("scripts", scheme), "sailfish")
        if installed.is_file():
            return str(installed)
    found = shutil.which("sailfish")
    if found is None:
        raise EngineMissing(
            "there is no program `sailfish`: it comes with the package sailfish-engine, or SAILFISH_PROGRAM says where it is"
        )
    return found


def run(words: list[str], display: Display | None) -> Any:
    """Runs the program and returns the JSON that it prints: a report, or those of all stages. `display` shows its progress and its
    messages. Errors: `JobFailed`; `KeyboardInterrupt`, when the program has ended."""
    environment = {**os.environ, "SAILFISH_PROGRESS": "json" if display else "none"}
    # In a session of its own: Ctrl-C in a terminal would reach it as well, and the second of two signals stops it at once.
    child = subprocess.Popen(
        [program(), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_ends_with_us(),
        env=environment,
    )
    assert child.stdout is not None and child.stderr is not None
    said: list[str] = []
    listening = threading.Thread(target=_listen, args=(child.stderr, said, display), daemon=True)
    listening.start()
    report = b""
    try:
        report = child.stdout.read()
        code = child.wait()
    except KeyboardInterrupt:
        _interrupt(child)
        raise
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        listening.join()
        child.stdout.close()
        child.stderr.close()
    if code != 0:
        raise JobFailed(_of_arguments("\n".join(said).removeprefix("sailfish: ")) or f"sailfish ended with code {code}", code)
    return json.loads(report)


def _of_arguments(message: str) -> str:
    """Replaces names of options in a message by the names of arguments."""
    return _OPTION.sub(lambda found: found[1] + _ARGUMENTS.get(found[2], found[2]), message)


def _ends_with_us() -> Callable[[], object] | None:
    """Returns a function for the child, a single call of the system: it makes the program stop its job when this process is killed or its
    terminal goes."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Ends the job, and waits until all of it has gone. A second interrupt ends it at once."""
    child.send_signal(signal.SIGINT)
    for last_resort in (signal.SIGINT, signal.SIGKILL):
        try:
            child.wait()
            return
        except KeyboardInterrupt:
            child.send_signal(last_resort)
    child.wait()


def _listen(stream: IO[bytes], said: list[str], display: Display | None) -> None:
    for line in stream:
        text = line.decode(errors="replace").rstrip("\n")
        rows = rows_of(text)
        if rows is None:
            said.append(text)
            del said[:-_LINES_MAX]
        if display is not None:
            # The messages of the program are read on even when the terminal has gone.
            with contextlib.suppress(OSError, ValueError):
                display.say(text) if rows is None else display.show(rows)
    if display is not None:
        with contextlib.suppress(OSError, ValueError):
            display.close()
