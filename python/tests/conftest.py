"""Jobs of the tests run with the engine that was built, and keep their state beside them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A state of its own for the engine."""
    import os

    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
