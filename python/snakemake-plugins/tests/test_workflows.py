"""Tests of workflows of Snakemake on a server with nodes that share no files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run, Site, skip

TUTORIAL = Path(__file__).parents[3] / "examples" / "workflows" / "snakemake-tutorial"
#: Jobs of the run whose node is killed: the whole run has 200.
JOBS = int(os.environ.get("SAILFISH_SNAKEMAKE_JOBS", "8"))


def workflow(directory: Path, snakefile: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "Snakefile").write_text(snakefile)
    return directory


def test_tutorial_runs_unchanged(site: Site, tmp_path: Path) -> None:
    missing = " ".join(name for name in ("bwa", "samtools", "bcftools") if shutil.which(name) is None)
    if missing:
        skip("the tutorial of Snakemake with the plugins", f"{missing} not installed")
    directory = tmp_path / "tutorial"
    shutil.copytree(TUTORIAL, directory)
    (directory / "data" / "samples").mkdir(parents=True)
    subprocess.run(["awk", "-v", "seed=1", "-f", "reads.awk"], cwd=directory, check=True)
    # A rule that finds its inputs here would prove nothing.
    site.put(directory / "data", "runs/tutorial/data")
    shutil.rmtree(directory / "data")
    Run(directory, site).expect_success()
    assert re.search(r"variants by quality: [1-9]\d*<", site.read("runs/tutorial/plots/quals.svg"))
    names = site.names("runs/tutorial")
    assert "sorted_reads/C.bam.bai" in names
    assert "benchmarks/A.bwa.txt" in names
    # It is temporary.
    assert "mapped_reads/A.bam" not in names
    assert "Nothing to be done" in Run(directory, site).expect_success()
    changed = tmp_path / "changed.fastq"
    changed.write_text("".join(site.read("runs/tutorial/data/samples/B.fastq").splitlines(keepends=True)[4:]))
    site.put(changed, "runs/tutorial/data/samples/B.fastq")
    said = Run(directory, site, "--dry-run").expect_success()
    assert "mapped_reads/B.bam" in said
    assert "mapped_reads/A.bam" not in said


MANY = """
PARTS = range({jobs})


rule all:
    input:
        "total",


rule part:
    output:
        "parts/{{part}}",
    shell:
        "{gate}echo {{wildcards.part}} > {{output}}"


rule total:
    input:
        expand("parts/{{part}}", part=PARTS),
    output:
        "total",
    shell:
        "cat {{input}} | sort -n > {{output}}"
"""


#: A program that tells its node, and ends only with that.
GATE = "if [ {wildcards.part} = 5 ] && [ $SAILFISH_ATTEMPT = 0 ]; then echo $SAILFISH_NODE > told; sleep 1000; fi; "


def first_line_of(fifo: Path) -> str:
    """Waits for a program that writes to a pipe."""
    return subprocess.run(["head", "-n", "1", fifo], capture_output=True, text=True, timeout=300, check=True).stdout.strip()


def test_killed_node_repeats_its_jobs(own_site: Site, tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    gate = GATE.replace("told", str(told))
    run = Run(workflow(tmp_path / "many", MANY.format(jobs=JOBS, gate=gate)), own_site)
    own_site.kill_node(int(first_line_of(told).removeprefix("node-")))
    run.expect_success()
    assert own_site.read("runs/many/total").split() == [str(part) for part in range(JOBS)]
    # Snakemake has seen no failure: the server has repeated the lost jobs.
    assert "Error in rule" not in run.said
    assert len(own_site.jobs()) == JOBS + 1
    repeated = own_site.run("state", "select count(*) from attempts where attempt > 0")
    assert re.search(r"^\s*[1-9]\d*\s*$", repeated, re.MULTILINE), repeated


def test_restarted_server_goes_on(own_site: Site, tmp_path: Path) -> None:
    run = Run(workflow(tmp_path / "restarted", MANY.format(jobs=4, gate="")), own_site)
    run.wait_for("rule part")
    own_site.restart_server()
    run.expect_success()
    assert own_site.read("runs/restarted/total").split() == ["0", "1", "2", "3"]
    assert len(own_site.jobs()) == 5


def test_sandboxed_jobs_need_no_network(tmp_path: Path) -> None:
    if Path(sys.prefix).is_relative_to("/tmp"):
        skip("Snakemake in a sandbox", "its environment lies in /tmp, which programs in a sandbox do not see")
    site = Site(tmp_path / "site", is_guarded=True)
    try:
        Run(workflow(tmp_path / "sandboxed", MANY.format(jobs=2, gate="")), site).expect_success()
        assert site.read("runs/sandboxed/total").split() == ["0", "1"]
    finally:
        site.stop()


KINDS = """
envvars:
    "COLOUR",


storage:
    provider="sailfish",


SAMPLES = glob_wildcards(storage("sailfish://runs/kinds/in/{sample}.txt")).sample


rule all:
    input:
        "count",
        "tree",


rule upper:
    input:
        "in/{sample}.txt",
    output:
        "upper/{sample}",
    group:
        "samples"
    resources:
        mem_mb=20,
        runtime=5,
    shell:
        "tr a-z A-Z < {input} > {output}"


rule lines:
    input:
        "upper/{sample}",
    output:
        "lines/{sample}",
    group:
        "samples"
    run:
        with open(input[0]) as text, open(output[0], "w") as lines:
            lines.write(text.readline())


rule tree:
    input:
        expand("lines/{sample}", sample=SAMPLES),
    output:
        directory("tree"),
    shell:
        "mkdir -p {output}/deep && cp {input} {output}/deep && echo $COLOUR > {output}/colour"


rule count:
    input:
        "tree",
    output:
        "count",
    shell:
        "cat {input}/deep/* {input}/colour > {output}"
"""


def test_groups_directories_globs_and_variables(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "a 'dark' blue")
    (tmp_path / "in").mkdir()
    for sample in ("a", "b"):
        (tmp_path / "in" / f"{sample}.txt").write_text(f"one {sample}\ntwo\n")
    site.put(tmp_path / "in", "runs/kinds/in")
    run = Run(workflow(tmp_path / "kinds", KINDS), site)
    run.expect_success()
    assert site.read("runs/kinds/count") == "ONE A\nONE B\na 'dark' blue\n"
    assert "tree/deep/a" in site.names("runs/kinds")
    # The list of jobs shows what a job needs, and no value of a variable.
    shown = site.run("show", str(site.jobs()[0]["job"]))
    assert "dark" not in shown


FAILING = """
rule bad:
    output:
        "bad",
    threads: {threads}
    shell:
        "echo this sample is empty >&2; exit 3"
"""


def test_failed_job_shows_its_reason(site: Site, tmp_path: Path) -> None:
    run = Run(workflow(tmp_path / "failing", FAILING.format(threads=1)), site)
    assert run.end() != 0
    assert "this sample is empty" in run.said
    number = re.search(r"Sailfish's job (\d+): program \"sh\" ended with exit code 1", run.said)
    assert number is not None, run.said
    assert "this sample is empty" in (tmp_path / "failing" / ".snakemake" / "sailfish_logs" / f"{number[1]}.log").read_text()
    # Its jobs would run at the same time.
    run = Run(workflow(tmp_path / "group", MANY.format(jobs=5, gate="")), site, "--groups", "part=parts", "--group-components", "parts=5")
    assert run.end() != 0
    assert "a job needs 5 slots" in run.said
    run = Run(workflow(tmp_path / "failing", FAILING.format(threads=50)), site)
    assert run.end() != 0
    assert "the server refuses the job" in run.said
    assert "the largest node has 2" in run.said


WAITING = """
rule waiting:
    output:
        "waiting",
    shell:
        "echo > {started}; sleep 1000"
"""


def test_interrupt_cancels_the_jobs(site: Site, tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    run = Run(workflow(tmp_path / "interrupted", WAITING.format(started=started)), site)
    first_line_of(started)
    run.interrupt()
    assert run.end() != 0
    row = site.jobs()[0]
    assert row["name"].startswith("waiting ")
    assert row["state"] == "cancelled"


def test_missing_options_are_named(site: Site, tmp_path: Path) -> None:
    directory = workflow(tmp_path / "options", FAILING.format(threads=1))
    words = [sys.executable, "-m", "snakemake", "--executor=sailfish", "--jobs=1"]
    for more, message in [
        (["--default-storage-provider=sailfish", "--default-storage-prefix=sailfish://a"], "--sailfish-server URL"),
        ([f"--sailfish-server={site.url}"], "--default-storage-provider sailfish"),
    ]:
        ran = subprocess.run([*words, *more], cwd=directory, capture_output=True, text=True)
        assert ran.returncode != 0
        assert message in ran.stderr + ran.stdout, ran.stderr
