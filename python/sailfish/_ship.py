"""Files that a job carries: this package, modules and libraries of the user, and a script that starts an interpreter."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType

from ._frames import failure_frame
from ._spec import LIBRARIES_FILE, MODULES_FILE, Spec, functions_of

#: Archives with machine code are unpacked into these directories, below the directory of the task.
_UNPACKED = {LIBRARIES_FILE: "sailfish-libraries", MODULES_FILE: "sailfish-modules"}
#: The directory of compiled modules. Their bytes differ between runs, so they are left out.
_COMPILED = "__pycache__"

# The archive is a link in the directory of the task and disappears with the task. Later imports need the target of the link.
_MAIN = """import os
import sys
sys.path[0] = os.path.realpath(sys.path[0])
from sailfish._worker import main
sys.exit(main())
"""


def write_worker(directory: Path) -> Path:
    """Writes an archive that Python can run, with this package and cloudpickle, and returns its path."""
    import cloudpickle

    archive = directory / "sailfish-worker.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        _write(writer, "__main__.py", _MAIN)
        for package in (Path(__file__).parent, Path(cloudpickle.__file__).parent):
            for source in sorted(package.rglob("*.py")):
                _write(writer, str(source.relative_to(package.parent)), source.read_text())
    return archive


def _write(writer: zipfile.ZipFile, name: str, text: str) -> None:
    # The bytes are the same each time, so that a file is not sent to a server that has it.
    writer.writestr(zipfile.ZipInfo(name), text)


def write_interpreter(directory: Path, python: str) -> Path:
    """Writes a script that starts the interpreter at a path of the node, and returns the path of the script. An interpreter finds its
    libraries relative to its own path, so it cannot be copied."""
    program = directory / "sailfish-python"
    reason = f"python={python!r} does not exist on this node: set python=... to the path of an interpreter that every node has"
    frame = "".join("%%" if byte == ord("%") else f"\\{byte:03o}" for byte in failure_frame(reason, [], is_of_data=True))
    program.write_text(
        f"""#!/bin/sh
python={shlex.quote(python)}
[ ! -x "$python" ] || exec "$python" "$@"
printf '{frame}'
exit 1
"""
    )
    program.chmod(0o755)
    return program


def write_modules(directory: Path, modules: Iterable[ModuleType]) -> list[Path]:
    """Writes an archive with the sources of modules, and returns its path in a list. Packages are archived with all their files. Returns an
    empty list if there are no sources."""
    wanted: dict[str, ModuleType] = {}
    for module in modules:
        package = module.__name__.partition(".")[0]
        wanted[package] = sys.modules.get(package, module)
    files: dict[str, Path] = {}
    for name, module in wanted.items():
        files.update(sources(name, module))
    if not files:
        return []
    return [_write_archive(directory / MODULES_FILE, files)]


def sources(name: str, module: ModuleType) -> Iterator[tuple[str, Path]]:
    """Yields the files of a module or a package, each with its path in an archive or a directory of modules."""
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    for folder in folders:
        for source in sorted(folder.rglob("*")):
            inside = source.relative_to(folder)
            if source.is_file() and not any(part == _COMPILED or part.startswith(".") for part in inside.parts):
                yield str(Path(name, inside)), source
    file = getattr(module, "__file__", None)
    # A module without a file, or in an archive, is pickled by value only.
    if not folders and name != "__main__" and file is not None and os.path.isfile(file):
        yield name + next((suffix for suffix in all_suffixes() if file.endswith(suffix)), ".py"), Path(file)


class CannotInstall(RuntimeError):
    """Error of libraries in `requirements` that cannot be installed."""

    __module__ = "sailfish"


def write_libraries(directory: Path, requirements: Sequence[str]) -> Path:
    """Installs libraries into a separate directory, writes an archive of it, and returns the path of the archive. Error:
    `CannotInstall`."""
    target = directory / "libraries"
    name, words = _installer(target)
    ran = subprocess.run([*words, *requirements], capture_output=True, text=True)
    if ran.returncode != 0:
        raise CannotInstall(f"{name} install {' '.join(requirements)} failed: {ran.stderr.strip()[-2000:]}")
    files = {str(source.relative_to(target)): source for source in target.rglob("*") if source.is_file()}
    return _write_archive(directory / LIBRARIES_FILE, files)


def _write_archive(archive: Path, files: Mapping[str, Path]) -> Path:
    """Writes an archive of files, given by their names in the archive, and returns its path. The same files give the same bytes."""
    # Python finds a package without an `__init__` by the entry of its directory.
    folders = {f"{folder}/" for name in files for folder in Path(name).parents if folder != Path()}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for name in sorted({*folders, *files}):
            data = files[name].read_bytes() if name in files else b""
            writer.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED if data else zipfile.ZIP_STORED)
    return archive


def _installer(target: Path) -> tuple[str, list[str]]:
    """Returns the name of the installer of this machine, and its command line for installing into a directory. Error: `CannotInstall`."""
    if importlib.util.find_spec("pip") is not None:
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        return "pip", [*words, "--target", str(target)]
    # Environments made by uv do not contain pip.
    uv = shutil.which("uv")
    if uv is None:
        raise CannotInstall(f"requirements= needs pip or uv: {sys.executable} has no module pip, and uv is not on PATH")
    return "uv pip", [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(target)]


def use_archive(name: str, place: int) -> bool:
    """Makes an archive of the job importable, by an entry at index `place` of `sys.path`. Returns whether the archive was unpacked into the
    directory of the task, because it contains machine code."""
    with zipfile.ZipFile(name) as archive:
        is_unpacked = any(".so" in Path(each).suffixes for each in archive.namelist())
        if is_unpacked:
            # Machine code cannot be loaded from within an archive.
            archive.extractall(_UNPACKED[name])
    # The archive is a link that disappears with the task, so the entry is its target.
    entry = os.path.abspath(_UNPACKED[name]) if is_unpacked else os.path.realpath(name)
    if entry not in sys.path:
        sys.path.insert(place, entry)
    return is_unpacked


def modules_of(spec: Spec) -> list[ModuleType]:
    """Returns the modules that define the functions of a job, unless they are installed."""
    names = {getattr(function, "__module__", None) or "" for function in functions_of(spec)}
    modules = (sys.modules.get(name) for name in sorted(names - {"__main__", "builtins"}))
    return [module for module in modules if module is not None and not _is_installed(module)]


def _is_installed(module: ModuleType) -> bool:
    return getattr(module, "__file__", None) is None or is_installed_at(Path(str(module.__file__)))


def is_installed_at(path: Path) -> bool:
    """Returns whether a file belongs to the standard library or to an installed package."""
    installed = (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.resolve().is_relative_to(directory) for directory in installed)
