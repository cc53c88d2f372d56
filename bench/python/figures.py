"""Figures of our own jobs, like section 6.3 of the Sailfish paper: skew in map and reduce, and the number of reduce tasks.

    figures.py [--size 500M] [--work DIR] [--output bench/results/figures]

generates the inputs, runs the jobs with ours.py, queries the engine (`sailfish timeline`, `sailfish state` and the reports), writes the
facts to facts.json, and draws them. `--draw` only draws facts.json. Needs an interpreter with sailfish and matplotlib.

Figure 12: run times of the map tasks of NdayModel. Two more pictures show output and time of the map tasks of NdayModel and LogProc, to
tell slow tasks from large tasks. Figure 13: bytes of each I-file of LogRead. Figure 14: reduce tasks of each I-file of LogRead. A last
picture shows the number of reduce tasks of ClickAttribution as its input grows from 25 % to 100 %.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import rows

# The modules of the examples generate the inputs.
import command  # isort: skip

SEED = 1
PARTS_PERCENT = (25, 50, 75, 100)
#: With one slot and little memory there is one I-file, and a reduce task has a fixed size, as in the paper, instead of a share of the data.
GROWTH_SETTINGS, GROWTH_SIZES = ("1", "256M"), 2
#: With many slots a reduce task is smaller than a hot I-file.
READ_SLOTS = "8"
#: With many slots a map task is small, so that the short files of the day are not packed into one or two tasks.
MODEL_SLOTS, MODEL_SIZES = "16", 4

Facts = dict[str, Any]


def program() -> str:
    """Returns the path of the engine that the package uses."""
    beside = Path(sys.executable).parent / "sailfish"
    return os.environ.get("SAILFISH_PROGRAM") or (str(beside) if beside.exists() else "sailfish")


def asked(state: Path, *words: str) -> Any:
    """Returns the JSON that a command of the engine prints."""
    run = subprocess.run([program(), words[0], "--state", str(state), "--json", *words[1:]], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def facts_of(report: Facts, state: Path) -> Facts:
    """Returns the facts to draw about a job: times of its map tasks, bytes and reduce tasks of its I-files."""
    job = str(report["job"])
    attempts = asked(state, "timeline", job)["attempts"]
    maps = [each for each in attempts if each["stage"] == "map" and each["state"] == "succeeded"]
    put_out = f"select map_task, sum(bytes) as bytes from source_sums where job = {job} group by map_task order by map_task"
    map_bytes = {int(row["map_task"]): int(row["bytes"]) for row in asked(state, "state", "--limit", "100000", put_out)}
    seconds = {int(each["task"]): sum(span["to_seconds"] - span["from_seconds"] for span in each["spans"]) for each in maps}
    # A run that was merged into another run is counted there.
    select = f"select ifile, sum(record_bytes) as bytes from runs where job = {job} and replaced_by is null group by ifile order by ifile"
    ifile_bytes = {int(row["ifile"]): int(row["bytes"]) for row in asked(state, "state", "--limit", "100000", select)}
    tasks = Counter(ifile for task in report["plan"] for ifile in task["ifiles"])
    ifiles = range(report["layout"]["ifile_count"])
    return {
        "map_seconds_bytes": sorted((taken, map_bytes.get(task, 0)) for task, taken in seconds.items()),
        "ifile_bytes": [ifile_bytes.get(ifile, 0) for ifile in ifiles],
        "ifile_reduce_tasks": [tasks[ifile] for ifile in ifiles],
        "target_bytes": report["reduce"]["target_bytes"],
        "reduce_tasks": report["reduce"]["tasks"],
        "input_bytes": report["input"]["bytes"],
        "shuffle_bytes": report["shuffle"]["bytes"],
    }


def run_job(job: str, size_bytes: int, work: Path, *settings: str) -> Facts:
    """Generates an input, runs a job on it, removes input and output, and returns the facts about the job."""
    places = rows.Places(work, work, sys.executable)
    inputs, output = work / "inputs", work / "output"
    for directory in (inputs, output):
        shutil.rmtree(directory, ignore_errors=True)
    # Plain files are split into equal pieces. gzip files are not split, so small files are small tasks.
    importlib.import_module(job).generate(inputs, size_bytes, SEED, job == "nday_model")
    subprocess.run([*rows.COMMANDS["ours"](places, job, inputs, output), *settings], env=places.environment(), cwd=work, check=True)
    # A dataflow may have several stages. The stage with the largest shuffle is the stage that reads the input.
    report = max(json.loads(Path(f"{output}.reports.json").read_text()), key=lambda report: int(report["shuffle"]["bytes"]))
    for directory in (inputs, output):
        shutil.rmtree(directory)
    print(f"{job}: {size_bytes / 1e6:.0f} MB, {report['reduce']['tasks']} reduce tasks", flush=True)
    return facts_of(report, Path(places.environment()["XDG_STATE_HOME"]) / "sailfish")


def collect(size_bytes: int, work: Path) -> Facts:
    sizes = {part: GROWTH_SIZES * size_bytes * part // 100 for part in PARTS_PERCENT}
    growth = {str(part): run_job("click_attribution", size, work, *GROWTH_SETTINGS) for part, size in sizes.items()}
    return {
        "nday_model": run_job("nday_model", MODEL_SIZES * size_bytes, work, MODEL_SLOTS),
        "log_proc": run_job("log_proc", size_bytes, work),
        "log_read": run_job("log_read", size_bytes, work, READ_SLOTS),
        "growth": growth,
    }


def draw(facts: Facts, output: Path) -> None:
    """Draws a picture for each figure, as SVG."""
    # The bytes of a picture must be reproducible: no date, and no random ids.
    import matplotlib  # type: ignore[import-not-found,unused-ignore]

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sailfish"
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    def picture(name: str, title: str, across: str, up: str, plot: str, *columns: Any) -> None:
        figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
        getattr(axes, plot)(*columns)
        axes.set(title=title, xlabel=across, ylabel=up)
        axes.set_ylim(bottom=0)
        if plot == "scatter":
            axes.set_xlim(left=0)
        figure.savefig(output / f"{name}.svg", metadata={"Date": None})
        pyplot.close(figure)

    model, proc = ([*zip(*facts[job]["map_seconds_bytes"])] for job in ("nday_model", "log_proc"))
    seconds = model[0]
    done = [(place + 1) / len(seconds) for place in range(len(seconds))]
    picture("12-nday-model-map-tasks", "NdayModel: map tasks", "seconds", "part of the tasks that took no longer", "step", seconds, done)
    for name, title, (taken, put_out) in (("12-nday-model", "NdayModel", model), ("12-log-proc", "LogProc", proc)):
        megabytes = [each / 1e6 for each in put_out]
        picture(f"{name}-map-output", f"{title}: map tasks", "MB put out", "seconds", "scatter", megabytes, taken)
    reads = facts["log_read"]
    ifiles = range(len(reads["ifile_bytes"]))
    megabytes = [each / 1e6 for each in reads["ifile_bytes"]]
    picture("13-log-read-ifile-bytes", "LogRead: size of each I-file", "I-file", "MB", "bar", ifiles, megabytes)
    tasks = reads["ifile_reduce_tasks"]
    picture("14-log-read-reduce-tasks", "LogRead: reduce tasks of each I-file", "I-file", "reduce tasks", "bar", ifiles, tasks)
    grown = facts["growth"]
    labels = [f"{part} %" for part in grown]
    counts = [each["reduce_tasks"] for each in grown.values()]
    picture("click-attribution-growth", "ClickAttribution grows: reduce tasks", "input", "reduce tasks", "bar", labels, counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=command.size_of, default=command.size_of("500M"), help="bytes of each job's input (500M)")
    parser.add_argument("--work", type=Path, default=os.environ.get("BENCH_DIR", "target/bench-python"), help="inputs, outputs and state")
    parser.add_argument("--output", type=Path, default=rows.ROOT / "bench" / "results" / "figures")
    parser.add_argument("--draw", action="store_true", help="only draw the facts in facts.json")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    facts = arguments.output / "facts.json"
    if not arguments.draw:
        work = arguments.work.resolve() / "figures"
        work.mkdir(parents=True, exist_ok=True)
        facts.write_text(json.dumps(collect(arguments.size, work), indent=1) + "\n")
    draw(json.loads(facts.read_text()), arguments.output)


if __name__ == "__main__":
    main()
