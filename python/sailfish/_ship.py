"""What goes to nodes on which neither this package nor the user's modules are installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ._spec import LIBRARIES_FILE, Spec, functions_of

#: Where libraries are unpacked, if they have to be.
_UNPACKED = "sailfish-libraries"

# The archive is a link in the directory of a task, which goes with that: what is imported later is found where it lies.
_MAIN = """import os
import sys
sys.path[0] = os.path.realpath(sys.path[0])
from sailfish._worker import main
sys.exit(main())
"""


def write_worker(directory: Path) -> Path:
    """Writes an archive that Python runs: this package, and what it needs to unpack functions."""
    import cloudpickle

    archive = directory / "sailfish-worker.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        _write(writer, "__main__.py", _MAIN)
        for package in (Path(__file__).parent, Path(cloudpickle.__file__).parent):
            for source in sorted(package.rglob("*.py")):
                _write(writer, str(source.relative_to(package.parent)), source.read_text())
    return archive


def _write(writer: zipfile.ZipFile, name: str, text: str) -> None:
    # The same bytes each time, so that a server that has the file need not get it again.
    writer.writestr(zipfile.ZipInfo(name), text)


class CannotInstall(RuntimeError):
    """The libraries of a job cannot be had."""

    __module__ = "sailfish"


def write_libraries(directory: Path, requirements: Sequence[str]) -> Path:
    """Installs libraries into a directory of their own, and writes them into an archive. Error: `CannotInstall`."""
    target = directory / "libraries"
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target", str(target)]
    ran = subprocess.run([*words, *requirements], capture_output=True, text=True)
    if ran.returncode != 0:
        raise CannotInstall(f"pip install {' '.join(requirements)} failed: {ran.stderr.strip()[-2000:]}")
    archive = directory / LIBRARIES_FILE
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for source in sorted(target.rglob("*")):
            if source.is_file():
                info = zipfile.ZipInfo(str(source.relative_to(target)))
                writer.writestr(info, source.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive


def use_libraries() -> bool:
    """Lets functions import what was sent along; whether from the directory of the task."""
    with zipfile.ZipFile(LIBRARIES_FILE) as archive:
        is_unpacked = any(".so" in Path(name).suffixes for name in archive.namelist())
        if is_unpacked:
            # Machine code cannot be loaded from within an archive.
            archive.extractall(_UNPACKED)
    # Here the archive is a link, which goes with the task.
    entry = _UNPACKED if is_unpacked else os.path.realpath(LIBRARIES_FILE)
    if entry not in sys.path:
        sys.path.insert(0, entry)
    return is_unpacked


def modules_of(spec: Spec) -> list[ModuleType]:
    """The modules that the functions of a job are from, unless they were installed."""
    names = {getattr(function, "__module__", None) or "" for function in functions_of(spec)}
    modules = (sys.modules.get(name) for name in sorted(names - {"__main__", "builtins"}))
    return [module for module in modules if module is not None and not _is_installed(module)]


def _is_installed(module: ModuleType) -> bool:
    if getattr(module, "__file__", None) is None:
        return True
    path = Path(str(module.__file__)).resolve()
    installed = (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.is_relative_to(directory) for directory in installed)
