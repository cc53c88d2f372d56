"""Fixtures: a server with nodes that are processes of their own, and runs of Snakemake on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sailfish._engine import program

NODES = 3
SLOTS = 2

# Processes of a shell that runs in the background ignore Ctrl-C, and so would those of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


def skip(what: str, why: str) -> None:
    """Skips a test, and names it at the end of the checks."""
    if "SAILFISH_SKIPPED" in os.environ:
        with open(os.environ["SAILFISH_SKIPPED"], "a") as skipped:
            skipped.write(f"{what}: {why}\n")
    pytest.skip(why)


class Site:
    """A server and its nodes, of which the server requires tokens if it is `guarded`: programs run in a sandbox without network."""

    def __init__(self, directory: Path, is_guarded: bool = False) -> None:
        self.directory = directory
        self._is_guarded = is_guarded
        self._nodes: list[subprocess.Popen[str]] = []
        self._server = self._start_server("127.0.0.1:0")
        try:
            assert self._server.stdout is not None
            self.url = self._server.stdout.readline().strip()
            if is_guarded:
                for user, role in [("ann", "user"), ("rack", "node")]:
                    self._run_as("state/admin", "token", "create", f"--user={user}", f"--role={role}", f"--output={self.token(user)}")
            for number in range(NODES):
                self.start_node(f"node-{number}")
        except BaseException:
            self.stop()
            raise

    def token(self, name: str) -> str:
        return str(self.directory / f"{name}.token") if self._is_guarded else ""

    def _start_server(self, listen: str) -> subprocess.Popen[str]:
        tokens = "--require-tokens" if self._is_guarded else "--no-tokens"
        words = ["server", tokens, "--listen", listen, "--state", str(self.directory / "state")]
        return self._start(words, stdout=subprocess.PIPE)

    def start_node(self, name: str) -> None:
        """Starts a node. Skips the test if its kernel has no sandbox."""
        words = ["node", f"--server={self.url}", f"--slots={SLOTS}", "--memory=1G", "--shuffle-reserve=0"]
        if self._is_guarded:
            # The environment of Snakemake, its Python, and what that imports.
            read = {sys.prefix, sys.base_prefix, *(each for each in sys.path if os.path.isdir(each))}
            words += [f"--token-file={self.token('rack')}", *(f"--sandbox-read={each}" for each in sorted(read))]
        else:
            # That may lie in /tmp, which contained programs do not see.
            words.append("--no-contain")
        node = self._start([*words, f"--name={name}", f"--disk={self.directory / name}"], stderr=subprocess.PIPE)
        self._nodes.append(node)
        assert node.stderr is not None
        said = ""
        while (line := node.stderr.readline()) and "joined" not in line:
            said += line
        if "this kernel has no sandbox" in said:
            skip("Snakemake in a sandbox", said.strip())
        assert line, f"{name} has not joined: {said}"

    def _start(self, words: list[str], **pipes: Any) -> subprocess.Popen[str]:
        return subprocess.Popen([program(), *words], text=True, **{"stderr": subprocess.DEVNULL, **pipes})

    def kill_node(self, number: int) -> None:
        self._nodes[number].kill()
        self._nodes[number].wait()

    def restart_server(self) -> None:
        self._server.kill()
        self._server.wait()
        self._server = self._start_server(self.url.removeprefix("http://"))
        assert self._server.stdout is not None
        self._server.stdout.readline()

    def run(self, *words: str) -> str:
        return self._run_as("ann", *words)

    def _run_as(self, token: str, *words: str) -> str:
        credentials = [f"--token-file={self.token(token)}"] if self._is_guarded else []
        ran = subprocess.run([program(), *words, f"--server={self.url}", *credentials], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def put(self, source: Path, name: str) -> None:
        self.run("files", "put", str(source), name)

    def read(self, name: str) -> str:
        return self.run("files", "cat", name)

    def names(self, name: str) -> list[str]:
        """Returns the names of the files below a name."""
        rows = [json.loads(line) for line in self.run("files", "ls", "--recursive", "--json", name).splitlines()]
        return sorted(row["name"] for row in rows if row["kind"] == "file")

    def jobs(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.run("jobs", "--json", "--limit=100000"))
        return rows

    def stop(self) -> None:
        for process in [*self._nodes, self._server]:
            process.send_signal(signal.SIGINT)
        for process in [*self._nodes, self._server]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


@pytest.fixture(autouse=True, scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sets separate directories for the engine and for Snakemake's cache."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ.pop("SAILFISH_SERVER", None)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, state: None) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.stop()


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """Yields a site whose processes the test kills."""
    site = Site(tmp_path / "site")
    yield site
    site.stop()


class Run:
    """A run of Snakemake in a directory."""

    def __init__(self, directory: Path, site: Site, *words: str) -> None:
        given = ["--executor=sailfish", f"--sailfish-server={site.url}", "--jobs=50", "--seconds-between-status-checks=1"]
        given += ["--default-storage-provider=sailfish", f"--default-storage-prefix=sailfish://runs/{directory.name}"]
        program = [sys.executable, "-m", "snakemake", *given, *words]
        environment = {**os.environ, "SAILFISH_TOKEN_FILE": site.token("ann")}
        if not site.token("ann"):
            del environment["SAILFISH_TOKEN_FILE"]
        self._process = subprocess.Popen(
            program, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.said = ""

    def wait_for(self, text: str) -> None:
        """Waits until Snakemake prints a line with a text."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said += line
            if text in line:
                return
        raise AssertionError(f"it ended without {text!r}:\n{self.said}")

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Waits for the end and returns the exit code."""
        assert self._process.stdout is not None
        self.said += self._process.stdout.read()
        return self._process.wait()

    def expect_success(self) -> str:
        assert self.end() == 0, self.said
        return self.said
