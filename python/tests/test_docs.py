"""Tests that run the examples of the pages and docstrings, and the tutorial."""

from __future__ import annotations

import doctest
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sailfish as sf

ROOT = Path(__file__).parents[2]
API = ROOT / "docs" / "python-api.md"
PAGES = sorted((ROOT / "docs").glob("python*.md"))
TUTORIAL = ROOT / "examples" / "tutorial.ipynb"
#: Classes whose methods and properties have headings on the API page.
METHODS_WITH_HEADINGS = (sf.MapReduce, sf.Dataset, sf.Groups, sf.Workflow)
#: Classes whose objects only this package creates.
CREATED_HERE = {"Dataset", "Groups", "Result", "WorkflowFile", "WorkflowRun", "WorkflowStep"}
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PROMPT = re.compile(r"^ *>>> ", re.MULTILINE)


def sections(page: Path) -> Iterator[tuple[str, str, int]]:
    """Yields the heading, the text and the line of each section of a page."""
    text = page.read_text(encoding="utf-8")
    headings = list(HEADING.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None]):
        body = text[heading.start() : following.start() if following is not None else len(text)]
        yield heading[1], body, text.count("\n", 0, heading.start())


def run_examples(text: str, name: str, file: Path | None, line: int) -> None:
    """Runs the examples of a text in the current directory, as a script: functions and classes belong to `__main__`."""
    names = {"sf": sf, "__name__": "__main__"}
    test = doctest.DocTestParser().get_doctest(text, names, name, str(file) if file is not None else None, line)
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failed = runner.run(test, out=said.append).failed
    assert failed == 0, "".join(said)


EXAMPLES = [
    pytest.param(body, heading, page, line, id=f"{page.name}: {heading}")
    for page in PAGES
    for heading, body, line in sections(page)
    if PROMPT.search(body)
]


@pytest.mark.parametrize(("body", "heading", "page", "line"), EXAMPLES)
def test_examples_of_pages(body: str, heading: str, page: Path, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(body, heading, page, line)


def documented() -> Iterator[tuple[str, Any]]:
    """Yields the public functions and classes by their names, and the public members of the classes."""
    for name in sf.__all__:
        value = getattr(sf, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            yield name, value
        if inspect.isclass(value):
            yield from ((f"{name}.{each}", member) for each, member in vars(value).items() if is_public(each, member))


def is_public(name: str, member: object) -> bool:
    return not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))


def test_everything_has_a_docstring() -> None:
    assert [name for name, value in documented() if not inspect.getdoc(value)] == []


@pytest.mark.parametrize(
    ("name", "text"), [(name, value.__doc__) for name, value in documented() if value.__doc__ and PROMPT.search(value.__doc__)]
)
def test_examples_of_docstrings(name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(text, name, None, 0)


def test_classes_begin_with_an_example() -> None:
    for value in (sf.Dataset, sf.MapReduce, sf.Workflow):
        assert PROMPT.search(value.__doc__ or "")


def described() -> dict[str, str]:
    """Returns the sections of the API page whose heading is a name, by the name."""
    return {heading: body for heading, body, _ in sections(API) if re.fullmatch(r"[\w.]+", heading)}


def test_api_page_has_all_names() -> None:
    have_headings = {value.__name__ for value in METHODS_WITH_HEADINGS}
    expected = {name for name, _ in documented() if "." not in name or name.split(".")[0] in have_headings}
    # A module has one heading for all its names.
    expected |= {name for name in sf.__all__ if inspect.ismodule(getattr(sf, name))}
    assert set(described()) == expected
    others = [name for name, _ in documented() if name not in expected]
    assert others, "attributes of Result"
    assert [name for name in others if f"`{name}" not in described()[name.split(".")[0]]] == []


@pytest.mark.parametrize(("name", "value"), [pytest.param(*each, id=each[0]) for each in documented() if callable(each[1])])
def test_api_page_has_all_arguments(name: str, value: Any) -> None:
    body = described().get(name) or described()[name.split(".")[0]]
    if name in CREATED_HERE or issubclass_of_exception(value):
        return
    called = name.rpartition(".")[2]
    signature = re.search(rf"{called}\(([^`]*?)\)(?:`| ->|\n\n)", body, re.DOTALL)
    assert signature is not None, f"there is no signature of {name}"
    # The page must show the same names and defaults as the code.
    written = re.sub(r"\s+", " ", signature[1])
    assert written == shown_arguments(value)


def issubclass_of_exception(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def shown_arguments(value: Any) -> str:
    """Returns the arguments of a callable without their types."""
    arguments = [each.replace(annotation=inspect.Parameter.empty) for each in inspect.signature(value).parameters.values()]
    arguments = [each for each in arguments if each.name != "self"]
    shown = str(inspect.Signature(arguments))[1:-1]
    return shown.replace("'", '"')


def code_in_tables(text: str) -> Iterator[str]:
    """Yields the code in the last column of tables whose last heading is `sailfish`."""
    is_ours = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[-1] == "sailfish":
            is_ours = True
        elif not cells:
            is_ours = False
        elif is_ours and cells[-1].startswith("`"):
            yield cells[-1].split("`")[1]


def test_code_in_tables_runs_in_examples() -> None:
    """Each piece of code in a table must also occur in an example that runs."""
    page = ROOT / "docs" / "python-coming-from.md"
    text = page.read_text(encoding="utf-8")
    ran = "\n".join(example.source for example in doctest.DocTestParser().get_examples(text))
    codes = list(code_in_tables(text))
    assert codes
    assert [code for code in codes if re.sub(r"\s", "", code) not in re.sub(r"\s", "", ran)] == []


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the output of each cell of the tutorial, by the id of the cell. A failed cell is an error."""
    import nbformat
    from ipykernel.kernelspec import write_kernel_spec
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    directory = tmp_path_factory.mktemp("tutorial")
    # Use the interpreter that runs the tests, whatever kernels are installed.
    write_kernel_spec(str(directory / "kernels" / "python3"))
    specs = KernelSpecManager(kernel_dirs=[str(directory / "kernels")], ensure_native_kernel=False)
    environment = {
        # Use the package under test, and no files of the user.
        "PYTHONPATH": str(Path(str(sf.__file__)).parents[1]),
        "IPYTHONDIR": str(directory / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(directory / "runtime"),
        "TMPDIR": str(directory),
    }
    # `nbformat.read` has no types.
    read: Any = nbformat.read
    notebook = read(TUTORIAL, as_version=4)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs)
        NotebookClient(notebook, km=manager, timeout=300, resources={"metadata": {"path": str(directory)}}).execute()
    return {cell["id"]: said_by(cell) for cell in notebook.cells if cell.cell_type == "code"}


def said_by(cell: Any) -> str:
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "\n".join(texts)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("words", "'be': 2"),
        ("flow", "('silence', 1)"),
        ("explain", "reduce: filter(is_common)"),
        ("explain", "[('be', 2), ('is', 2), ('the', 2), ('to', 2)]"),
        ("keys", "[-1, 2, 10, 33]"),
        ("keys", "[33, -1, 10, 2]"),
        ("groups", "[('ann', 4), ('bob', 4), ('eve', 4)]"),
        ("sessions", "30 sessions, 60 views"),
        ("windows", "57"),
        ("join", "s  Ann Aal"),
        ("join", "s  eve, who has no name"),
        ("counters", "['1', '3'] 2"),
        ("wrong", "the map(size) function failed"),
        ("wrong", "views.tsv at byte 0: ValueError: invalid literal for int()"),
        ("wrong", "there is an output: False"),
        ("tables", "seconds: int64"),
        ("tables", "(30, 3)"),
        ("tables", "eve    27"),
        ("files", "_SUCCESS"),
        ("files", "user,seconds,views"),
        ("files", "True"),
    ],
)
def test_outputs_of_the_tutorial(cells: dict[str, str], cell: str, expected: str) -> None:
    assert expected in cells[cell]


def test_tutorial_file_has_no_outputs() -> None:
    notebook = json.loads(TUTORIAL.read_text(encoding="utf-8"))
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in codes)


def test_files_page_has_all_names() -> None:
    text = described()["files"]
    assert [name for name in sf.files.__all__ if name not in text] == []
    functions = [value for name in sf.files.__all__ if inspect.isfunction(value := getattr(sf.files, name))]
    assert [function.__name__ for function in functions if not inspect.getdoc(function)] == []
