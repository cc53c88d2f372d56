"""Tests of jobs on a server with two nodes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sailfish as sf


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book"
    path.write_text("to be or not to be\n" * 1000)
    return path


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


def test_server_gives_the_same_result(server: str, book: Path, tmp_path: Path) -> None:
    here = sf.MapReduce(book, words, sum, combine=sum, output=tmp_path / "here").run()
    there = sf.MapReduce(book, words, sum, combine=sum, output=tmp_path / "there").run(engine=server)
    assert dict(here) == dict(there) == {"to": "2000", "be": "2000", "or": "1000", "not": "1000"}


def test_exception_names_the_record(server: str, book: Path, tmp_path: Path) -> None:
    def fails(line: str) -> Iterator[tuple[str, int]]:
        yield line, 1 // 0

    with pytest.raises(sf.JobFailed) as failed:
        sf.MapReduce(book, fails, sum, output=tmp_path / "out").run(engine=server)
    said = str(failed.value)
    assert f"{book} at byte 0: ZeroDivisionError" in said
    assert "in fails" in said


def module_in(directory: Path) -> Any:
    """Writes and imports a module that only the client can import."""
    path = directory / "only_here.py"
    path.write_text("def words(line):\n    return [(word, 1) for word in line.split()]\n")
    spec = importlib.util.spec_from_file_location("only_here", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["only_here"] = module
    spec.loader.exec_module(module)
    return module


def test_modules_go_with_the_job(server: str, book: Path, tmp_path: Path) -> None:
    module = module_in(tmp_path)

    def map(line: str) -> Any:
        return module.words(line)

    with pytest.raises(sf.JobFailed, match=r"need the module 'only_here', which the worker cannot import: .* modules=\[only_here\]"):
        sf.MapReduce(book, map, sum, output=tmp_path / "out").run(engine=server)
    # The job carries the module that defines its function by default.
    result = sf.MapReduce(book, module.words, sum, output=tmp_path / "first").run(engine=server)
    assert dict(result)["be"] == "2000"
    result = sf.MapReduce(book, map, sum, output=tmp_path / "out", modules=[module]).run(engine=server)
    assert dict(result)["be"] == "2000"


def wheel_in(directory: Path) -> Path:
    """Writes a wheel of a library that is not installed."""
    path = directory / "only_in_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("only_in_wheel.py", "def shout(text):\n    return text.upper()\n")
        wheel.writestr("only_in_wheel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: only-in-wheel\nVersion: 1.0\n")
        wheel.writestr("only_in_wheel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("only_in_wheel-1.0.dist-info/RECORD", "")
    return path


def test_libraries_go_with_the_job(server: str, book: Path, tmp_path: Path) -> None:
    def map(line: str) -> Any:
        import only_in_wheel  # type: ignore[import-not-found]

        return [(only_in_wheel.shout(word), 1) for word in line.split()]

    wheel = wheel_in(tmp_path)
    for engine in ("local", server):
        job = sf.MapReduce(book, map, sum, output=tmp_path / "out", requirements=[str(wheel)], overwrite=True)
        assert dict(job.run(engine=engine))["BE"] == "2000"
    with pytest.raises(RuntimeError, match=r"pip install .*not-there failed"):
        sf.MapReduce(book, map, sum, output=tmp_path / "out", requirements=[str(tmp_path / "not-there")], overwrite=True).run()
    with pytest.raises(TypeError, match="must be a list"):
        sf.MapReduce(book, map, sum, requirements="x").run()


def test_another_python_is_refused(server: str, book: Path, tmp_path: Path) -> None:
    others = [path for path in ("/usr/bin/python3", "python3.10", "python3.12") if not _is_ours(path)]
    if not others:
        pytest.skip("this machine has no other Python")
    with pytest.raises(sf.JobFailed, match=r"the job was made with Python 3\.\d+, but the worker runs Python 3\.\d+"):
        sf.MapReduce(book, words, sum, output=tmp_path / "out").run(engine=server, python=others[0])


def _is_ours(python: str) -> bool:
    try:
        ran = subprocess.run([python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
    except FileNotFoundError:
        return True
    return ran.returncode != 0 or ran.stdout.strip() == str(sys.version_info[:2])


def test_server_needs_an_output(server: str, book: Path) -> None:
    with pytest.raises(ValueError, match="set output="):
        sf.MapReduce(book, words, sum).run(engine=server)
    with pytest.raises(ValueError, match="engine='cluster' is not known"):
        sf.MapReduce(book, words, sum).run(engine="cluster")


def test_dataflow_gives_the_same_result(server: str, book: Path, tmp_path: Path) -> None:
    counted = sf.read_text(book).flat_map(str.split).count_by_value()
    lengths = sf.from_iterable([("to", "short"), ("whale", "long")])
    flow = counted.join(lengths, how="full").filter(lambda pair: pair[1][0] is None or pair[1][0] > 1000).sort_by()
    expected = [("be", (2000, None)), ("to", (2000, "short")), ("whale", (None, "long"))]
    flow = flow.map(lambda pair: pair)
    assert sorted(flow.collect(), key=repr) == expected
    with pytest.raises(ValueError, match=r"scratch=\.\.\."):
        flow.write_text(tmp_path / "out", engine=server)
    assert sorted(flow.collect(engine=server, scratch=tmp_path), key=repr) == expected
    result = flow.write_text(tmp_path / "out", engine=server, scratch=tmp_path)
    assert sorted(result) == sorted(map(str, expected))
    assert [report["proof"]["agrees"] for report in result.reports] == [True] * len(result.reports)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book", "out"]


def readme_example() -> str:
    readme = Path(__file__).parents[2].joinpath("README.md").read_text()
    begin = readme.index("    import sailfish as sf")
    end = readme.index("\n\nThe same runs on a cluster", begin)
    return textwrap.dedent(readme[begin:end])


@pytest.mark.parametrize("where", ["here", "there"])
def test_example_of_the_readme(
    server: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "moby-dick").write_text("the whale, the whale\nwhale\n")
    monkeypatch.chdir(tmp_path)
    example = readme_example()
    if where == "there":
        example = example.replace(".run()", f".run(engine={server!r})")
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert "'agrees': True" in said
    assert said.endswith(" 2\n")
