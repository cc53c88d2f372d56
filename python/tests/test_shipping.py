"""Tests of the modules, files, libraries and interpreters of a job."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sailfish as sf
from sailfish import _ship


@pytest.fixture(params=["here", "there"])
def engine(request: pytest.FixtureRequest) -> str:
    """Returns the engine of this machine, or the URL of a server."""
    return str(request.getfixturevalue("server")) if request.param == "there" else "local"


@pytest.fixture
def many_lines(tmp_path: Path) -> Path:
    """Returns a file of more than ten splits."""
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{number:07} {'x' * 1000}\n" for number in range(12_000)))
    return path


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Yields modules imported from a directory that is not on the path of workers."""
    place = tmp_path / "modules"
    (place / "pack_of_mine" / "inner").mkdir(parents=True)
    (place / "helper_of_mine.py").write_text("def twice(text):\n    return text * 2\n")
    (place / "pack_of_mine" / "__init__.py").write_text("from .inner.deep import shout\n")
    (place / "pack_of_mine" / "data.txt").write_text("data")
    (place / "pack_of_mine" / "inner" / "deep.py").write_text("from ..late import END\ndef shout(text):\n    return text.upper() + END\n")
    (place / "pack_of_mine" / "late.py").write_text("END = '!'\n")
    (place / "pack_of_mine" / "later.py").write_text("END = '?'\n")
    names = ["helper_of_mine", "pack_of_mine", "pack_of_mine.inner.deep"]
    with monkeypatch.context() as patched:
        patched.syspath_prepend(place)
        modules = {name: importlib.import_module(name) for name in names}
    yield modules
    for name in [name for name in sys.modules if name.startswith(("helper_of_mine", "pack_of_mine"))]:
        del sys.modules[name]


def test_modules_are_importable_by_name(engine: str, imported: dict[str, ModuleType], many_lines: Path, tmp_path: Path) -> None:
    helper = imported["helper_of_mine"]

    def words(line: str) -> Iterator[tuple[str, str]]:
        import importlib.resources

        import helper_of_mine  # type: ignore[import-not-found]
        import pack_of_mine.inner.deep  # type: ignore[import-not-found]

        number = int(line[:7])
        if number % 6000 == 0:
            yield "twice", helper_of_mine.twice("ab")
            yield "shout", pack_of_mine.shout("ab")
            yield "data", importlib.resources.files("pack_of_mine").joinpath("data.txt").read_text()
            # The module as a variable of the function is pickled by value.
            yield "value", helper.twice("c")
        if number == 11_999:
            # This line is in a late task of its process.
            later = importlib.import_module("pack_of_mine.later")
            yield "later", later.END

    modules = [helper, imported["pack_of_mine.inner.deep"]]
    job = sf.MapReduce(many_lines, words, min, output=tmp_path / "out", modules=modules)
    result = job.run(engine=engine, slots=1)
    assert result.report["map"]["tasks"] > 10
    assert dict(result) == {"twice": "abab", "shout": "AB!", "data": "data", "value": "cc", "later": "?"}


def test_files_are_importable_modules(engine: str, many_lines: Path, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WHERE = 'beside'\n")
    (tmp_path / "late_beside.py").write_text("WHERE = 'late'\n")

    def words(line: str) -> Iterator[tuple[str, int]]:
        import beside  # type: ignore[import-not-found]

        yield beside.WHERE, 1
        if line.startswith("0011999"):
            import late_beside  # type: ignore[import-not-found]

            yield late_beside.WHERE, 1

    files = [tmp_path / "beside.py", tmp_path / "late_beside.py"]
    result = sf.MapReduce(many_lines, words, sum, output=tmp_path / "out", files=files).run(engine=engine, slots=1)
    assert result.report["map"]["tasks"] > 10
    assert dict(result) == {"beside": "12000", "late": "1"}


def test_archives_have_the_same_bytes(imported: dict[str, ModuleType], tmp_path: Path) -> None:
    written = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (archive,) = _ship.write_modules(tmp_path / name, [imported["pack_of_mine"]])
        written.append(archive.read_bytes())
        Path(str(imported["pack_of_mine"].__file__)).touch()
    assert written[0] == written[1]
    # Modules without source files are pickled by value only.
    assert _ship.write_modules(tmp_path, [ModuleType("made_by_hand"), sys.modules["__main__"], sys]) == []


def test_wrong_modules_and_files_are_refused() -> None:
    with pytest.raises(TypeError, match=r"modules=\['helper'\] must be a list of imported modules"):
        sf.from_iterable([1]).collect(modules=["helper"])
    with pytest.raises(TypeError, match=r"modules=.* must be a list"):
        sf.from_iterable([1]).collect(modules=os)
    with pytest.raises(TypeError, match="files='side' must be a list"):
        sf.MapReduce("x", lambda line: [], files="side")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the interpreter of a new environment, with a library that exists only there, and a module that shadows `hypothesis`."""
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (libraries,) = directory.glob("lib/python3*/site-packages")
    (libraries / "only_in_environment.py").write_text("HERE = 'here'\n")
    (libraries / "hypothesis.py").write_text("HERE = 'mine'\n")
    return directory / "bin" / "python"


def where(line: str) -> Iterator[tuple[str, str]]:
    import hypothesis
    import only_in_environment  # type: ignore[import-not-found]

    yield "library", only_in_environment.HERE
    yield "shadowed", getattr(hypothesis, "HERE", "not mine")
    yield "prefix", sys.prefix


def test_interpreter_keeps_its_environment(engine: str, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "line").write_text("a\n")
    for python in (str(environment), os.path.relpath(environment, tmp_path)):
        monkeypatch.chdir(tmp_path)
        job = sf.MapReduce("line", where, max, output=tmp_path / "out", overwrite=True)
        result = job.run(engine=engine, python=python)
        assert dict(result) == {"library": "here", "shadowed": "mine", "prefix": str(environment.parent.parent)}


def test_missing_interpreter_names_the_option(server: str, tmp_path: Path) -> None:
    (tmp_path / "line").write_text("a\n")
    job = sf.MapReduce(tmp_path / "line", where, max, output=tmp_path / "out")
    missing = "/no such/100%/python's"
    with pytest.raises(sf.JobFailed) as failed:
        job.run(engine=server, python=missing)
    assert f"python={missing!r} does not exist on this node" in str(failed.value)
    with pytest.raises(sf.JobFailed, match=r'program "python9" not found .*python=\.\.\. names the interpreter of the nodes'):
        job.run(engine=server, python="python9")
    with pytest.raises(sf.JobFailed, match=r'^python: program "/no/python" not found'):
        job.run(python="/no/python")


UV = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
mkdir -p "$2"
echo "NAME = '$3'" > "$2/made_by_uv.py"
"""


def test_uv_installs_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ship.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def named(_: int) -> Any:
        import made_by_uv  # type: ignore[import-not-found]

        return made_by_uv.NAME

    with pytest.raises(sf.CannotInstall, match=r"requirements= needs pip or uv: .*has no module pip, and uv is not on PATH"):
        sf.from_iterable([1]).map(named).collect(requirements=["humanize"])
    (tmp_path / "uv").write_text(textwrap.dedent(UV))
    (tmp_path / "uv").chmod(0o755)
    assert sf.from_iterable([1]).map(named).collect(requirements=["humanize"]) == ["humanize"]
    (tmp_path / "uv").write_text("#!/bin/sh\necho no network >&2\nexit 2\n")
    with pytest.raises(sf.CannotInstall, match="uv pip install humanize failed: no network"):
        sf.from_iterable([1]).map(named).collect(requirements=["humanize"])
