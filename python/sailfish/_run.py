"""Stages of Python functions as a job of the engine: what is written for it, what goes with it, and how it is run."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _engine
from ._progress import display_of
from ._ship import modules_of, write_libraries, write_worker
from ._spec import SPEC_FILE, Spec, dump

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass
class Stage:
    """A map-reduce job, alone or among those that read each other."""

    name: str
    spec: Spec
    #: Files, directories, globs, URLs.
    inputs: list[str] = field(default_factory=list)
    #: The stages that it reads, behind its inputs.
    reads: list[str] = field(default_factory=list)
    #: As of `--input-format`.
    input_format: str | None = None


@dataclass
class Settings:
    """How a job is run."""

    engine: str = "local"
    memory: str | int | None = None
    slots: int | None = None
    progress: bool | None = None
    python: str | None = None
    overwrite: bool = False
    #: The output is on the disk, and not only in the memory of the system, when the job is over.
    sync: bool = True
    name: str | None = None
    files: Iterable[str | os.PathLike[str]] = ()
    modules: Iterable[ModuleType] = ()
    env: Mapping[str, str] | None = None
    #: Libraries that the functions need and that are not where they run, as pip takes them.
    requirements: Sequence[str] = ()
    #: A directory that client and nodes share.
    scratch: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        # Read for each stage, and by whoever looks at the files before.
        self.files, self.modules = list(self.files), list(self.modules)
        if isinstance(self.requirements, str):
            raise TypeError(f"requirements={self.requirements!r}: it is a list, as in ['humanize>=4']")
        if not self.is_local and not self.engine.startswith(("http://", "https://")):
            raise ValueError(f"engine={self.engine!r} is not known: 'local', or the URL of a server, as in 'http://127.0.0.1:7070'")

    @property
    def is_local(self) -> bool:
        """Whether jobs run in a process of this machine."""
        return self.engine == "local"

    def directory(self, prefix: str, what: str) -> str:
        """A new directory where all who run the job see it."""
        if self.scratch is None and not self.is_local:
            raise ValueError(f"{what}: say scratch=..., a directory that this machine and the nodes share")
        return tempfile.mkdtemp(prefix=prefix, dir=self.scratch)


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Settings by their names. Error: one that there is not."""
    known = [each.name for each in fields(Settings)]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}: choose {', '.join(known)}")
    return Settings(**options)


def paths_of(paths: Paths) -> list[str]:
    """The paths of an input as the engine takes them from anywhere."""
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not listed:
        raise ValueError("input is empty: it names one file, directory or glob, or more of them")
    return [absolute(os.fspath(path)) for path in listed]


def absolute(path: str) -> str:
    """A path that means the same from everywhere."""
    return path if path.startswith("s3://") else os.path.abspath(path)


def run(stages: list[Stage], output: str, settings: Settings) -> list[dict[str, Any]]:
    """Runs stages, the last of which writes the output. Gives a report of each."""
    with tempfile.TemporaryDirectory(prefix="sailfish-job-") as directory:
        job = Path(directory, "job.toml")
        job.write_text(_job_file(stages, output, settings, Path(directory)), encoding="utf-8")
        words = ["run", "--json", f"--job={job}"]
        words += [] if settings.is_local else ["--server", settings.engine]
        reports = _engine.run(words, display_of(settings.progress))
    return reports if isinstance(reports, list) else [reports]


def _job_file(stages: list[Stage], output: str, settings: Settings, directory: Path) -> str:
    """The job in TOML. Strings of JSON are strings of TOML."""
    worker, shipped, environment = _worker(settings, directory)
    if settings.requirements:
        shipped.append(str(write_libraries(directory, settings.requirements)))
    shipped += [os.path.abspath(os.fspath(file)) for file in settings.files]
    common: dict[str, Any] = {
        "exchange": "frames",
        "env": {**environment, **{name: str(value) for name, value in (settings.env or {}).items()}},
    }
    given = {
        "memory": settings.memory,
        "slots": settings.slots,
        "overwrite": settings.overwrite or None,
        "no_sync": not settings.sync or None,
    }
    common.update({name: value for name, value in given.items() if value is not None})
    tables = []
    for number, stage in enumerate(stages):
        place = directory / str(number)
        place.mkdir()
        spec = place / SPEC_FILE
        modules = [*settings.modules] if settings.is_local else [*settings.modules, *modules_of(stage.spec)]
        spec.write_bytes(dump(stage.spec, modules))
        is_last = stage is stages[-1]
        tables.append(_table(stage, shlex.join(worker), [str(spec), *shipped], output if is_last else None))
    if len(tables) == 1:
        name = {} if settings.name is None else {"name": settings.name}
        return _toml({**common, **tables[0], **name})
    prefix = "" if settings.name is None else f"{settings.name}."
    for table in tables:
        if "from" in table:
            table["from"] = [prefix + name for name in table["from"]]
    named = ({"name": prefix + stage.name, **table} for stage, table in zip(stages, tables))
    return _toml(common) + "".join(f"\n[[stage]]\n{_toml(table)}" for table in named)


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
    return table


def _worker(settings: Settings, directory: Path) -> tuple[list[str], list[str], dict[str, str]]:
    """The words that start a worker, the files that it needs, its environment."""
    # Hashes are the same in each process, so that a task that runs again gives the same bytes.
    environment = {"PYTHONHASHSEED": "0"}
    if settings.is_local:
        # What can be imported here can be imported there.
        here = str(Path(__file__).parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join([here, *(os.path.abspath(entry or ".") for entry in sys.path)])
        return [settings.python or sys.executable, "-m", f"{__package__}._worker"], [], environment
    archive = write_worker(directory)
    return [settings.python or f"python{sys.version_info[0]}.{sys.version_info[1]}", archive.name], [str(archive)], environment


def _toml(table: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_toml_value(value)}\n" for key, value in table.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_value(str(key))} = {_toml_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
