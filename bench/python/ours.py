"""ours.py JOB INPUT OUTPUT [SLOTS [MEMORY]]: runs a job by Sailfish. Writes lines `key TAB value` below OUTPUT.

The reports of its stages go to OUTPUT.reports.json.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import command

#: Jobs that are not the function `flow` of the module with the name of the job.
FLOWS = {"mean_folded": ("mean_by_key", "flow_folded"), "word_frequencies": ("word_count", "flow_frequencies")}


def main(job: str, inputs: str, output: str, slots: str | None = None, memory: str | None = None) -> None:
    module, function = FLOWS.get(job, (job, "flow"))
    flow = getattr(importlib.import_module(module), function)
    lines = flow(Path(inputs)).map(command.line)
    result = lines.write_text(output, progress=False, sync=False, slots=None if slots is None else int(slots), memory=memory)
    Path(f"{output}.reports.json").write_text(json.dumps(result.reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
