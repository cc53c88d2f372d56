"""HTML of datasets and results for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

#: Sizes of the picture, in pixels.
_WIDTH, _ROW = 640, 18
_LABEL = 150
#: The colour of each phase.
_COLOURS = {"map": "#4c78a8", "seal": "#b0b0b0", "merge": "#e0a030", "reduce": "#54a24b", "commit": "#b07aa1"}
#: At most this many counters are shown.
_COUNTERS_MAX = 50


def of_result(output: str, reports: list[dict[str, Any]]) -> str:
    """Returns a table of the stages of a job, a timeline of its phases, and its counters."""
    heads = ("stage", "input", "map tasks", "between", "reduce tasks", "output", "seconds", "proof")
    table = _table(heads, (_row(report) for report in reports))
    counted: dict[str, int] = {}
    for report in reports:
        for name, count in report["counters"].items():
            counted[name] = counted.get(name, 0) + count
    counters = _table(("counter", "count"), ((name, f"{count:,}") for name, count in list(counted.items())[:_COUNTERS_MAX]))
    return f"<div><p>Output: <code>{escape(output)}</code></p>{table}{_timeline(reports)}{counters if counted else ''}</div>"


def of_plan(plan: str) -> str:
    """Returns the description of the stages of a dataflow."""
    return f"<pre>{escape(plan)}</pre>"


def _row(report: dict[str, Any]) -> tuple[str, ...]:
    shuffle, reduce = report.get("shuffle") or {}, report.get("reduce") or {}
    seconds = sum(phase["wall_seconds"] for phase in report["phases"])
    proof = report.get("proof") or {}
    return (
        report["name"],
        # Bytes and not records, because a record between stages is a batch of items.
        _bytes(report["input"]["bytes"]),
        f"{report['map']['tasks']:,}",
        f"{_bytes(shuffle.get('bytes', 0))}, {shuffle.get('records', 0):,} pairs",
        f"{reduce.get('tasks', 0):,}",
        f"{_bytes(sum(part['bytes'] for part in report['parts']))}, {parts(len(report['parts']))}",
        f"{seconds:.2f}",
        "agrees" if proof.get("agrees") else "none" if not proof else "DOES NOT AGREE",
    )


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _timeline(reports: list[dict[str, Any]]) -> str:
    """Returns a timeline of the phases of all stages. Phases follow each other, because a stage begins when the stages that it reads are
    done."""
    total = sum(phase["wall_seconds"] for report in reports for phase in report["phases"]) or 1.0
    scale = (_WIDTH - _LABEL) / total
    shapes, at = [], 0.0
    for number, report in enumerate(reports):
        top = number * _ROW
        shapes.append(f'<text x="0" y="{top + 13}" font-size="11" fill="currentColor">{escape(report["name"][:24])}</text>')
        for phase in report["phases"]:
            seconds, name = phase["wall_seconds"], phase["stage"]
            told = f"<title>{escape(name)}: {seconds:.2f} s, {phase['tasks']} tasks</title>"
            place = f'x="{_LABEL + at * scale:.1f}" y="{top + 2}" width="{max(0.5, seconds * scale):.1f}" height="{_ROW - 4}"'
            shapes.append(f'<rect {place} fill="{_COLOURS.get(name, "#888888")}">{told}</rect>')
            at += seconds
    phases = {phase["stage"] for report in reports for phase in report["phases"]}
    painted = [(name, colour) for name, colour in _COLOURS.items() if name in phases]
    names = "".join(f'<span style="color:{colour}">&#9632;</span> {name} &#160; ' for name, colour in painted)
    height = _ROW * len(reports)
    return f'<svg width="{_WIDTH}" height="{height}" role="img">{"".join(shapes)}</svg><p>{names}together {total:.2f} s</p>'


def parts(count: int) -> str:
    """Returns a number of parts with its noun: `1 part`, `2 parts`."""
    return f"{count:,} part{'' if count == 1 else 's'}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("TB is the last unit")
