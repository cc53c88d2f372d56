"""Map and reduce as functions."""

from __future__ import annotations

import codecs
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _engine
from ._formats import INPUT_FORMATS, OUTPUT_FORMATS, needed
from ._result import Result
from ._ship import modules_of, write_worker
from ._spec import FOLDS, PARTIAL_FOLDS, SPEC_FILE, Spec, dump

#: Inputs that are given as options.
_INPUTS_MAX = 100

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class MapReduce:
    """A job of a map function and, mostly, a reduce function.

    ``map(record)`` yields ``(key, value)`` pairs. ``reduce(key, values)`` gets each key once, in order, with an iterator of its values; it
    returns the value for the key, or is a generator that yields ``(key, value)`` pairs. ``combine(key, values)`` folds some of the values
    of a key before they travel. ``sum``, ``min``, ``max``, ``len``, ``list``, ``set``, ``sorted``, ``any`` and ``all`` may be given as
    ``reduce``, and those of them that give the same over parts as ``combine``. Without ``reduce`` what ``map`` yields is the output.

    Keys are ``None``, ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``date``, ``datetime`` or tuples of these; values whatever can be
    pickled. ``files`` lie in the directory in which functions run; of the environment they see PATH, HOME, LANG
    and LC_*, and what ``env`` says. Functions go to where they run; what they import must be there, but
    for ``modules``, and on a server the modules that the functions are from, unless they are installed: these go with the job.

    ``output=None`` keeps the result in a temporary directory for as long as the `Result` lives.
    """

    def __init__(
        self,
        input: Paths,
        map: Callable[[Any], Iterable[tuple[Any, Any]]],
        reduce: Callable[..., Any] | None = None,
        combine: Callable[..., Any] | None = None,
        output: str | os.PathLike[str] | None = None,
        input_format: str = "text",
        output_format: str | None = None,
        *,
        setup: Callable[[], object] | None = None,
        teardown: Callable[[], object] | None = None,
        files: Iterable[str | os.PathLike[str]] = (),
        modules: Iterable[ModuleType] = (),
        env: Mapping[str, str] | None = None,
        encoding: str = "utf-8",
        errors: str = "strict",
        overwrite: bool = False,
        name: str | None = None,
    ) -> None:
        self._inputs = _paths(input)
        self._output = None if output is None else os.fspath(output)
        if output_format is None:
            output_format = "pickle" if output is None else "tsv"
        self._input_words = _input_words(input_format)
        _check_formats(output_format, encoding, errors)
        _check_functions(map, reduce, combine, setup, teardown)
        if combine is not None and reduce is None:
            raise ValueError("combine folds values before they go to reduce, and there is no reduce")
        self._spec = Spec(map, reduce, combine, setup, teardown, input_format, output_format, encoding, errors)
        self._files = [os.fspath(file) for file in files]
        self._modules, self._env = list(modules), dict(env or {})
        self._overwrite, self._name = overwrite, name

    def run(
        self,
        engine: str = "local",
        memory: str | int | None = None,
        slots: int | None = None,
        progress: bool | None = None,
        *,
        python: str | None = None,
    ) -> Result:
        """Runs the job and waits for its end.

        ``engine``: ``"local"``, this machine, or the URL of a server, whose nodes see the input and the output under the same paths, or as
        ``s3://``. They run the functions with ``python``: by default ``python3.N``, as this one is. Errors: `JobFailed`, with the traceback
        of a function that failed; `KeyboardInterrupt`, when all of the job has ended.
        """
        is_local = engine == "local"
        if not is_local and not engine.startswith(("http://", "https://")):
            raise ValueError(f"engine={engine!r} is not known: 'local', or the URL of a server, as in 'http://127.0.0.1:7070'")
        if not is_local and self._output is None:
            raise ValueError("the nodes of a server write the output where all see it: say output=..., a path that they share or s3://...")
        kept = tempfile.TemporaryDirectory(prefix="sailfish-") if self._output is None else None
        output = os.path.join(kept.name, "output") if kept else self._output
        assert output is not None
        with tempfile.TemporaryDirectory(prefix="sailfish-job-") as directory:
            spec = Path(directory, SPEC_FILE)
            modules = self._modules if is_local else [*self._modules, *modules_of(self._spec)]
            spec.write_bytes(dump(self._spec, modules))
            words = ["run", "--json", "--exchange", "frames", "--output-format", "raw", *self._input_words, f"--output={output}"]
            words += self._local_words(python) if is_local else self._server_words(engine, python, Path(directory))
            words += [word for file in (str(spec), *self._files) for word in ("--file", file)]
            for option, value in (("--memory", memory), ("--slots", slots), ("--name", self._name)):
                words += [] if value is None else [f"{option}={value}"]
            words += [f"--env={name}={value}" for name, value in self._env.items()]
            words += ["--overwrite"] if self._overwrite else []
            words += self._input_paths(Path(directory))
            report = _engine.run(words, _engine.progress_stream(progress))
        return Result(output, self._spec.output_format, report, kept)

    def _input_paths(self, directory: Path) -> list[str]:
        if len(self._inputs) <= _INPUTS_MAX:
            return [f"--input={path}" for path in self._inputs]
        # More than a command line may hold. Relative paths would count from where the file is.
        paths = [path if path.startswith("s3://") else os.path.abspath(path) for path in self._inputs]
        job = directory / "job.toml"
        job.write_text(f"input = {json.dumps(paths)}\n")
        return [f"--job={job}"]

    def _local_words(self, python: str | None) -> list[str]:
        # What can be imported here can be imported there.
        here = str(Path(__file__).parent.parent)
        path = os.pathsep.join([here, *(os.path.abspath(entry or ".") for entry in sys.path)])
        worker = [python or sys.executable, "-m", f"{__package__}._worker"]
        return [*self._function_words(worker), "--env", f"PYTHONPATH={path}"]

    def _server_words(self, engine: str, python: str | None, directory: Path) -> list[str]:
        archive = write_worker(directory)
        worker = [python or f"python{sys.version_info[0]}.{sys.version_info[1]}", archive.name]
        return ["--server", engine, *self._function_words(worker), "--file", str(archive)]

    def _function_words(self, worker: list[str]) -> list[str]:
        program = shlex.join(worker)
        reducer = ["--reducer", program] if self._spec.reduce is not None else ["--map-only"]
        # Hashes are the same in each process, so that a task that runs again gives the same bytes.
        return ["--mapper", program, *reducer, "--env", "PYTHONHASHSEED=0"]


def _paths(paths: Paths) -> list[str]:
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not listed:
        raise ValueError("input is empty: it names one file, directory or glob, or more of them")
    return [os.fspath(path) for path in listed]


def _input_words(input_format: str) -> list[str]:
    if input_format in INPUT_FORMATS:
        return []
    if input_format.startswith("fixed:"):
        return ["--input-format", input_format]
    raise ValueError(f"input_format={input_format!r} is not known: choose {', '.join(INPUT_FORMATS)} or fixed:RECORD_BYTES")


def _check_formats(output_format: str, encoding: str, errors: str) -> None:
    if output_format not in OUTPUT_FORMATS:
        raise ValueError(f"output_format={output_format!r} is not known: choose {', '.join(OUTPUT_FORMATS)}")
    if output_format == "parquet":
        needed("pyarrow", "output_format='parquet'")
    codecs.lookup_error(errors)
    codecs.lookup(encoding)
    if b"a\nb".decode(encoding, "replace") != "a\nb":
        raise ValueError(f"encoding={encoding!r}: lines of such a text do not end with a byte 10, and cannot be told apart")


def _check_functions(map: object, reduce: object, combine: object, setup: object, teardown: object) -> None:
    for name, function in (("map", map), ("reduce", reduce), ("combine", combine), ("setup", setup), ("teardown", teardown)):
        if function is None and name != "map":
            continue
        if not callable(function):
            raise TypeError(f"{name} is {function!r:.200}, which cannot be called")
    folds = [fold for fold in FOLDS if combine is fold and fold not in PARTIAL_FOLDS]
    if folds:
        name = folds[0].__name__
        raise ValueError(
            f"combine={name}: what {name} makes of some of the values of a key is no value of it, so that reduce would see something else; "
            f"{', '.join(fold.__name__ for fold in PARTIAL_FOLDS)} may combine"
        )
