"""Runs stages of Python functions as a job of the engine: writes the job file, collects the files of the job, starts the program."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from . import _engine
from ._progress import display_of
from ._ship import modules_of, write_interpreter, write_libraries, write_modules, write_worker
from ._spec import PARQUET, SPEC_FILE, STORED_PREFIX, Spec, dump

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: The beginning of a URL, with its scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: Schemes of object stores that the engine reads and writes.
_OBJECT_STORES = ("s3", "s3a")
#: The default interpreter on nodes. Pickled functions need the same minor version of Python.
_PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass
class Stage:
    """A map-reduce job, alone or in a chain of stages."""

    name: str
    spec: Spec
    #: Paths of files and directories, globs, and URLs.
    inputs: list[str] = field(default_factory=list)
    #: The names of the stages that this stage reads. They are numbered after its inputs.
    reads: list[str] = field(default_factory=list)
    #: The value of the option `--input-format`.
    input_format: str | None = None


@dataclass
class Settings:
    """Options of a run."""

    #: The URL of a server, or `"local"` or None for this machine.
    engine: str | None = "local"
    memory: str | int | None = None
    slots: int | None = None
    progress: bool | None = None
    python: str | None = None
    overwrite: bool = False
    #: Whether the output is durable on disk, and not only in the page cache, when the job has ended.
    sync: bool = True
    name: str | None = None
    files: Iterable[str | os.PathLike[str]] = ()
    modules: Iterable[ModuleType] = ()
    env: Mapping[str, str] | None = None
    #: Libraries to install and to send with the job, in the syntax of pip.
    requirements: Sequence[str] = ()
    #: Limits of the processes of each attempt, such as `{"memory": "2G", "time": "1h"}`.
    limits: Mapping[str, str | int] | None = None
    #: A directory that this machine and all nodes share.
    scratch: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        # The files are read several times: by each stage, and by the search for hot keys. So an iterator becomes a list.
        self.files = [_stored_or_local(os.fspath(file), "files") for file in listed("files", self.files)]
        self.modules = listed("modules", self.modules)
        wrong = [module for module in self.modules if not isinstance(module, ModuleType)]
        if wrong:
            raise TypeError(f"modules={wrong!r:.200} must be a list of imported modules, not of names")
        if self.limits is not None and not isinstance(self.limits, Mapping):
            raise TypeError(f"limits={self.limits!r:.200} must map names to values, such as {{'memory': '2G'}}")
        if isinstance(self.requirements, str):
            raise TypeError(f"requirements={self.requirements!r} must be a list, such as ['humanize>=4']")
        if not self.is_local and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"engine={self.engine!r} is not known: use 'local' or the URL of a server, such as 'http://127.0.0.1:7070'")
        if self.python is not None:
            self.python = _interpreter(self.python)
        if self.scratch is not None:
            self.scratch = local_path(os.fspath(self.scratch), "scratch")

    @property
    def is_local(self) -> bool:
        """Whether jobs run on this machine, without a server."""
        return self.engine in (None, "local")

    @property
    def is_here(self) -> bool:
        """Whether the current interpreter runs the functions."""
        return self.is_local and self.python is None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.engine or ""

    def directory(self, prefix: str, what: str) -> str:
        """Makes a directory that this machine and all nodes can access, and returns its path. `what`: the reason, for the error. Error:
        `ValueError` for a server without `scratch`."""
        if self.scratch is None and not self.is_local:
            raise ValueError(
                f"{what}: set scratch=... to a directory that this machine and all nodes share under the same path (an object store does "
                "not work)"
            )
        return tempfile.mkdtemp(prefix=prefix, dir=self.scratch)


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Returns the settings of the given options. Error: `TypeError` for an unknown option."""
    known = [each.name for each in fields(Settings)]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}: choose {', '.join(known)}")
    return Settings(**options)


def paths_of(paths: Paths) -> list[str]:
    """Returns absolute paths of an input, and names of stored files. Errors: `ValueError` for an empty list; the errors of `absolute`."""
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not listed:
        raise ValueError("input is empty: name at least one file, directory or glob")
    return [stored_or_absolute(os.fspath(path)) for path in listed]


def stored_or_absolute(path: str) -> str:
    """Returns a stored file as `files:NAME`; any other path is absolute."""
    return _stored(path) or absolute(path)


def _stored_or_local(path: str, name: str) -> str:
    """Returns a stored file as `files:NAME`; any other path is that of a file on this machine. `name`: the argument, for the error."""
    return _stored(path) or local_path(path, name)


def _stored(path: str) -> str | None:
    if path.startswith("sailfish://"):
        return f"{STORED_PREFIX}{path.removeprefix('sailfish://')}"
    return path if path.startswith(STORED_PREFIX) else None


def absolute(path: str) -> str:
    """Returns the absolute path of a path, a `file://` URL or a path with `~`. Returns the URL of an object with the scheme s3. Error:
    `ValueError` for a URL of another scheme."""
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[1].lower() in _OBJECT_STORES:
        return f"s3://{path[scheme.end() :]}"
    if scheme is not None and scheme[1].lower() != "file":
        raise ValueError(f"{path!r}: {scheme[1]}:// is not supported: copy the data to a file system or to s3://")
    if re.match(r"s3a?:/[^/]", path):
        raise ValueError(f"{path!r}: a URL begins with s3://; pathlib.Path removes one slash, so pass the URL as a str")
    return _local(path)


def local_path(path: str, name: str) -> str:
    """Returns the absolute path of a file on this machine. `name`: the argument, for the error. Error: `ValueError` for a URL of a scheme
    other than `file`."""
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[1].lower() != "file":
        raise ValueError(f"{name}={path!r} must be a path in the file system of this machine, not a {scheme[1]}:// URL")
    return _local(path)


def _local(path: str) -> str:
    if _SCHEME.match(path):
        url = urlsplit(path)
        if url.netloc not in ("", "localhost"):
            raise ValueError(f"{path!r} names a file on the host {url.netloc!r}: use file:///PATH or /PATH for a file on this machine")
        # `url.path` would end at a `#` or a `?`, which a file name may contain.
        return os.path.abspath(unquote(path[len("file://") + len(url.netloc) :]))
    return os.path.abspath(os.path.expanduser(path))


def listed(name: str, given: Iterable[Any]) -> list[Any]:
    """Returns the values of an argument as a list. Error: `TypeError` for a single value."""
    if isinstance(given, (str, bytes, os.PathLike, ModuleType)):
        raise TypeError(f"{name}={given!r} must be a list")
    return list(given)


def _interpreter(python: str) -> str:
    """Returns the absolute path of an interpreter. A bare name stays as it is; the node looks it up in its PATH."""
    return _local(python) if "/" in python else python


def run(stages: list[Stage], output: str, settings: Settings) -> list[dict[str, Any]]:
    """Runs stages as one job and returns a report per stage. The last stage writes the output. Errors: `JobFailed`, `CannotSend`,
    `CannotInstall`, `EngineMissing`."""
    with tempfile.TemporaryDirectory(prefix="sailfish-job-") as directory:
        job = Path(directory, "job.toml")
        job.write_text(_job_file(stages, output, settings, Path(directory)), encoding="utf-8")
        words = ["run", "--json", f"--job={job}"]
        words += [] if settings.is_local else ["--server", settings.url]
        try:
            reports = _engine.run(words, display_of(settings.progress))
        except _engine.JobFailed as failed:
            raise _with_python(failed, settings) from None
    return reports if isinstance(reports, list) else [reports]


def _with_python(failed: _engine.JobFailed, settings: Settings) -> _engine.JobFailed:
    """Adds a hint about `python=` to the error of a node without the interpreter."""
    if settings.is_local:
        return failed
    missing = re.compile(rf'program "{re.escape(settings.python or _PYTHON)}" not found.*')
    message = missing.sub(lambda found: f"{found[0]}; python=... names the interpreter of the nodes", str(failed))
    return _engine.JobFailed(message, failed.exit_code)


def _job_file(stages: list[Stage], output: str, settings: Settings, directory: Path) -> str:
    """Writes the files of a job into a directory, and returns the job file in TOML."""
    worker, shipped, environment = _worker(settings, directory)
    if settings.requirements:
        shipped.append(str(write_libraries(directory, settings.requirements)))
    shipped += map(str, write_modules(directory, settings.modules))
    shipped += [os.fspath(file) for file in settings.files]
    common: dict[str, Any] = {
        "exchange": "frames",
        "env": {**environment, **{name: str(value) for name, value in (settings.env or {}).items()}},
    }
    given = {
        "memory": settings.memory,
        "slots": settings.slots,
        "overwrite": settings.overwrite or None,
        "no_sync": not settings.sync or None,
        "limit": [f"{name.replace('_', '-')}={value}" for name, value in (settings.limits or {}).items()] or None,
    }
    common.update({name: value for name, value in given.items() if value is not None})
    tables = []
    for number, stage in enumerate(stages):
        place = directory / str(number)
        place.mkdir()
        spec = place / SPEC_FILE
        modules = [*settings.modules] if settings.is_here else [*settings.modules, *modules_of(stage.spec)]
        spec.write_bytes(dump(stage.spec, modules))
        is_last = stage is stages[-1]
        tables.append(_table(stage, shlex.join(worker), [str(spec), *shipped], output if is_last else None))
    if len(tables) == 1:
        name = {} if settings.name is None else {"name": settings.name}
        return toml({**common, **tables[0], **name})
    prefix = "" if settings.name is None else f"{settings.name}."
    for table in tables:
        if "from" in table:
            table["from"] = [prefix + name for name in table["from"]]
    named = ({"name": prefix + stage.name, **table} for stage, table in zip(stages, tables))
    return toml(common) + "".join(f"\n[[stage]]\n{toml(table)}" for table in named)


def _table(stage: Stage, program: str, files: list[str], output: str | None) -> dict[str, Any]:
    shuffle = stage.spec.shuffle
    table: dict[str, Any] = {"mapper": program, "file": files, "output_format": "raw"}
    table.update({"map_only": True} if shuffle is None else {"reducer": program})
    if stage.inputs:
        table["input"] = stage.inputs
    if stage.reads:
        table["from"] = stage.reads
    if stage.input_format is not None:
        table["input_format"] = stage.input_format
    if shuffle is not None and shuffle.has_tails:
        table["key_tails"] = True
    if shuffle is not None and shuffle.is_total:
        table["total_order"] = True
    if output is not None:
        table["output"] = output
        if stage.spec.output_format == "csv" and output.startswith(STORED_PREFIX):
            # Each part has a header, so that parts cannot be joined.
            table["part_extension"] = ".csv"
        if stage.spec.output_format in PARQUET:
            table["part_extension"] = ".parquet"
            # Some readers apply the types of the first file to all files, but an empty part has no types.
            table["omit_empty_parts"] = True
    return table


def _worker(settings: Settings, directory: Path) -> tuple[list[str], list[str], dict[str, str]]:
    """Returns the command line of a worker, the files that the worker needs, and its environment variables."""
    # The hashes of texts must be the same in each process, so that a retry of a task produces the same bytes.
    environment = {"PYTHONHASHSEED": "0"}
    if settings.is_here:
        # The worker can import all modules that this process can import.
        here = str(Path(__file__).parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join([here, *(os.path.abspath(entry or ".") for entry in sys.path)])
        return [sys.executable, "-m", f"{__package__}._worker"], [], environment
    archive = write_worker(directory)
    python = settings.python or _PYTHON
    if settings.is_local:
        # The installed libraries of this process are left out, because they would shadow the libraries of the interpreter.
        environment["PYTHONPATH"] = os.pathsep.join(_not_installed(sys.path))
    elif "/" in python:
        # The engine would send the interpreter to the nodes, without its environment. So the job carries a script that starts it in place.
        starter = write_interpreter(directory, python)
        # A contained worker sees the installation of an interpreter that a variable names.
        environment["SAILFISH_PYTHON"] = python
        return [f"./{starter.name}", archive.name], [str(archive), str(starter)], environment
    return [python, archive.name], [str(archive)], environment


def _not_installed(entries: Iterable[str]) -> list[str]:
    """Returns the entries of a module path, without the standard library and installed packages."""
    own = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
    paths = [os.path.abspath(entry or ".") for entry in entries]
    return [
        path
        for path in paths
        if os.path.basename(path) not in ("site-packages", "dist-packages")
        and not os.path.join(path, "").startswith(own)
        and not re.fullmatch(r"python\d+\.zip", os.path.basename(path))
    ]


def toml(table: Mapping[str, Any]) -> str:
    """Returns the lines of a table in TOML."""
    return "".join(f"{key} = {_toml_value(value)}\n" for key, value in table.items())


def _toml_value(value: Any) -> str:
    # Except for DEL, a JSON string is a TOML string.
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_value(str(key))} = {_toml_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
