"""Optional libraries."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, what: str) -> Any:
    """Imports and returns an optional library that `what` needs. Error: `ModuleNotFoundError` with the command to install the library."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ModuleNotFoundError(f"{what} needs {package}: pip install {package}", name=package) from error
