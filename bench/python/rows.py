"""Rows of the table, and the commands that start each contender."""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import streaming_jobs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"
PEERS = ROOT / "bench" / "peers"


@dataclass(frozen=True)
class Row:
    """A job with its contenders. The first contender is Sailfish."""

    job: str
    contenders: tuple[str, ...]
    #: The module that generates the input; if empty, the module with the name of the job.
    module: str = ""
    #: Whether the job is in Table 3 of the paper.
    is_of_paper: bool = False

    def generate(self, directory: Path, size_bytes: int, seed: int) -> None:
        importlib.import_module(self.module or self.job).generate(directory, size_bytes, seed)


ROWS = (
    # All contenders use the same functions: words of a line, a pair per word, sums by key.
    Row("word_count", ("ours", "spark", "dask", "hadoop")),
    # Each contender uses its own function for counting equal items.
    Row("word_frequencies", ("ours", "dask", "pool"), "word_count"),
    # All values of a key are grouped.
    Row("mean_by_key", ("ours", "spark", "dask", "pool")),
    # Sums and counts, which are combined before the shuffle.
    Row("mean_folded", ("ours", "spark", "dask", "pool"), "mean_by_key"),
    Row("log_count", ("ours", "spark", "hadoop"), is_of_paper=True),
    Row("log_proc", ("ours", "spark"), is_of_paper=True),
    Row("log_read", ("ours", "spark", "hadoop"), is_of_paper=True),
    Row("nday_model", ("ours", "spark"), is_of_paper=True),
    Row("behavior_model", ("ours", "spark"), is_of_paper=True),
    Row("click_attribution", ("ours", "spark"), is_of_paper=True),
    Row("segment_exploder", ("ours", "spark"), is_of_paper=True),
)
#: The row without a job: the time that `import sailfish` takes.
IMPORT = "import"

NAMES = {"spark": "PySpark RDD local[2]", "dask": "Dask bag", "pool": "multiprocessing.Pool", "hadoop": "Hadoop Streaming"}


@dataclass(frozen=True)
class Places:
    """Directories and interpreters from the command line."""

    work: Path
    peers: Path
    python: str

    def venv(self, peer: str) -> str:
        return str(self.peers / peer / "venv" / "bin" / "python")

    def environment(self) -> dict[str, str]:
        """Returns the environment of all contenders."""
        modules = os.pathsep.join([str(EXAMPLES), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        spark = {"PYSPARK_PYTHON": self.venv("spark"), "SPARK_LOCAL_DIRS": str(self.work / "spark")}
        hadoop = {"PEERS_DIR": str(self.peers), "WORK_DIR": str(self.work / "hadoop"), "PAR": "2"}
        return {**os.environ, "PYTHONPATH": modules, "XDG_STATE_HOME": str(self.work / "state"), **spark, **hadoop}

    def missing(self, contender: str) -> str:
        """Returns the reason why a contender cannot run; an empty text if it can."""
        needed = {"spark": self.venv("spark"), "dask": self.venv("dask"), "hadoop": str(self.peers / "hadoop" / "lib")}
        path = needed.get(contender)
        return f"not installed (bench/peers/setup-{contender}.sh)" if path and not Path(path).exists() else ""


Command = Callable[[Places, str, Path, Path], list[str]]


def script(name: str, peer: str = "") -> Command:
    def command(places: Places, job: str, inputs: Path, output: Path) -> list[str]:
        return [places.venv(peer) if peer else places.python, str(HERE / name), job, str(inputs), str(output)]

    return command


def hadoop(places: Places, job: str, inputs: Path, output: Path) -> list[str]:
    """Returns the command of a Hadoop Streaming job with two reduce tasks, one per core. As in Sailfish, the reducer is also the combiner
    if the job allows it."""
    program = shlex.join([places.python, str(HERE / "streaming_jobs.py")])
    reducer = f"{program} reduce {job}"
    combiner = ["-combiner", reducer] if job in streaming_jobs.COMBINING else []
    words = ["-numReduceTasks", "2", "-input", str(inputs), "-output", str(output), "-mapper", f"{program} map {job}", *combiner]
    return [str(PEERS / "hadoop-streaming.sh"), *words, "-reducer", reducer]


COMMANDS: dict[str, Command] = {
    "ours": script("ours.py"),
    "spark": script("spark_jobs.py", "spark"),
    "dask": script("dask_jobs.py", "dask"),
    "pool": script("pool_jobs.py"),
    "hadoop": hadoop,
}

#: Prints the version of an interpreter. The table shows it, because versions differ in speed.
VERSION = "import platform; print(platform.python_version())"
