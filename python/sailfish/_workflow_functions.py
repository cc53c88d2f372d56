"""Functions of workflow steps: their identities, and the files from which `sailfish._workflow_step` runs them."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import os
import pickle
import shutil
import site
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ._identity import Identifier, is_importable
from ._ship import is_installed_at, sources
from ._spec import CannotSend, hint, pickled, pickled_by_value
from ._version import VERSION

#: Counts the changes of the identity and of the files.
_FORMAT = "2"
#: The directory of functions and modules, below the directory of the workflow.
STEPS_DIRECTORY = Path(".sailfish", "steps")


@dataclass(frozen=True)
class SavedFunction:
    """A function in a file, with the command line that runs it."""

    words: list[str]
    env: dict[str, str]
    #: Files and directories that its process reads.
    reads: list[str]


def save_function(
    step: str, function: Callable[..., Any], arguments: tuple[Any, ...], modules: Iterable[ModuleType], top: Path
) -> SavedFunction:
    """Writes a function with its arguments and modules below the directory `top` of a workflow. The name of the file is the identity of the
    function, so equal functions have equal command lines. `step`: the name of the step, for errors. Error: `CannotSend`."""
    identifier = Identifier()
    try:
        identities = [identifier.identity(function), identifier.identity(arguments)]
    except (Exception, RecursionError) as error:
        raise _cannot_send(step, function, error) from error
    shipped = _shipped({*identifier.used, *(module.__name__.partition(".")[0] for module in modules)})
    directory = top / STEPS_DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    saved_modules, content = _save_modules(directory, shipped)
    version = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]} {VERSION} {_FORMAT}"
    identity = hashlib.sha256(b"".join([version.encode(), content, *identities])).hexdigest()
    path = directory / f"{identity}.pkl"
    if not path.exists():
        by_value = [module for name, module in identifier.defining.items() if name.partition(".")[0] not in shipped]
        try:
            with pickled_by_value(by_value):
                call = pickled((function, arguments))
        except Exception as error:
            raise _cannot_send(step, function, error) from error
        _write(path, pickle.dumps({"python": list(sys.version_info[:2]), "sailfish": VERSION, "call": call}))
    words = [sys.executable, "-m", f"{__package__}._workflow_step", str(path), *saved_modules]
    return SavedFunction(words, _environment(), [str(directory), *_interpreter_places()])


def _cannot_send(step: str, function: Callable[..., Any], error: BaseException) -> CannotSend:
    advice = hint(function, "create it inside the function")
    return CannotSend(f"the function of the step {step!r} cannot be saved for its process: {error}{advice}")


def _write(path: Path, data: bytes) -> None:
    """Writes a file that appears as a whole."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".writing-", delete=False) as file:
        file.write(data)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def _shipped(names: Iterable[str]) -> dict[str, ModuleType]:
    """Returns top-level modules that are not installed, with the modules that they import, by name. Modules are not executed."""
    found: dict[str, ModuleType] = {}
    left = set(names)
    while left:
        name = left.pop()
        module = _top_module(name)
        if name in found or module is None or is_importable(module):
            continue
        found[name] = module
        left.update(_imports_of(module))
    return found


def _top_module(name: str) -> ModuleType | None:
    if name in sys.modules:
        return sys.modules[name]
    try:
        spec = importlib.util.find_spec(name)
        return None if spec is None else importlib.util.module_from_spec(spec)
    except (ImportError, ValueError):
        return None


def _imports_of(module: ModuleType) -> Iterator[str]:
    """Yields the names of the top-level modules that the sources of a module import."""
    for _, path in sources(module.__name__, module):
        if path.suffix != ".py":
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for each in ast.walk(tree):
            if isinstance(each, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in each.names)
            elif isinstance(each, ast.ImportFrom) and each.level == 0 and each.module:
                yield each.module.partition(".")[0]


def _save_modules(directory: Path, modules: dict[str, ModuleType]) -> tuple[list[str], bytes]:
    """Copies the sources of modules into a directory whose name is the hash of their content. Returns its path in a list, which is empty
    without modules, and the hash."""
    files = {place: path.read_bytes() for name, module in modules.items() for place, path in sources(name, module)}
    content = hashlib.sha256()
    for place in sorted(files):
        for part in (os.fsencode(place), files[place]):
            content.update(len(part).to_bytes(8, "big"))
            content.update(part)
    if not files:
        return [], content.digest()
    target = directory / f"modules-{content.hexdigest()}"
    if not target.exists():
        made = Path(tempfile.mkdtemp(dir=directory, prefix=".writing-"))
        for place, data in files.items():
            (made / place).parent.mkdir(parents=True, exist_ok=True)
            (made / place).write_bytes(data)
        made.chmod(0o755)
        # Another process may have made the same directory in the meantime.
        with contextlib.suppress(OSError):
            made.rename(target)
        shutil.rmtree(made, ignore_errors=True)
    return [str(target)], content.digest()


def _environment() -> dict[str, str]:
    """Returns the variables of the process. Hashes of texts are the same in each process, so that a step writes the same bytes again. The
    files of a step cannot be imported by mistake."""
    environment = {"PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1"}
    entries = list(dict.fromkeys([*_package_places(), *_other_places()]))
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(entries)
    if _user_places():
        # The home directory of the process may be another one.
        environment["PYTHONUSERBASE"] = site.getuserbase()
    return environment


def _package_places() -> list[str]:
    """Returns the directories of this package and of cloudpickle, except for installed ones."""
    import cloudpickle

    places = (Path(file).resolve().parent.parent for file in (__file__, cloudpickle.__file__))
    return list(dict.fromkeys(str(place) for place in places if not is_installed_at(place / "any")))


def _user_places() -> list[str]:
    """Returns the directory of the packages that the user has installed, if this process imports from it."""
    place = site.getusersitepackages()
    return [place] if place in sys.path and os.path.isdir(place) else []


def _other_places() -> list[str]:
    """Returns the directories of installed packages that another process of the interpreter does not find by itself."""
    standard = {*map(os.path.realpath, [*site.getsitepackages(list(_prefixes())), *_user_places()])}
    entries = (os.path.abspath(entry) for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages"))
    return [entry for entry in entries if os.path.isdir(entry) and os.path.realpath(entry) not in standard]


def _prefixes() -> tuple[str, ...]:
    return sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix


def _interpreter_places() -> list[str]:
    return list(dict.fromkeys([*map(os.path.realpath, _prefixes()), *_package_places(), *_user_places(), *_other_places()]))
