"""Tests of the identities of function steps: they are equal in each process, and change with each part that counts."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sailfish as sf
from sailfish._identity import Identifier
from sailfish._workflow_functions import save_function

#: A program that prints the command line of its step without directories.
PROGRAM = '''
import dataclasses
import enum
import functools
import re
import sailfish as sf
import helper
from apart import apart
from helper import imported

LIMIT = 3
WORDS = {"one", "two", "three", "four"}
TABLE = {"a": 1, "b": [2.5, None]}
PATTERN = re.compile("a+")

class Color(enum.Enum):
    RED = 1
    BLUE = 2

@dataclasses.dataclass
class Point:
    """A point."""
    x: int = 0
    y: int = 5

    def far(self):
        self.seen, self.before = True, False
        return self.x > 10

def called(n):
    return n + 1

def even(n):
    return n == 0 or odd(n - 1)

def odd(n):
    return n != 0 and even(n - 1) and len(BOTH) == 2

BOTH = {even, odd}

@functools.lru_cache(maxsize=9)
def nothing(n):
    return n * 0 if n < 2 else nothing(n - 1)

def outer(factor):
    def step(text, least, out, more=10, *, flag=False):
        """Documented."""
        import lazily
        class Inner:
            def set(self):
                self.one, self.two, self.three = 1, 2, 3
        found = [word for word in text.split() if word in {"alpha", "beta", "gamma"}]
        total = called(len(found)) * factor + LIMIT + helper.twice(least) + imported(more) + len(WORDS) + apart(len(TABLE))
        total += nothing(3) + odd(2) + even(3)
        out.write_text(f"{total} {PATTERN.match('aa')} {Color.RED} {Point().far()} {lazily.VALUE}")
    return step

wf = sf.Workflow("same", DIRECTORY)
wf.function(outer(2), "alpha argument", 5, name="step", outputs=["out"])
print(re.search(r'words = .*', wf.to_toml())[0].replace(DIRECTORY, ""))
'''
MODULES = {
    "helper.py": "import below\ndef twice(n):\n    return n * 2\ndef imported(n):\n    return n - below.ONE\n",
    "below.py": "ONE = 1\n",
    "lazily.py": "VALUE = 1\n",
    "apart.py": "def apart(n):\n    return n * 10\ndef unused():\n    pass\n",
    "unused.py": "VALUE = 1\n",
}
#: Whether the identity stays, the file, and a change of it.
CHANGES = [
    (True, "program.py", "", ""),
    (True, "program.py", "LIMIT = 3", "# A comment.\n\n\nLIMIT = 3  # Another one."),
    (True, "program.py", '"""Documented."""', '# Why.\n\n        """Documented."""'),
    (True, "program.py", "class Inner:", "\n\n\n        class Inner:"),
    (True, "program.py", "@dataclasses", "\n\n\n@dataclasses"),
    (True, "program.py", '{"one", "two", "three", "four"}', '{"four", "three", "two", "one"}'),
    (False, "program.py", '{"a": 1, "b": [2.5, None]}', '{"b": [2.5, None], "a": 1}'),
    (True, "program.py", "wf = ", "UNUSED = 7\nwf = "),
    (True, "unused.py", "VALUE = 1", "VALUE = 2"),
    (True, "apart.py", "pass", "return 7"),
    (True, "apart.py", "def apart", "# A comment.\ndef apart"),
    (False, "apart.py", "n * 10", "n * 11"),
    (False, "program.py", "LIMIT = 3", "LIMIT = 4"),
    (False, "program.py", "LIMIT = 3", "LIMIT = 3.0"),
    (False, "program.py", "more=10", "more=11"),
    (False, "program.py", "flag=False", "flag=True"),
    (False, "program.py", "outer(2)", "outer(3)"),
    (False, "program.py", "n + 1", "n + 2"),
    (False, "program.py", "n + 1", "n - 1"),
    (False, "program.py", '"gamma"', '"delta"'),
    (False, "program.py", '"alpha argument", 5', '"argument", 6'),
    (False, "program.py", '"alpha argument", 5', '"alpha", 5'),
    (True, "program.py", "even(n - 1)", "even((n - 1))"),
    (False, "program.py", "even(n - 1)", "even(n - 3)"),
    (False, "program.py", "{even, odd}", "{odd}"),
    (False, "program.py", "n * 0", "n * 1"),
    (False, "program.py", "maxsize=9", "maxsize=8"),
    (False, "program.py", '"three", "four"', '"three"'),
    (False, "program.py", "2.5", "2.25"),
    (False, "program.py", '"a+"', '"b+"'),
    (False, "program.py", "RED = 1", "RED = 3"),
    (False, "program.py", "y: int = 5", "y: int = 6"),
    (False, "program.py", "self.x > 10", "self.y > 10"),
    (False, "program.py", 'outputs=["out"]', 'outputs=["other"]'),
    (False, "helper.py", "n * 2", "n * 3"),
    (False, "helper.py", "n - below", "n + below"),
    (False, "below.py", "ONE = 1", "ONE = 2"),
    (False, "lazily.py", "VALUE = 1", "VALUE = 2"),
]


def printed(directory: Path, seed: int, changed: str = "", before: str = "", after: str = "") -> str:
    """Runs the program, with a change of one file, in a directory that is made. Returns the command line that it prints."""
    directory.mkdir(parents=True)
    for name, text in {"program.py": PROGRAM.replace("DIRECTORY", repr(str(directory))), **MODULES}.items():
        if name == changed:
            assert before in text
            text = text.replace(before, after, 1)
        (directory / name).write_text(text)
    package = str(Path(str(sf.__file__)).parents[1])
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, str(directory / "program.py")]
    ran = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the command line of the unchanged program."""
    return printed(tmp_path_factory.mktemp("first") / "place", 1)


@pytest.mark.parametrize(("stays", "changed", "before", "after"), CHANGES)
def test_identity_changes_with_each_part_that_counts(
    first: str, stays: bool, changed: str, before: str, after: str, tmp_path: Path
) -> None:
    words = printed(tmp_path / "another" / "place", 2, changed, before, after)
    assert re.search(r"/\.sailfish/steps/[0-9a-f]{64}\.pkl", words)
    assert (words == first) == stays


def test_function_with_all_parts_runs(tmp_path: Path) -> None:
    printed(tmp_path / "place", 3, "program.py", "print(", "wf.run()\nprint(")
    # called(1) * 2 + 3, helper.twice(5), imported(10), four words, and ten for each of two entries.
    total = 2 * 2 + 3 + 10 + 9 + 4 + 20
    assert (tmp_path / "place" / "out").read_text() == f"{total} <re.Match object; span=(0, 2), match='aa'> Color.RED False 1"


def test_dicts_count_with_their_order() -> None:
    def identity(value: object) -> bytes:
        return Identifier().identity(value)

    first, second = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert identity(first) != identity(second)
    assert identity(OrderedDict(first)) != identity(OrderedDict(second))
    assert identity([first, first]) == identity([first, dict(first)])
    # The order of attributes does not count.
    assert identity(SimpleNamespace(a=1, b=first)) == identity(SimpleNamespace(b=first, a=1))
    assert identity(SimpleNamespace(a=1, b=first)) != identity(SimpleNamespace(b=second, a=1))


def test_cycles_are_told_apart() -> None:
    def cycles(*ends: str) -> list[Any]:
        first: list[Any] = []
        second: list[Any] = []
        first.append([first])
        second.append(first[0] if ends == ("first",) else [second])
        return [first, second]

    assert Identifier().identity(cycles("first")) != Identifier().identity(cycles("second"))
    assert Identifier().identity(cycles("first")) == Identifier().identity(cycles("first"))


def test_many_functions_in_cycles_are_identified_fast() -> None:
    names = [f"f{number}" for number in range(40)]
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec("\n".join(f"def {name}():\n    return {', '.join(names)}" for name in names), variables)
    assert len(Identifier().identity(variables["f7"])) == 32


def test_packages_of_the_user_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = tmp_path / "user" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    other = tmp_path / "other" / "site-packages"
    for place, name in ((user, "of_user_site"), (other, "of_other_site")):
        place.mkdir(parents=True)
        (place / f"{name}.py").write_text("VALUE = 'found'\n")
        monkeypatch.syspath_prepend(place)
    monkeypatch.setattr(site, "getuserbase", lambda: str(tmp_path / "user"))
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(user))

    def step(out: Path) -> None:
        import of_other_site  # type: ignore[import-not-found]

        out.write_text(of_other_site.VALUE)

    wf = sf.Workflow("places", tmp_path)
    found = wf.function(step, outputs=["out"])
    saved = save_function("step", step, (), [], tmp_path)
    assert {str(user), str(other)} <= {*saved.reads}
    assert str(other) in saved.env["PYTHONPATH"].split(os.pathsep)
    assert str(user) not in saved.env["PYTHONPATH"].split(os.pathsep)
    assert saved.env["PYTHONUSERBASE"] == str(tmp_path / "user")
    wf.run()
    assert found.output().read_text() == "found"


def test_saved_files_stay(tmp_path: Path) -> None:
    def step(out: Path) -> None:
        out.write_text("done")

    wf = sf.Workflow("same", tmp_path)
    wf.function(step, outputs=["out"])
    text = wf.to_toml()
    (saved,) = (tmp_path / ".sailfish" / "steps").iterdir()
    before = saved.stat()
    assert wf.to_toml() == text
    assert list(saved.parent.iterdir()) == [saved]
    assert (saved.stat().st_ino, saved.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_saved_modules_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "modules" / "package_of_steps"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "data.txt").write_text("data")
    (package / "late.py").write_text("from pathlib import Path\nWHERE = Path(__file__).with_name('data.txt').read_text()\n")
    (package / "steps.py").write_text("def step(out):\n    from . import late\n    out.write_text(late.WHERE)\n")
    (tmp_path / "modules" / "by_name_of_steps.py").write_text("VALUE = 'by name'\n")

    def named(out: Path) -> None:
        import importlib

        out.write_text(importlib.import_module("by_name_of_steps").VALUE)

    with monkeypatch.context() as patched:
        patched.syspath_prepend(tmp_path / "modules")
        import by_name_of_steps  # type: ignore[import-not-found]
        import package_of_steps.steps  # type: ignore[import-not-found]
    wf = sf.Workflow("modules", tmp_path)
    step = wf.function(package_of_steps.steps.step, outputs=["out"])
    given = wf.function(named, outputs=["named"], modules=[by_name_of_steps])
    wf.run()
    assert step.output().read_text() == "data"
    assert given.output().read_text() == "by name"


def test_step_may_call_itself_and_other_steps(tmp_path: Path) -> None:
    program = f"""
import sailfish as sf
wf = sf.Workflow("calls", {str(tmp_path)!r})

@wf.step("one", outputs=["one"])
def other(text, out):
    out.write_text(text)

@wf.step(3, outputs=["out"])
def again(number, out):
    if number > 0:
        again(number - 1, out)
    else:
        other("done", out)

wf.run()
print(again.output().read_text())
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(str(sf.__file__)).parents[1])}
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment)
    assert (ran.stdout, ran.stderr) == ("done\n", "")


def test_function_that_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    import threading

    lock = threading.Lock()
    wf = sf.Workflow("locked", tmp_path)
    file = wf.command("first", "true", stdout="first").output()

    def locked(out: Path) -> None:
        with lock:
            out.write_text("")

    def uses(out: Path) -> None:
        out.write_text(file.read_text())

    wf.function(locked, outputs=["out"])
    with pytest.raises(sf.CannotSend, match=r"the function of the step 'locked' cannot be saved .* it uses 'lock', a _thread.lock"):
        wf.run()
    wf = sf.Workflow("uses", tmp_path)
    wf.function(uses, outputs=["out"])
    with pytest.raises(sf.CannotSend, match="the function uses the file 'first' of the step 'first': pass it to the function"):
        wf.to_toml()
