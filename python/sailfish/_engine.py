"""Finds and runs the `sailfish` program, the engine that runs the jobs."""

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

#: The most lines of the program's output in an error.
_LINES_MAX = 200
#: The argument of this package for each option of the program. `--input` has none: its message already says that the input does not exist.
_ARGUMENTS = {
    **{f"--{name}": name for name in ("input", "output", "memory", "slots", "name", "env")},
    **{"--input: ": "", "--file": "files", "--overwrite": "overwrite=True", "--mapper": "python"},
}
#: An option in a message: at the beginning or after a word of advice. A path that looks like an option never stands there.
_OPTION = re.compile(r'(^|^the stage "[^"]*": | add | with | inside )(--input: |--[a-z]+\b(?!-))')
#: The option of `prctl` that makes the kernel send a signal when the parent dies.
_PR_SET_PDEATHSIG = 1


class EngineMissing(RuntimeError):
    """Error of a missing `sailfish` program."""

    __module__ = "sailfish"


class JobFailed(RuntimeError):
    """Error of a failed job. The message is the message of the engine, with the traceback of the failed function."""

    __module__ = "sailfish"

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        #: The exit code of `sailfish run`.
        self.exit_code = exit_code


def program() -> str:
    """Returns the path of the program: the value of SAILFISH_PROGRAM, the program installed with this package, or a program on PATH.
    Error: `EngineMissing`."""
    named = os.environ.get("SAILFISH_PROGRAM")
    if named:
        if shutil.which(named) is None:
            raise EngineMissing(f"SAILFISH_PROGRAM names {named!r}, which does not exist or cannot be executed")
        return named
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        installed = Path(sysconfig.get_path("scripts", scheme), "sailfish")
        if installed.is_file():
            return str(installed)
    found = shutil.which("sailfish")
    if found is None:
        raise EngineMissing(
            "the program `sailfish` was not found: install the package sailfish-engine, or set SAILFISH_PROGRAM to the path of the program"
        )
    return found


def run(words: list[str], display: Display | None) -> Any:
    """Runs the program and returns the JSON that it prints: one report, or a list with a report per stage. `display` shows its progress and
    its messages. Errors: the errors of `Running.wait`."""
    return json.loads(Running(words, display).wait())


class Running:
    """A run of the program. The kernel interrupts the program when the thread that created the object ends."""

    def __init__(self, words: list[str], display: Display | None) -> None:
        environment = {**os.environ, "SAILFISH_PROGRESS": "json" if display else "none"}
        # The program gets a session of its own. Otherwise Ctrl-C would also reach it from the terminal, and a second signal makes it stop
        # without cleaning up.
        self._child = subprocess.Popen(
            [program(), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_ends_with_us(),
            env=environment,
        )
        self._said: list[str] = []
        #: The standard output of the program, when `wait` has returned or raised.
        self.printed = b""
        assert self._child.stderr is not None
        listening = threading.Thread(target=_listen, args=(self._child.stderr, self._said, display), daemon=True)
        self._threads = [listening, threading.Thread(target=self._read, daemon=True)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        self.printed = self._child.stdout.read()

    def has_ended(self) -> bool:
        """Returns whether the program has ended."""
        return self._child.poll() is not None

    def wait(self) -> bytes:
        """Waits until the program has ended, and returns its standard output. Errors: `JobFailed`; `KeyboardInterrupt`, raised after the
        program has ended."""
        try:
            code = self._child.wait()
        except KeyboardInterrupt:
            self.stop()
            raise
        finally:
            if self._child.poll() is None:
                self._child.kill()
                self._child.wait()
            self._close()
        if code != 0:
            said = "\n".join(self._said).removeprefix("sailfish: ")
            raise JobFailed(_of_arguments(said) or f"sailfish exited with code {code}", code)
        return self.printed

    def stop(self) -> None:
        """Interrupts the program and waits until it has ended."""
        if self._child.poll() is None:
            _interrupt(self._child)
        self._close()

    def _close(self) -> None:
        assert self._child.stdout is not None and self._child.stderr is not None
        for thread in self._threads:
            thread.join()
        self._child.stdout.close()
        self._child.stderr.close()


def _of_arguments(message: str) -> str:
    """Replaces the options of the program in a message by the arguments of this package."""
    return _OPTION.sub(lambda found: found[1] + _ARGUMENTS.get(found[2], found[2]), message)


def _ends_with_us() -> Callable[[], object] | None:
    """Returns a function for the child process to call before it starts the program, or None outside Linux. It makes the kernel interrupt
    the program when this process dies, so that the job stops."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Interrupts the program and waits until it has ended. A second interrupt stops it at once, a third kills it."""
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
            # Keep reading the messages of the program, even if the terminal is gone.
            with contextlib.suppress(OSError, ValueError):
                display.say(text) if rows is None else display.show(rows)
    if display is not None:
        with contextlib.suppress(OSError, ValueError):
            display.close()
