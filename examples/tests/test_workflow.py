"""The workflow against the model of the job that counts the same."""

from __future__ import annotations

from pathlib import Path

import log_count
import models
import workflow


def test_workflow_gives_what_the_model_gives(tmp_path: Path) -> None:
    logs, results = tmp_path / "logs", tmp_path / "results"
    results.mkdir()
    log_count.generate(logs, 200_000, 7)
    expected = sorted(models.log_count(logs), key=lambda item: (-item[1], item[0]))
    wf = workflow.workflow(sorted(logs.glob("*.txt")), results)
    assert len(wf.steps) > 3
    wf.run()
    total, most = (step.output().read_text().splitlines() for step in wf.steps[-2:])
    lines = [f"{page}\t{requests}" for page, requests in expected]
    assert sorted(total) == sorted(lines)
    assert most == lines[: workflow.PAGES_SHOWN]
    assert sorted(path.name for path in results.iterdir()) == [".sailfish", "counts", "most", "total"]
    assert list((results / "counts").iterdir()) == []
