"""Tests of the worker process without an engine: its frames, and the text that functions print."""

from __future__ import annotations

import json
import logging
import os
import pdb
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import sailfish as sf
from sailfish import _context, _engine
from sailfish._frames import END, FAILURE, JOB, JOB_VERSION, OUTPUT, RECORDS, WAITS
from sailfish._spec import SPEC_FILE, Format, Source, Spec, dump
from sailfish._steps import Step

PACKAGE = str(Path(sf.__file__).parent.parent)
HEAD = struct.Struct("<IB3x")


def frame(kind: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload), kind) + payload


def task(directory: Path, lines: bytes) -> bytes:
    """Returns the frames of a map task over the lines."""
    job = {"version": JOB_VERSION, "role": "map", "input": {"lines": {"terminator": 10}}, "record_bytes_max": 1 << 20}
    job.update(env={}, work_dir=str(directory))
    return frame(JOB, json.dumps(job).encode()) + frame(RECORDS, struct.pack("<QII", 0, 0, 5) + b"lines" + lines) + frame(END)


def start(directory: Path, function: Callable[[str], object], kind: str = "map") -> subprocess.Popen[bytes]:
    """Starts a worker that applies a function to lines."""
    spec = Spec([Source(None, Format("text"), [Step(kind, function, "map(f)")])], None, "text")
    (directory / SPEC_FILE).write_bytes(dump(spec, ()))
    path = os.pathsep.join([PACKAGE, *sys.path])
    words = [sys.executable, "-m", "sailfish._worker"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, cwd=directory, env={"PYTHONPATH": path, "LANG": "C"}, **pipes)  # type: ignore[call-overload,no-any-return]


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, kind = HEAD.unpack_from(data)
        yield kind, data[HEAD.size : HEAD.size + length]
        data = data[HEAD.size + length :]


def read_frame(stream: IO[bytes]) -> tuple[int, bytes]:
    length, kind = HEAD.unpack(stream.read(HEAD.size))
    return kind, stream.read(length)


def failure(directory: Path, function: Callable[[str], object], kind: str = "map") -> str:
    """Returns the failure message of a worker that runs a function."""
    said, _ = start(directory, function, kind).communicate(task(directory, b"a\n"), timeout=30)
    (reason,) = [json.loads(payload) for kind, payload in frames(said) if kind == FAILURE]
    return str(reason["message"])


def prints(line: str) -> str:
    print("printed ä", line)
    print("\udc80", end="")
    sys.stderr.write("half a line")
    logging.warning("logged")
    warnings.warn("warned", stacklevel=1)
    return line


def test_output_is_flushed_when_task_ends(tmp_path: Path) -> None:
    worker = start(tmp_path, prints)
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stderr is not None
    worker.stdin.write(task(tmp_path, b"a\n"))
    worker.stdin.flush()
    assert read_frame(worker.stdout)[0] == OUTPUT
    assert read_frame(worker.stdout) == (END, WAITS)
    # The worker waits for another task. All output of the first task is flushed already.
    said = b""
    while b"reporter:end" not in said:
        said += os.read(worker.stderr.fileno(), 1 << 16)
    for text in ("printed ä a\n", "\\udc80", "half a line", "WARNING:root:logged\n", "UserWarning: warned\n"):
        assert text.encode() in said
    worker.communicate(timeout=30)


def fails(line: str) -> str:
    prints(line)
    raise ValueError("failed")


def test_output_is_flushed_when_task_fails(tmp_path: Path) -> None:
    worker = start(tmp_path, fails)
    said = worker.communicate(task(tmp_path, b"a\n"), timeout=30)[1].decode()
    for text in ("printed ä a\n", "half a line", "WARNING:root:logged\n", "UserWarning: warned\n"):
        assert text in said


def logs_of(job: int) -> str:
    ran = subprocess.run([_engine.program(), "logs", str(job)], capture_output=True, text=True, check=True)
    return ran.stderr


def test_output_is_in_the_logs(tmp_path: Path) -> None:
    result = sf.from_iterable(["a"]).map(prints).write_text(tmp_path / "out")
    logs = logs_of(result.report["job"])
    for text in ("map 0: printed ä a\n", "half a line", "WARNING:root:logged\n", "UserWarning: warned\n"):
        assert text in logs
    with pytest.raises(sf.JobFailed, match=r"(?s)printed ä a\n.*Traceback") as failed:
        sf.from_iterable(["a"]).map(fails).collect()
    assert "ValueError: failed" in str(failed.value)


def leaves_a_thread(line: str) -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return line


def test_thread_ends_with_its_task(tmp_path: Path) -> None:
    worker = start(tmp_path, leaves_a_thread)
    said, _ = worker.communicate(task(tmp_path, b"a\n"), timeout=30)
    assert worker.returncode == 0
    assert [kind for kind, _ in frames(said)] == [OUTPUT, END]
    begun = time.monotonic()
    assert sf.from_iterable(["a"]).map(leaves_a_thread).collect() == ["a"]
    assert time.monotonic() - begun < 60


def breaks(line: str) -> None:
    breakpoint()


def test_breakpoint_reports_the_missing_terminal(tmp_path: Path) -> None:
    said = failure(tmp_path, breaks)
    assert "functions run in processes without a terminal" in said
    assert "call the function in plain Python" in said
    assert "functions run in processes without a terminal" in failure(tmp_path, lambda line: pdb.set_trace())


def test_generator_as_item_is_refused(tmp_path: Path) -> None:
    said = failure(tmp_path, lambda line: (letter for letter in line))
    assert said == "the map(f) function, given lines at byte 0, yielded a generator: use flat_map for a function that yields items"


def test_nothing_is_counted_outside_jobs(capfd: pytest.CaptureFixture[str]) -> None:
    sf.status("half way")
    sf.counter("lines")
    assert capfd.readouterr() == ("", "")
    assert not _context._counts
    with pytest.raises(ValueError, match="is not a valid counter name"):
        sf.counter("a,b")


def test_generator_functions_are_refused() -> None:
    def letters(text: str) -> Iterator[str]:
        yield from text

    texts = sf.from_iterable(["ab"])
    pairs = sf.from_iterable([(1, "ab")])
    flows: dict[str, Callable[[], Any]] = {
        "map": lambda: texts.map(letters),
        "filter": lambda: texts.filter(letters),
        "key_by": lambda: texts.key_by(letters),
        "map_values": lambda: pairs.map_values(letters),
        "group_by().map": lambda: pairs.group_by().map(group_that_yields),
        "group_by().map_values": lambda: pairs.group_by().map_values(group_values_that_yield),
    }
    for name, flow in flows.items():
        with pytest.raises(TypeError) as refused:
            flow()
        assert str(refused.value).startswith(f"{name} takes a function that returns a value, but ")
        assert str(refused.value).endswith(" yields: use flat_map for a function that yields items")
    assert texts.flat_map(letters).collect() == ["a", "b"]
    with pytest.raises(sf.JobFailed, match="use flat_map"):
        pairs.map(lambda pair: (letter for letter in pair[1])).reduce_by_key(max).collect()  # type: ignore[misc]
    with pytest.raises(sf.JobFailed, match=r"lambda of line \d+\) function yielded a generator: use flat_map"):
        pairs.reduce_by_key(max).map(lambda pair: (letter for letter in pair[1])).collect()


def group_that_yields(key: int, values: Iterator[str]) -> Iterator[str]:
    yield from values


def group_values_that_yield(values: Iterator[str]) -> Iterator[str]:
    yield from values
