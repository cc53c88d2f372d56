"""The workflow files: their results against models, and the steps of a second run."""

from __future__ import annotations

import csv
import gzip
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from sailfish import _engine

WORKFLOWS = Path(__file__).parent.parent / "workflows"


class Directory:
    """A directory with all workflow files and their inputs, and a state of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path.with_name("state")
        environment = {**os.environ, "PROTEINS": "500"}
        subprocess.run([str(WORKFLOWS / "generate.sh"), str(path)], check=True, env=environment)

    def sailfish(self, verb: str, file: str, *words: str) -> str:
        """Returns all that the program says; it must succeed."""
        place = [] if verb == "check" else ["--state", str(self.state)]
        ran = self.run(verb, file, *words, *place)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def run(self, verb: str, file: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([_engine.program(), "workflow", verb, file, *words], cwd=self.path, capture_output=True, text=True)

    def steps_that_would_run(self, file: str) -> set[str]:
        said = self.sailfish("why", file)
        return set(re.findall(r'^"(.*?)": ', said, re.MULTILINE))

    def lines(self, name: str) -> list[str]:
        return (self.path / name).read_text().splitlines()


def needs(*programs: str) -> None:
    """Skips the test, and lists it among the skipped ones, if a program is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        reason = f"a workflow file of the examples did not run: not installed: {', '.join(missing)}"
        if listed := os.environ.get("SAILFISH_SKIPPED"):
            with open(listed, "a", encoding="utf-8") as skipped:
                skipped.write(reason + "\n")
        pytest.skip(reason)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "work")


def test_text(directory: Directory) -> None:
    directory.sailfish("run", "text.toml")
    counts: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    for text in (directory.path / "texts").iterdir():
        words = [word.lower() for word in re.findall("[A-Za-z]+", text.read_text(encoding="utf-8"))]
        counts.update(words)
        texts.update(set(words))
    assert directory.lines("total") == [f"{word} {counts[word]} {texts[word]}" for word in sorted(counts)]
    top = sorted(counts, key=lambda word: (-counts[word], word))[:20]
    assert [line.split()[0] for line in directory.lines("top")] == top
    assert directory.lines("rare") == [f"{word} {counts[word]}" for word in sorted(counts) if texts[word] == 1]
    assert directory.steps_that_would_run("text.toml") == set()


def test_changed_text_runs_what_depends_on_it(directory: Directory) -> None:
    directory.sailfish("run", "text.toml")
    rare = directory.lines("rare")
    with (directory.path / "texts" / "cli.md").open("a") as text:
        text.write("zyzzyva\n")
    depends = {"split cli", "count cli", "add up", "sort", "top", "rare"}
    assert directory.steps_that_would_run("text.toml") == depends
    directory.sailfish("run", "text.toml")
    assert set(directory.lines("rare")) - set(rare) == {"zyzzyva 1"}


def test_touched_text_runs_nothing(directory: Directory) -> None:
    directory.sailfish("run", "text.toml")
    (directory.path / "texts" / "cli.md").touch()
    assert directory.steps_that_would_run("text.toml") == set()


def test_blast(directory: Directory) -> None:
    directory.sailfish("run", "blast.toml")
    origins = dict(line.split() for line in directory.lines("origins"))
    queries = [f"{query:03}" for query in range(50)]
    assert sorted(path.stem for path in (directory.path / "csv").iterdir()) == queries
    for query in queries:
        rows = list(csv.DictReader(directory.lines(f"csv/{query}.csv")))
        assert rows[0]["protein"] == origins[query]
        assert {row["query"] for row in rows} == {query}
        packed = gzip.decompress((directory.path / "bin" / f"{query}.bin").read_bytes()).decode().splitlines()
        assert [line.split() for line in packed] == [[row["words"], row["protein"]] for row in rows]
    assert directory.steps_that_would_run("blast.toml") == set()
    # One query is that of another protein now.
    shutil.copy(directory.path / "queries" / "999", directory.path / "queries" / "007")
    assert directory.steps_that_would_run("blast.toml") == {"search 007", "convert 007"}
    directory.sailfish("run", "blast.toml")
    assert next(csv.DictReader(directory.lines("csv/007.csv")))["protein"] == origins["999"]


def test_matrix(directory: Directory) -> None:
    needs("cc")
    directory.sailfish("run", "matrix.toml")
    cases = [path.stem for path in (directory.path / "matrix" / "cases").glob("*.in")]
    passed = {f"{case.replace('-', f' {level} ')}: passed" for case in cases for level in ("O0", "O2", "Os")}
    assert set(directory.lines("report")) == passed
    assert directory.lines("verdict") == [f"{len(passed)} tests passed"]
    assert directory.steps_that_would_run("matrix.toml") == set()
    for end, content in (("in", "-1\n"), ("out", "1 -1 -1 -1\n")):
        (directory.path / "matrix" / "cases" / f"totals-one.{end}").write_text(content)
    would_run = directory.steps_that_would_run("matrix.toml")
    assert "test totals O2 one" in would_run
    assert not [step for step in would_run if step.startswith("build")]


def test_matrix_reports_failed_tests(directory: Directory) -> None:
    needs("cc")
    wrong = directory.path / "matrix" / "cases" / "totals-three.out"
    right = wrong.read_text()
    wrong.write_text("3 14 -3 11\n")
    ran = directory.run("run", "matrix.toml", "--state", str(directory.state))
    assert ran.returncode != 0
    assert "totals O2 three: passed, other output" in ran.stderr
    wrong.write_text(right)
    tests = {f"test totals {level} three" for level in ("O0", "O2", "Os")}
    assert directory.steps_that_would_run("matrix.toml") == {*tests, "report", "verdict"}
    directory.sailfish("run", "matrix.toml")
    assert directory.lines("verdict") == ["12 tests passed"]


def test_matrix_names_a_missing_compiler(directory: Directory) -> None:
    # The file as it is, on a machine without the compiler.
    file = directory.path / "matrix.toml"
    file.write_text(re.sub(r"\bcc\b", "no-such-cc", file.read_text()))
    ran = directory.run("run", "matrix.toml", "--state", str(directory.state))
    assert ran.returncode != 0
    assert "no-such-cc is not installed: install a C compiler" in ran.stderr


def test_snakemake_tutorial(directory: Directory) -> None:
    file = "snakemake-tutorial.toml"
    assert "no mistakes" in directory.sailfish("check", file)
    needs("bwa", "samtools", "bcftools")
    directory.sailfish("run", file, "--slots", "2")
    variants = [line.split("\t") for line in directory.lines("calls/all.vcf") if not line.startswith("#")]
    # All samples differ from the genome every 500 bases (snakemake-tutorial/reads.awk).
    places = {int(variant[1]) for variant in variants}
    assert set(range(500, 19_501, 500)) <= places
    assert f"variants by quality: {len(variants)}" in directory.lines("plots/quals.svg")[-2]
    assert directory.steps_that_would_run(file) == set()
    (directory.path / "data" / "samples" / "C.fastq").write_bytes((directory.path / "data" / "samples" / "B.fastq").read_bytes())
    would_run = directory.steps_that_would_run(file)
    assert {"bwa map C", "samtools sort C", "bcftools call", "plot quals"} <= would_run
    assert not {"bwa index", "faidx", "bwa map A", "samtools sort B"} & would_run
