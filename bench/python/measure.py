"""measure.py RESULT LOG COMMAND...: runs a command and writes its costs to RESULT, as JSON: wall_s, user_s, sys_s, exit.

Processes that outlive the command (such as PySpark's Java) become children of this process, so that their processor time is counted. The
wall time ends with the command.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LEFT_BEHIND_SECONDS = 30.0


def wait_for_all(group: int) -> None:
    """Waits for processes that outlive the command. After a timeout, kills the remaining processes of the group of the command."""
    deadline = time.monotonic() + LEFT_BEHIND_SECONDS
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                os.killpg(group, signal.SIGKILL)
                raise SystemExit("measure.py: processes of the command outlived the timeout and were killed")
            time.sleep(0.01)


def main(result: str, log: str, *command: str) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    with Path(log).open("wb") as output:
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        code = process.wait()
        wall_s = time.monotonic() - start
    wait_for_all(process.pid)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(result).write_text(json.dumps({"wall_s": wall_s, "user_s": used.ru_utime, "sys_s": used.ru_stime, "exit": code}))


if __name__ == "__main__":
    main(*sys.argv[1:])
