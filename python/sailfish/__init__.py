"""MapReduce, dataflows and workflows in Python, run by the Sailfish engine.

import sailfish as sf

counts = sf.MapReduce("books/", lambda line: ((word, 1) for word in line.split()), sum, combine=sum).run()
print(dict(counts))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__

if TYPE_CHECKING:
    from . import files
    from ._context import counter, status
    from ._dataset import Dataset, Groups, from_iterable, read_csv, read_jsonl, read_parquet, read_text
    from ._engine import EngineMissing, JobFailed
    from ._job import MapReduce
    from ._result import Result
    from ._ship import CannotInstall
    from ._spec import CannotSend
    from ._workflow import Workflow, WorkflowRun
    from ._workflow_files import WorkflowFile, WorkflowStep

__all__ = [
    "CannotInstall",
    "CannotSend",
    "Dataset",
    "EngineMissing",
    "Groups",
    "JobFailed",
    "MapReduce",
    "Result",
    "Workflow",
    "WorkflowFile",
    "WorkflowRun",
    "WorkflowStep",
    "__version__",
    "counter",
    "files",
    "from_iterable",
    "read_csv",
    "read_jsonl",
    "read_parquet",
    "read_text",
    "status",
]

# Modules are imported on first use, so that a worker does not import modules that only a client needs.
_PLACES = {
    "CannotInstall": "_ship",
    "CannotSend": "_spec",
    "Dataset": "_dataset",
    "EngineMissing": "_engine",
    "Groups": "_dataset",
    "JobFailed": "_engine",
    "MapReduce": "_job",
    "Result": "_result",
    "Workflow": "_workflow",
    "WorkflowFile": "_workflow_files",
    "WorkflowRun": "_workflow",
    "WorkflowStep": "_workflow_files",
    "counter": "_context",
    "from_iterable": "_dataset",
    "read_csv": "_dataset",
    "read_jsonl": "_dataset",
    "read_parquet": "_dataset",
    "read_text": "_dataset",
    "status": "_context",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "files":
        return importlib.import_module(".files", __name__)
    if name not in _PLACES:
        raise AttributeError(f"module 'sailfish' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
