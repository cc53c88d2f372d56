"""The Python benchmark: medians of interleaved runs of Sailfish and its peers, on the same input and with the same functions. The outputs
of all runs are compared.

bench/python.sh installs the peers and starts the benchmark. Each run is a separate process. Raw results go to
bench/results/DATE-python-runs.tsv, the table to bench/results/DATE-python.txt. Results of a trial with small inputs stay in the working
directory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import digest
import rows
import table

# The modules of the examples generate the inputs; `rows` imports them by name.
import command  # isort: skip

#: The columns of the raw results.
COLUMNS = (
    *("time", "commit", "row", "contender", "run", "bytes"),
    *("wall_s", "user_s", "sys_s", "rss_mib", "map_s", "reduce_s", "exit", "lines", "digest", "load"),
)
SIZE_BYTES = 500_000_000
SEED = 1
IMPORTS = 10
#: The limit of memory to touch before each run, because the host of a virtual machine reclaims idle pages and returns them slowly.
TOUCHED_BYTES_MAX = 6_000_000_000


class Failed(Exception):
    """Error of a run that failed, or whose output differs from the other outputs."""


class Benchmark:
    """The settings of a benchmark, and its results so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.places = rows.Places(arguments.work.resolve(), arguments.peers.resolve(), arguments.python)
        self.runs: int = arguments.runs
        self.is_trial = arguments.scale != 1 or bool(arguments.size)
        self.sizes = {job: int(size / arguments.scale) for job, size in sizes(arguments.size).items()}
        self.chosen = [row for row in rows.ROWS if row.job in arguments.rows]
        self.does_import = rows.IMPORT in arguments.rows
        self.results: list[dict[str, str]] = []
        self.reasons: dict[tuple[str, str], str] = {}
        self.failures: list[str] = []
        directory = self.places.work if self.is_trial else rows.ROOT / "bench" / "results"
        directory.mkdir(parents=True, exist_ok=True)
        self.places.work.mkdir(parents=True, exist_ok=True)
        #: The start date of the benchmark.
        self.date = time.strftime("%Y-%m-%d", time.gmtime())
        self.raw, self.table = directory / f"{self.date}-python-runs.tsv", directory / f"{self.date}-python.txt"
        self.commit = said(["git", "-C", str(rows.ROOT), "rev-parse", "--short=12", "HEAD"])
        if not self.is_trial:
            self.results += self.measured(arguments.rows)

    def measured(self, without: list[str]) -> list[dict[str, str]]:
        """Returns today's results of the rows that this benchmark does not measure, of the last commit of each row."""
        if not self.raw.exists():
            return []
        lines = [dict(zip(COLUMNS, line.split("\t"))) for line in self.raw.read_text().splitlines()[1:]]
        last = {line["row"]: line["commit"] for line in lines}
        return [line for line in lines if line["commit"] == last[line["row"]] and line["row"] not in without]

    def write(self, result: dict[str, str]) -> None:
        self.results.append(result)
        is_new = not self.raw.exists()
        with self.raw.open("a") as file:
            if is_new:
                print(*COLUMNS, sep="\t", file=file)
            print(*(result[column] for column in COLUMNS), sep="\t", file=file)

    def result(self, row: str, contender: str, run: int, **figures: str) -> dict[str, str]:
        known = {"time": time.strftime("%H:%M:%S", time.gmtime()), "commit": self.commit, "load": f"{os.getloadavg()[0]:.2f}"}
        return {**dict.fromkeys(COLUMNS, "-"), **known, "row": row, "contender": contender, "run": str(run), **figures}


def sizes(given: list[str]) -> dict[str, float]:
    """Returns the bytes of input of each row. `given`: options of the form `SIZE` for all rows, or `ROW=SIZE` for one row."""
    found = {row.job: float(SIZE_BYTES) for row in rows.ROWS}
    for each in given:
        job, _, size = each.rpartition("=")
        found.update({job: float(command.size_of(size))} if job else dict.fromkeys(found, float(command.size_of(size))))
    return found


def said(words: list[str]) -> str:
    """Returns the output of a program; an empty text if it fails."""
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def prepare(places: rows.Places, inputs: Path, output: Path, touched_bytes: int) -> None:
    """Prepares the same state before each run: no old output, no dirty pages, touched memory, input in the page cache."""
    for directory in (output, spark_events(output)):
        shutil.rmtree(directory, ignore_errors=True)
    os.sync()
    # A separate process touches the memory, so that all of it is freed.
    subprocess.run([places.python, "-c", f"b'1' * {touched_bytes}"], check=True)
    for path in inputs.rglob("*.txt*"):
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass


def phase_seconds(reports: Path) -> dict[str, str]:
    """Returns the seconds of the map phases and of all other phases, from the reports of Sailfish."""
    phases = [phase for report in json.loads(reports.read_text()) for phase in report["phases"]]
    maps, others = ([each["wall_seconds"] for each in phases if (each["stage"] == "map") == is_map] for is_map in (True, False))
    return {"map_s": f"{sum(maps):.3f}", "reduce_s": f"{sum(others):.3f}"}


def spark_events(output: Path) -> Path:
    """Returns the path of Spark's event log, which spark_jobs.py sets."""
    return output.with_name(f"{output.name}.events")


def spark_phase_seconds(events: Path) -> dict[str, str]:
    """Returns the same for Spark: the seconds of stages that read the input, and the seconds of stages after a shuffle."""
    lines = [line for path in events.iterdir() for line in path.read_text().splitlines() if '"SparkListenerStageCompleted"' in line]
    stages = [json.loads(line)["Stage Info"] for line in lines]
    spans_ms: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for stage in stages:
        spans_ms[not stage["Parent IDs"]].append((stage["Submission Time"], stage["Completion Time"]))
    return {"map_s": f"{covered(spans_ms[True]) / 1000:.3f}", "reduce_s": f"{covered(spans_ms[False]) / 1000:.3f}"}


def covered(spans: list[tuple[int, int]]) -> int:
    """Returns the length of the union of the spans, which may overlap because stages of two inputs run at the same time."""
    length, end = 0, 0
    for start, stop in sorted(spans):
        length += max(0, stop - max(start, end))
        end = max(end, stop)
    return length


def run_once(benchmark: Benchmark, row: rows.Row, contender: str, run: int, inputs: Path) -> dict[str, str]:
    """Runs one contender once. Returns its costs and the digest of its output. Error: `Failed`."""
    places, size_bytes = benchmark.places, benchmark.sizes[row.job]
    output, result, log, peak = (places.work / name for name in ("output", "result.json", "log.txt", "peak"))
    prepare(places, inputs, output, min(4 * size_bytes, TOUCHED_BYTES_MAX))
    result.unlink(missing_ok=True)
    peak.unlink(missing_ok=True)
    words = rows.COMMANDS[contender](places, row.job, inputs, output)
    measuring = [sys.executable, str(rows.HERE / "measure.py"), str(result), str(log), *words]
    with subprocess.Popen(measuring, env=places.environment(), cwd=places.work) as measured:
        # The watcher ends when the measured process has ended.
        watcher = subprocess.Popen([sys.executable, str(rows.PEERS / "rss_tree.py"), str(peak), str(measured.pid)])
    watcher.wait()
    if not result.exists():
        raise Failed(f"{row.job}/{contender}: measure.py failed")
    cost = json.loads(result.read_text())
    if cost["exit"] != 0:
        raise Failed(f"{row.job}/{contender}: exit {cost['exit']}: {last_line(log)}")
    lines, digested = digest.digest(output)
    figures = {name: f"{cost[name]:.3f}" for name in ("wall_s", "user_s", "sys_s")}
    figures |= {"rss_mib": f"{int(peak.read_text()) / 1024:.0f}" if peak.exists() else "-", "exit": "0"}
    if contender == "ours":
        figures |= phase_seconds(output.with_name("output.reports.json"))
    if contender == "spark":
        figures |= spark_phase_seconds(spark_events(output))
    return benchmark.result(row.job, contender, run, bytes=str(size_bytes), lines=str(lines), digest=digested, **figures)


def last_line(log: Path) -> str:
    found = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return found[-1] if found else "it said nothing"


def run_row(benchmark: Benchmark, row: rows.Row) -> None:
    """Measures a row: runs every contender once per round, so that temporary noise affects all contenders."""
    size_bytes = benchmark.sizes[row.job]
    inputs = benchmark.places.work / "inputs" / row.job
    shutil.rmtree(inputs, ignore_errors=True)
    print(f"{row.job}: making {size_bytes / 1e6:.0f} MB", flush=True)
    row.generate(inputs, size_bytes, SEED)
    contenders = list(row.contenders)
    for contender in row.contenders:
        if reason := benchmark.places.missing(contender):
            benchmark.reasons[row.job, contender] = f"not run: {reason}"
            contenders.remove(contender)
    expected: tuple[str, str] | None = None
    for run in range(1, benchmark.runs + 1):
        for contender in contenders.copy():
            try:
                result = run_once(benchmark, row, contender, run, inputs)
                found = (result["lines"], result["digest"])
                expected = expected or found
                if found != expected:
                    raise Failed(f"{row.job}/{contender}: {found[0]} lines, digest {found[1]}, where {contenders[0]} has {expected}")
            except Failed as failure:
                benchmark.failures.append(str(failure))
                benchmark.reasons[row.job, contender] = "FAILED"
                contenders.remove(contender)
                print(f"  {failure}", flush=True)
                continue
            benchmark.write(result)
            print(f"  {run} {contender}: {result['wall_s']} s, {result['lines']} lines", flush=True)
    shutil.rmtree(inputs)


def run_import(benchmark: Benchmark) -> None:
    """Measures the time of `import sailfish`: an interpreter that imports it, minus an interpreter that imports nothing."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}

    def seconds(statement: str) -> float:
        start = time.monotonic()
        subprocess.run([benchmark.places.python, "-c", statement], env=environment, check=True)
        return time.monotonic() - start

    try:
        seconds("import sailfish")
    except subprocess.CalledProcessError:
        benchmark.failures.append(f"{rows.IMPORT}: {benchmark.places.python} does not import sailfish")
        return
    pairs = [(seconds("import sailfish"), seconds("pass")) for _ in range(IMPORTS)]
    wall_s = median(pair[0] for pair in pairs) - median(pair[1] for pair in pairs)
    benchmark.write(benchmark.result(rows.IMPORT, "ours", 1, wall_s=f"{wall_s:.4f}", exit="0"))


def arguments() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sailfish"
    names = [*(row.job for row in rows.ROWS), rows.IMPORT]

    def chosen(text: str) -> list[str]:
        wrong = [name for name in text.split(",") if name not in names]
        if wrong:
            raise argparse.ArgumentTypeError(f"there is no row {wrong[0]}: choose from {', '.join(names)}")
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each contender (3)")
    parser.add_argument("--rows", type=chosen, default=names, help=f"measure only these rows: {','.join(names)}")
    parser.add_argument("--size", action="append", default=[], metavar="[ROW=]SIZE", help="bytes of input (500M)")
    parser.add_argument("--scale", type=float, default=1, help="divide all sizes by this number, for a trial")
    parser.add_argument("--python", default=sys.executable, help="interpreter with sailfish; the pool and Hadoop use it too")
    parser.add_argument("--work", type=Path, default=os.environ.get("BENCH_DIR", "target/bench-python"), help="inputs and outputs")
    parser.add_argument("--peers", type=Path, default=os.environ.get("PEERS_DIR", cache / "peers"), help="directory of the peers")
    return parser.parse_args()


def main() -> None:
    benchmark = Benchmark(arguments())
    if benchmark.is_trial:
        print(f"This is a trial: its figures mean little, and stay in {benchmark.places.work}")
    for row in benchmark.chosen:
        run_row(benchmark, row)
    if benchmark.does_import:
        run_import(benchmark)
    text = table.text(benchmark.results, benchmark.reasons)
    pythons = {each: said([each, "-c", rows.VERSION]) for each in (benchmark.places.python, *map(benchmark.places.venv, ("spark", "dask")))}
    commits = ", ".join(dict.fromkeys(result["commit"] for result in benchmark.results))
    head = f"Python, {benchmark.date}, {os.cpu_count()} cores, commit {commits}"
    head += f"; Python of ours, Spark, Dask: {', '.join(version or '-' for version in pythons.values())}"
    benchmark.table.write_text(f"{head}\n\n{text}")
    print(f"\n{head}\n\n{text}\nRaw results: {benchmark.raw}")
    if benchmark.failures:
        raise SystemExit("\n".join(["FAILED:", *benchmark.failures]))


if __name__ == "__main__":
    main()
