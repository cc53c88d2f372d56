"""What goes to nodes on which neither this package nor the user's modules are installed."""

from __future__ import annotations

import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

from ._spec import Spec, functions_of

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
