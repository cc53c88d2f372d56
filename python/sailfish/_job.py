"""Jobs of a map function and a reduce function."""

from __future__ import annotations

import codecs
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ._groups import Gather, is_fold
from ._needed import needed
from ._readers import INPUT_FORMATS
from ._result import Result
from ._run import Paths, Settings, Stage, listed, paths_of, run, stored_or_absolute
from ._shuffles import Reduce
from ._spec import FOLDS, PARTIAL_FOLDS, Format, Source, Spec
from ._steps import Step
from ._tables import warn_of_types
from ._writers import OUTPUT_FORMATS


class MapReduce:
    """A job of a map function and, optionally, a reduce function.

    ``map(record)`` yields ``(key, value)`` pairs. ``reduce(key, values)`` is called once per key, in the order of the keys, with an
    iterator of the values. It returns the value for the key, or yields ``(key, value)`` pairs. ``combine(key, values)`` folds some of the
    values of a key in the map task, before the shuffle. ``sum``, ``min``, ``max``, ``len``, ``list``, ``set``, ``sorted``, ``any`` and
    ``all`` may be passed as ``reduce``; ``sum``, ``min``, ``max``, ``any`` and ``all`` as ``combine``. Without ``reduce`` the output of
    ``map`` is the output of the job.

    Keys are ``None``, ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``date``, ``datetime`` or tuples of these. Values are any objects
    that can be pickled. Functions run in a directory that contains ``files``. They see the environment variables PATH, HOME, LANG, LC_*
    and ``env``. The job carries the functions, the modules in ``modules`` and, on a server, the modules that define the functions unless
    they are installed. All other imports must be installed where the functions run, or be in ``requirements``: libraries in the syntax of
    pip, which are installed on this machine and carried by the job.

    ``output=None`` keeps the result in a temporary directory until the `Result` is garbage-collected.

    >>> import sailfish as sf
    >>> _ = open("book", "w").write("to be or not to be")
    >>> def words(line):
    ...     for word in line.split():
    ...         yield word, 1
    >>> dict(sf.MapReduce("book", words, sum, combine=sum).run())["be"]
    2
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
        requirements: Sequence[str] = (),
        encoding: str = "utf-8",
        errors: str = "strict",
        overwrite: bool = False,
        name: str | None = None,
    ) -> None:
        inputs = paths_of(input)
        self._output = None if output is None else stored_or_absolute(os.fspath(output))
        if output_format is None:
            output_format = "pickle" if output is None else "tsv"
        if input_format not in INPUT_FORMATS and not input_format.startswith("fixed:"):
            raise ValueError(f"input_format={input_format!r} is not known: choose {', '.join(INPUT_FORMATS)} or fixed:RECORD_BYTES")
        _check_output(output_format)
        check_encoding(encoding, errors)
        _check_functions(map, reduce, combine, setup, teardown)
        if combine is not None and reduce is None:
            raise ValueError("combine needs a reduce function: it folds values before they go to reduce")
        source = Source(None, Format(input_format, encoding, errors), [Step("flat_map", map, "map")])
        shuffle = None
        if reduce is not None:
            shuffle = Reduce(Gather("fold" if is_fold(reduce) else "pairs", reduce, "reduce"), combine)
        spec = Spec([source], shuffle, output_format, of_pairs=True, setup=setup, teardown=teardown)
        self._stage = Stage("job", spec, inputs, input_format=None if input_format in INPUT_FORMATS else input_format)
        self._files, self._modules, self._env = listed("files", files), listed("modules", modules), dict(env or {})
        self._requirements = requirements
        self._overwrite, self._name = overwrite, name

    def run(
        self,
        engine: str | None = "local",
        memory: str | int | None = None,
        slots: int | None = None,
        progress: bool | None = None,
        *,
        python: str | None = None,
        sync: bool = True,
        name: str | None = None,
        limits: Mapping[str, str | int] | None = None,
    ) -> Result:
        """Runs the job and waits until it has ended.

        ``engine``: ``"local"`` or None for this machine, or the URL of a server. The nodes of a server must see input and output under the
        same paths, or as ``s3://``. ``python``: the interpreter that runs the functions, with the libraries of its environment; the default
        is the current interpreter, on a server ``python3.N`` with the same minor version. ``sync``: the output is durable on disk when the
        job has ended. ``name`` overrides the name of the job. ``limits``: of the processes of each attempt, such as
        ``{"memory": "2G", "time": "1h"}``; the names are those of the option ``--limit``. Errors: `JobFailed`, with the traceback of
        the failed function; `KeyboardInterrupt`, raised after all processes of the job have ended.
        """
        settings = Settings(
            engine,
            memory,
            slots,
            progress,
            python,
            self._overwrite,
            sync,
            self._name if name is None else name,
            self._files,
            self._modules,
            self._env,
            self._requirements,
            limits,
        )
        kept = None
        if self._output is None:
            if not settings.is_local:
                raise ValueError(
                    "a job on a server needs an output: set output=... to a path that this machine and all nodes share, or to s3://..."
                )
            kept = settings.directory("sailfish-", "")
        output = self._output if self._output is not None else os.path.join(kept or "", "output")
        output_format = self._stage.spec.output_format
        try:
            result = Result(output, output_format, run([self._stage], output, settings), kept)
        except BaseException:
            if kept is not None:
                shutil.rmtree(kept, ignore_errors=True)
            raise
        if output_format == "parquet":
            warn_of_types(result, "yield keys of one type and values of one type, and not only None")
        return result


def _check_output(output_format: str) -> None:
    if output_format not in OUTPUT_FORMATS:
        raise ValueError(f"output_format={output_format!r} is not known: choose {', '.join(OUTPUT_FORMATS)}")
    if output_format == "parquet":
        needed("pyarrow", "output_format='parquet'")


def check_encoding(encoding: str, errors: str) -> None:
    """Checks that lines can be read with an encoding. Errors: `LookupError` for an unknown encoding or error handler; `ValueError` for an
    encoding whose line ends are not the single byte 10."""
    codecs.lookup_error(errors)
    codecs.lookup(encoding)
    if b"a\nb".decode(encoding, "replace") != "a\nb":
        raise ValueError(f"encoding={encoding!r} is not supported: its line ends are not the single byte 10")


def _check_functions(map: object, reduce: object, combine: object, setup: object, teardown: object) -> None:
    for name, function in (("map", map), ("reduce", reduce), ("combine", combine), ("setup", setup), ("teardown", teardown)):
        if function is None and name != "map":
            continue
        if not callable(function):
            raise TypeError(f"{name}={function!r:.200} is not callable")
    folds = [fold for fold in FOLDS if combine is fold and fold not in PARTIAL_FOLDS]
    if folds:
        name = folds[0].__name__
        raise ValueError(
            f"combine={name}: reduce would get results of {name} in place of values; "
            f"{', '.join(fold.__name__ for fold in PARTIAL_FOLDS)} may combine"
        )
