"""Fixtures: a state directory for the engine, and a server with two nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sailfish import _engine


@pytest.fixture(autouse=True, scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sets a separate state directory for the engine."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, state: None) -> Iterator[str]:
    """Yields the URL of a server with two nodes."""
    directory = tmp_path_factory.mktemp("cluster")
    words = [_engine.program(), "local", "--nodes", "2", "--listen", "127.0.0.1:0", "--dir", str(directory)]
    # PATH begins with the Python that runs the tests, so that the nodes find it.
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join([scripts, os.environ["PATH"]])}
    cluster = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert cluster.stdout is not None
    try:
        yield cluster.stdout.readline().strip()
    finally:
        cluster.send_signal(signal.SIGINT)
        cluster.wait()
        cluster.stdout.close()
