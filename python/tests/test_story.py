"""The way of a new user through stored files: put a directory, run a job over it, and read the result in pandas and through a mount; on one
machine, and in a cluster in which a node is killed for good while the job runs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sailfish as sf
from sailfish import _engine

LINES = 40_000


def write_logs(directory: Path) -> dict[str, int]:
    """Writes a few files, and returns the counts of their words."""
    counts: dict[str, int] = {}
    for number in range(6):
        words = [f"w{(line * 7 + number) % 53}" for line in range(LINES)]
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        path = directory / f"day-{number % 2}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(words) + "\n")
    return counts


def read_with_pandas(url: str, server: str | None) -> dict[str, int]:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("fsspec")
    frame = pandas.read_csv(url, sep="\t", names=["word", "count"], storage_options={"server": server})
    return dict(zip(frame["word"], frame["count"], strict=True))


def read_through_mount(directory: Path, place: list[str]) -> dict[str, int] | None:
    """Returns None, and says so, where nothing can be mounted."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        reason = f"the mount of the story did not run: /dev/fuse cannot be opened: {error}"
        print(reason)
        if listed := os.environ.get("SAILFISH_SKIPPED"):
            with open(listed, "a", encoding="utf-8") as skipped:
                skipped.write(reason + "\n")
        return None
    directory.mkdir()
    mount = subprocess.Popen([_engine.program(), "mount", str(directory), *place], stderr=subprocess.PIPE, text=True)
    assert mount.stderr is not None
    try:
        said = iter(mount.stderr.readline, "")
        assert any("are mounted at" in line for line in said)
        rows = (line.split("\t") for line in (directory / "results" / "counts").read_text().splitlines())
        return {word: int(count) for word, count in rows}
    finally:
        mount.send_signal(signal.SIGINT)
        mount.wait()
        mount.stderr.close()


def run_job(place: list[str], meanwhile: Callable[[], None], directory: Path) -> None:
    """Counts words with a slow mapper. `meanwhile` happens while it runs."""
    program = directory / "mapper.sh"
    program.write_text("#!/bin/sh\nsleep 2\nexec sed 's/$/\\t1/'\n")
    program.chmod(0o755)
    files = ["--input", "files:logs", "--output", "files:results/counts"]
    words = [_engine.program(), "run", *files, "--mapper", str(program), "--file", str(program), "--reducer", "builtin:sum"]
    job = subprocess.Popen([*words, *place], stderr=subprocess.PIPE, text=True)
    while job.poll() is None and not is_running(place):
        pass
    meanwhile()
    _, said = job.communicate()
    assert job.returncode == 0, said


def is_running(place: list[str]) -> bool:
    listed = subprocess.run([_engine.program(), "jobs", "--json", *place], capture_output=True, text=True)
    return '"running"' in listed.stdout


def follow_the_story(tmp_path: Path, server: str | None, meanwhile: Callable[[], None]) -> None:
    counts = write_logs(tmp_path / "logs")
    place = [] if server is None else ["--server", server]
    sf.files.put(tmp_path / "logs", "logs", server=server)
    assert [each.name for each in sf.files.ls("logs", server=server)] == ["logs/day-0", "logs/day-1"]
    run_job(place, meanwhile, tmp_path)
    assert read_with_pandas("sailfish://results/counts", server) == counts
    with sf.files.open("results/copy", "w", server=server) as copy, sf.files.open("results/counts", "r", server=server) as source:
        copy.write(source.read())
    assert read_with_pandas("sailfish://results/copy", server) == counts
    mounted = read_through_mount(tmp_path / "mounted", place)
    assert mounted is None or mounted == counts


def test_story_on_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SAILFISH_SERVER", raising=False)
    follow_the_story(tmp_path, None, lambda: None)


def node_processes(local: int) -> list[int]:
    """Returns the processes of the four nodes that a process has started: a child counts when it runs a node."""
    deadline = time.monotonic() + 60
    while True:
        children = Path(f"/proc/{local}/task/{local}/children").read_text().split()
        nodes = [int(child) for child in children if b"\0node\0" in Path(f"/proc/{child}/cmdline").read_bytes()]
        if len(nodes) == 4 or time.monotonic() > deadline:
            return nodes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[int]]]:
    """Yields the URL of a server with four nodes in two racks, and the processes of the nodes."""
    # The disk of a test machine may be nearly full.
    size = ["--nodes", "4", "--racks", "2", "--shuffle-reserve", "0"]
    words = [_engine.program(), "local", *size, "--listen", "127.0.0.1:0", "--dir", str(tmp_path / "cluster")]
    local = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert local.stdout is not None
    try:
        url = local.stdout.readline().strip()
        yield url, node_processes(local.pid)
    finally:
        local.send_signal(signal.SIGINT)
        local.wait()
        local.stdout.close()


def test_story_in_a_cluster(tmp_path: Path, cluster: tuple[str, list[int]]) -> None:
    url, nodes = cluster
    assert len(nodes) == 4
    follow_the_story(tmp_path, url, lambda: os.kill(nodes[1], signal.SIGKILL))
