"""Tests of workflows: commands and functions with files, run by the engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sailfish as sf
from sailfish import _engine


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("to be or not to be\n")
    return path


@pytest.fixture(params=["here", "there"])
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Returns the arguments of a run on this machine, or on a server."""
    return {"server": str(request.getfixturevalue("server"))} if request.param == "there" else {}


def count_words(words: Path, least: int, counts: Path) -> None:
    """Writes the words that occur at least a number of times."""
    found = words.read_text().split()
    counts.write_text("".join(f"{word} {found.count(word)}\n" for word in sorted(set(found)) if found.count(word) >= least))


def merge(parts: list[Path], merged: Path) -> None:
    merged.write_text("".join(part.read_text() for part in parts))


def test_commands_stream_text(place: dict[str, Any], text: Path, tmp_path: Path) -> None:
    wf = sf.Workflow("words", tmp_path)
    words = wf.command("words", "tr -cs a-z '\\n'", stdin="text", stdout="words")
    counts = wf.command("counts", "sort | uniq -c | sort -rn | sed 's/^ *//'", stdin=words, stdout="counts", keep=True)
    most = wf.command("most", ["head", "-n", "1", counts.output("counts")], stdout="most", cores=1, timeout=60, retries=1)
    run = wf.run(**place)
    assert run.done()
    assert (run.job is not None) == bool(place)
    assert sorted(counts.output().read_text().splitlines()) == ["1 not", "1 or", "2 be", "2 to"]
    assert most.output().path == tmp_path / "most"
    with most.output().open() as file:
        assert file.read().startswith("2 ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts", "most", "text"]


def test_functions_and_commands_stream_by_name(place: dict[str, Any], text: Path, tmp_path: Path) -> None:
    def write(numbers: Path) -> None:
        with numbers.open("w") as file:
            file.writelines(f"{number}\n" for number in range(100_000))

    def count(numbers: Path, result: Path) -> None:
        with numbers.open() as file:
            result.write_text(str(sum(int(line) for line in file)))

    wf = sf.Workflow("streams", directory=tmp_path)
    numbers = wf.function(write, outputs=["numbers"], streams=["numbers"])
    more = wf.command("more", "sed 's/$/0/'", stdin=numbers, stdout="more")
    total = wf.function(count, more, outputs=["total"], streams=[more])
    wf.run(**place)
    assert total.output().read_text() == "49999500000"
    assert not (tmp_path / "numbers").exists()


def test_jobs_are_steps(place: dict[str, Any], text: Path, tmp_path: Path) -> None:
    first = sf.Workflow("first", tmp_path)
    first.command("waits for a node", "true")
    first.run(**place)
    wf = sf.Workflow("counts", tmp_path)
    words = wf.command("words", "cat", stdin="text", stdout="words")
    counts = wf.job("counts", inputs=[words], output="counts", partitions=2, mapper="builtin:words", reducer="builtin:sum", memory="64M")
    merged = wf.command("merged", "cat counts/* | sort", inputs=list(counts.outputs), stdout="merged")
    wf.run(**place)
    assert merged.output().read_text() == "be\t2\nnot\t1\nor\t1\nto\t2\n"
    assert [str(part) for part in counts.outputs] == ["counts/part-00000", "counts/part-00001"]
    with pytest.raises(FileNotFoundError, match=r"'counts/part-00000' of the step 'counts' was removed .* keep=True"):
        counts.outputs[0].read_text()
    kept = sf.Workflow("kept", tmp_path)
    counts = kept.job("counts", inputs=["text"], output="kept", mapper="builtin:words", reducer="builtin:sum", memory="64M", keep=True)
    kept.command("lines", "wc -l", stdin=counts.outputs[0], stdout="lines")
    kept.run(**place)
    assert counts.outputs[0].read_text() == "be\t2\nnot\t1\nor\t1\nto\t2\n"


def test_functions_get_paths_of_their_files(place: dict[str, Any], text: Path, tmp_path: Path) -> None:
    wf = sf.Workflow("counts", tmp_path)
    counted = [wf.function(count_words, text, least, name=f"at least {least}", outputs=[f"counts of {least}"]) for least in (1, 2)]

    @wf.step([step.output() for step in counted], outputs=["deep/merged"], stdout="said", env={"LEVEL": "3"})
    def merged(parts: list[Path], output: Path) -> None:
        merge(parts, output)
        print(os.environ["LEVEL"], [str(part) for part in parts], output)

    wf.run(**place)
    assert merged.output("deep/merged").read_text() == "be 2\nnot 1\nor 1\nto 2\nbe 2\nto 2\n"
    assert merged.output("said").read_text() == "3 ['counts of 1', 'counts of 2'] deep/merged\n"
    with pytest.raises(FileNotFoundError, match=r"the file 'counts of 1' of the step 'at least 1' was removed .* keep=True"):
        counted[0].output().read_text()
    # The step of a function can be called.
    counted[0](text, 2, tmp_path / "called")
    assert (tmp_path / "called").read_text() == "be 2\nto 2\n"


def test_result_waits_for_the_run(text: Path, tmp_path: Path) -> None:
    wf = sf.Workflow("later", tmp_path)
    upper = wf.command("upper", ["tr", "a-z", "A-Z"], stdin="text", stdout="upper")
    with pytest.raises(RuntimeError, match=r"the file 'upper' is not there yet: call run\(\) or start\(\) of the workflow 'later'"):
        upper.output().result()
    run = wf.start(slots=1, state=tmp_path / "state")
    assert upper.output().result() == tmp_path / "upper"
    assert run.done()
    assert run.wait() is run
    assert Path(upper.output()).read_bytes() == upper.output().read_bytes() == b"TO BE OR NOT TO BE\n"


def test_stopped_run_is_a_failure(place: dict[str, Any], tmp_path: Path) -> None:
    wf = sf.Workflow("endless", tmp_path)
    os.mkfifo(tmp_path / "begun")
    endless = wf.command("endless", f"echo > '{tmp_path}/begun'; sleep 1000", stdout="never")
    run = wf.start(**place)
    assert (tmp_path / "begun").read_text() == "\n"
    with pytest.raises(RuntimeError, match="the workflow 'endless' already runs"):
        wf.start()
    run.stop()
    said = f"the workflow 'endless' failed: job {run.job} was cancelled" if place else "stopped by a signal"
    with pytest.raises(sf.JobFailed, match=said):
        endless.output().result()
    with pytest.raises(sf.JobFailed, match=said):
        run.wait()
    if place:
        words = [_engine.program(), "wait", str(run.job), "--server", place["server"]]
        assert "was cancelled" in subprocess.run(words, capture_output=True, text=True).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


def test_ctrl_c_ends_the_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    program = f"""
import sailfish as sf
wf = sf.Workflow("endless", {str(tmp_path)!r})
wf.command("endless", "echo $$ > '{tmp_path}/begun'; exec sleep 1000", stdout="never")
try:
    wf.run()
except KeyboardInterrupt:
    print("interrupted")
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment("0"))
    process = int((tmp_path / "begun").read_text())
    child.send_signal(signal.SIGINT)
    assert child.communicate()[0] == "interrupted\n"
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def fails(number: int, output: Path) -> None:
    output.write_text("incomplete")
    raise ValueError(f"{number} is no good")


def returns(output: Path) -> Any:
    output.write_text("complete")
    return 3


def test_failure_names_the_step_and_shows_its_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def failure(wf: sf.Workflow, exit_code: int = 1) -> str:
        with pytest.raises(sf.JobFailed) as failed:
            wf.run()
        assert failed.value.exit_code == exit_code
        return str(failed.value)

    wf = sf.Workflow("fails", tmp_path)
    wf.function(fails, 7, name="a step", outputs=["out"])
    said = failure(wf)
    assert said.startswith("the workflow 'fails' failed: Traceback")
    assert 'raise ValueError(f"{number} is no good")\nValueError: 7 is no good\n' in said
    assert 'the step "a step" (job ' in said
    assert "_workflow_step.py" not in said
    wf = sf.Workflow("fails", tmp_path)
    wf.command("missing", "echo seen; echo reason >&2; exit 3", outputs=["out"])
    said = failure(wf, 3)
    assert "reason\n" in said
    assert 'the step "missing" (job ' in said
    assert "exit code 3" in said
    assert capsys.readouterr().out == "seen\n"
    wf = sf.Workflow("fails", tmp_path)
    wf.command("forgets", "true", outputs=["out"])
    assert "the program succeeded, but its output out is missing" in failure(wf)
    wf = sf.Workflow("fails", tmp_path)
    wf.function(returns, outputs=["out"])
    assert "returns returned a int, which is lost: write it to an output of the step" in failure(wf)
    assert [path.name for path in tmp_path.iterdir()] == [".sailfish"]


def test_only_declared_files_are_there(text: Path, tmp_path: Path) -> None:
    def look(text: Path, listed: Path) -> None:
        Path("undeclared").write_text("x")
        listed.write_text("\n".join(sorted(os.listdir())) + f"\n{text.read_text()}")

    wf = sf.Workflow("own", tmp_path)
    step = wf.function(look, text, outputs=["listed"], inputs=["more"])
    (tmp_path / "more").write_text("")
    wf.run()
    assert step.output().read_text() == "more\ntext\nundeclared\nto be or not to be\n"
    assert not (tmp_path / "undeclared").exists()


def test_input_named_like_a_module_is_not_imported(tmp_path: Path) -> None:
    def imports(module: Path, out: Path) -> None:
        import json

        out.write_text(json.dumps([module.read_text()]))

    (tmp_path / "json.py").write_text("raise SystemExit")
    wf = sf.Workflow("own", tmp_path)
    step = wf.function(imports, tmp_path / "json.py", outputs=["out"])
    wf.run()
    assert step.output().read_text() == '["raise SystemExit"]'


def test_saved_file_runs_without_this_process(text: Path, tmp_path: Path) -> None:
    wf = sf.Workflow("saved", tmp_path)
    wf.function(count_words, text, 2, outputs=["counts"], after=[wf.command("first", "true")])
    path = wf.save()
    assert path == tmp_path / "saved.toml"
    assert path.read_text() == wf.to_toml()
    ran = subprocess.run([_engine.program(), "workflow", "run", str(path)], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "sailfish: saved: 2 steps succeeded\n")
    assert (tmp_path / "counts").read_text() == "be 2\nto 2\n"
    with pytest.raises(ValueError, match=r"is not in .*, the directory of the workflow 'saved'"):
        wf.save(tmp_path / "other" / "saved.toml")


def test_table_of_a_command_has_all_keys(tmp_path: Path) -> None:
    wf = sf.Workflow("keys", tmp_path)
    first = wf.command("first", "date", outputs=["a"], stdout="b")
    wf.command(
        "second",
        ["cat", first.output("a"), "a b\"\\'"],
        stdin=first.output("b"),
        stdout="c",
        inputs=["text"],
        outputs=["d/e"],
        after=[first, "first"],
        keep=True,
        env={"A B": "c"},
        cores=2,
        memory=1 << 20,
        arch="x86_64",
        resources={"gpu": 1, "lic": 2},
        retries=3,
        timeout="1h",
        network=True,
        cache=False,
        in_place=False,
        reads=["shared"],
        environment=["lock"],
        views=["files:genes"],
        streams=[first.output("a"), "d/e"],
    )
    assert [step.name for step in wf.steps] == ["first", "second"]
    assert wf.to_toml().split("[[step]]\n")[2].splitlines() == [
        'name = "second"',
        'words = ["cat", "a", "a b\\"\\\\\'"]',
        'inputs = ["text", "a", { "path" = "files:genes", "view" = true }]',
        'outputs = ["d/e"]',
        'stdin = "b"',
        'stdout = "c"',
        'streams = ["a", "d/e"]',
        'after = ["first", "first"]',
        "keep = true",
        'env = { "A B" = "c" }',
        "cores = 2",
        'memory = "1048576"',
        'arch = "x86_64"',
        'resources = { "gpu" = 1, "lic" = 2 }',
        "retries = 3",
        'timeout = "1h"',
        "network = true",
        "cache = false",
        "in_place = false",
        'reads = ["shared"]',
        'environment = ["lock"]',
    ]
    checked = subprocess.run([_engine.program(), "workflow", "check", str(wf.save())], capture_output=True, text=True)
    assert "text, which does not exist" in checked.stderr


def test_command_runs_in_place(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("one\n")
    wf = sf.Workflow("place", tmp_path)
    step = wf.command("add", "wc -l < notes > lines; echo two >> notes", stdout=None, outputs=["lines"], in_place=True)
    wf.run(state=tmp_path / "state")
    assert (step.output().read_text(), (tmp_path / "notes").read_text()) == ("1\n", "one\ntwo\n")


def yields(out: Path) -> Any:
    yield out


MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda wf, other: wf.command("old", "true"), ValueError, "the workflow 'mine' already has a step 'old'"),
    (lambda wf, other: wf.command("", "true"), TypeError, "needs a name"),
    (lambda wf, other: wf.command("new", ""), ValueError, "the step 'new' has no command"),
    (lambda wf, other: wf.command("new", [3]), TypeError, "the step 'new': the command has 3"),
    (
        lambda wf, other: wf.command("new", "true", stdin=other),
        ValueError,
        "the step 'new' reads the file 'out' of another workflow, 'other'",
    ),
    (lambda wf, other: wf.command("new", "true", stdout="old"), ValueError, "the steps 'old' and 'new' both write old"),
    (lambda wf, other: wf.command("new", "true", outputs="out"), TypeError, "the step 'new': outputs='out' must be a list"),
    (lambda wf, other: wf.command("new", "true", outputs=["../out"]), ValueError, "the step 'new': outputs has '../out'"),
    (lambda wf, other: wf.command("new", "true", inputs=[3]), TypeError, "the step 'new': inputs has 3, which is no path"),
    (lambda wf, other: wf.command("new", "true", inputs=["a", "/b/a"]), ValueError, "two files with the name 'a': a and /b/a"),
    (lambda wf, other: wf.command("new", "true", inputs=["a"], stdout="a"), ValueError, "two files with the name 'a'"),
    (lambda wf, other: wf.command("new", "true", after=["next"]), ValueError, "after has 'next', and there is no such step"),
    (lambda wf, other: wf.command("new", "true", core=1), TypeError, "the step 'new': there is no option 'core'"),
    (lambda wf, other: wf.command("new", "true", cores="1"), TypeError, "the step 'new': cores='1' must be a whole number"),
    (lambda wf, other: wf.command("new", "true", keep=1), TypeError, "the step 'new': keep=1 must be True or False"),
    (lambda wf, other: wf.command("new", "true", retries=-1), ValueError, "the step 'new': retries=-1 is negative"),
    (lambda wf, other: wf.command("new", "true", env={"A": 1}), TypeError, "the variable 'A' in env"),
    (lambda wf, other: wf.command("new", "true", resources=["gpu"]), TypeError, "the step 'new': resources=.* must map names"),
    (lambda wf, other: wf.command("new", "true", resources={"gpu": "1"}), TypeError, "the resource 'gpu' must have a text"),
    (lambda wf, other: wf.command("new", "true", resources={"gpu": 0}), ValueError, "the resource 'gpu' has the amount 0"),
    (lambda wf, other: wf.command("new", "true", views=["genes"]), ValueError, "views has 'genes', which is no stored file"),
    (lambda wf, other: wf.command("new", "true", streams=["a"]), ValueError, "streams has 'a', which is none of its inputs and outputs"),
    (lambda wf, other: wf.command("new", "true", views="files:a"), TypeError, "the step 'new': views='files:a' must be a list"),
    (lambda wf, other: wf.function(3, name="new"), TypeError, "the step 'new': 3 is no function"),
    (lambda wf, other: wf.function(fails, name="new", in_place=True), ValueError, "the step 'new': in_place is for commands"),
    (lambda wf, other: wf.function(lambda: None), TypeError, r"needs name=\.\.\."),
    (lambda wf, other: wf.job("new", inputs=["in"], output="o", partitions=0), ValueError, "the step 'new': partitions=0 must be"),
    (lambda wf, other: wf.job("new", inputs="in", output="o"), TypeError, "the step 'new': inputs='in' must be a list"),
    (lambda wf, other: wf.function(yields, outputs=["x"]), TypeError, "the step 'yields': the function yields"),
    (lambda wf, other: wf.function(fails, outputs=["x"]), TypeError, "the step 'fails': missing a required argument: 'output'"),
    (lambda wf, other: wf.function(fails, other, outputs=["x"]), ValueError, "the step 'fails' reads the file 'out' of another workflow"),
    (lambda wf, other: wf.step(fails), TypeError, "the decorator of fails needs parentheses"),
    (lambda wf, other: wf.run(server="http://x", slots=1), ValueError, "slots, resources and state are of a run on this machine"),
    (lambda wf, other: wf.run(server="http://x", resources={"gpu": 1}), ValueError, "are of a run on this machine"),
]


@pytest.mark.parametrize(("mistake", "error", "said"), MISTAKES)
def test_mistakes_are_refused_early(mistake: Any, error: type[Exception], said: str, tmp_path: Path) -> None:
    other = sf.Workflow("other", tmp_path).command("one", "true", stdout="out")
    wf = sf.Workflow("mine", tmp_path)
    wf.command("old", "true", stdout="old")
    with pytest.raises(error, match=said):
        mistake(wf, other)
    assert [step.name for step in wf.steps] == ["old"]
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_found_by_name(tmp_path: Path) -> None:
    wf = sf.Workflow("mine", tmp_path)
    step = wf.command("two", "true", outputs=["a", "/far/b"])
    assert [str(file) for file in step.outputs] == ["a", "b"]
    assert step.output("b") is step.output("/far/b")
    assert os.fspath(step.output("b")) == "/far/b"
    with pytest.raises(ValueError, match="the step 'two' has no output 'c': it has 'a', 'b'"):
        step.output("c")
    with pytest.raises(ValueError, match="the step 'two' has 2 outputs, not one"):
        wf.command("next", "true", stdin=step)
    with pytest.raises(TypeError, match="runs a command and cannot be called"):
        step()


def environment(seed: str) -> dict[str, str]:
    package = str(Path(str(sf.__file__)).parents[1])
    return {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": package}
