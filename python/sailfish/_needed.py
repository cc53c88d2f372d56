"""Optional libraries."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, what: str) -> Any:
    """Imports an optional library. Error: `ModuleNotFoundError`, which says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ModuleNotFoundError(f"{what} needs {package}: pip install {package}", name=package) from error
