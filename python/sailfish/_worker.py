"""The worker process: runs the functions of a job for the engine, and exchanges frames over standard input and output."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from operator import length_hint
from types import GeneratorType, TracebackType
from typing import Any, NoReturn

from . import _context
from ._batch import MixedKeys
from ._combine import Running, Stuck, WrongPair
from ._failed import FLAT_MAP, NO_TERMINAL, Failed, check_pairs, short
from ._frames import END, JOB, JOB_VERSION, WAITS, CutOff, Input, Output, frames_of, records_of
from ._readers import Reader, reader_of
from ._shuffles import Place, Shuffle, Sink
from ._sizes import Batches
from ._spec import LIBRARIES_FILE, MODULES_FILE, SPEC_FILE, PackedSpec, Spec, WrongPlace
from ._steps import NoPair, Step, compose, failing_step, is_at_end
from ._version import VERSION
from ._writers import Writer, writer_of

#: A record that yields this many items counts as successful in the check of other records after a failure.
_ITEMS_TRIED = 8192
#: The number of new containers between two runs of the cycle collector.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000
#: The timeout of the check of other records after a failure.
_LOOK_SECONDS = 1.0


def main() -> int:
    """Runs tasks of a job until the engine sends no more, and returns the exit code. Threads that functions left running end with the
    process."""
    source, output = _take_standard_streams()
    if hasattr(sys, "set_int_max_str_digits"):
        # Keys may be numbers of any size.
        sys.set_int_max_str_digits(0)
    sys.breakpointhook = _break
    _context.begin()
    code = _serve(source, output)
    if _has_threads():
        # Python would wait for these threads at exit, and the job would wait for Python.
        atexit._run_exitfuncs()
        _context.flush()
        os._exit(code)
    return code


def _serve(source: Input, output: Output) -> int:
    place = TaskPlace()
    try:
        while (frame := source.next_or_end()) is not None:
            _run_task(source, output, *frame, place)
            _context.flush()
            if place.is_bound or not _waits():
                output.write(END)
                return 0
            place.leave()
            _context.end()
            output.write(END, WAITS)
    except CutOff:
        return 1
    except BaseException as error:
        _context.flush()
        _tell(output, error)
        return 1
    return 0


class TaskPlace:
    """The environment variables, directory and functions of a task, without changes of earlier tasks."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._directory = os.getcwd()
        self._spec: PackedSpec | None = None
        #: Whether imported modules lie in the directory of the task, so that the process must end with the task.
        self.is_bound = False

    def enter(self, job: dict[str, Any]) -> None:
        """Changes to the directory of a task, and sets its environment variables and module path."""
        environment = {**self._environment, **job["env"]}
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        os.chdir(job["work_dir"])
        directory = os.getcwd()
        if directory not in sys.path and self._directory not in sys.path:
            # The directory contains the files of the job, which may be modules.
            sys.path.insert(1, directory)
        if directory != self._directory:
            # The directory of the previous task is deleted, so module paths move to the new directory.
            sys.path[:] = _moved(sys.path, self._directory, directory)
            for module in list(sys.modules.values()):
                found = getattr(module, "__path__", None)
                if isinstance(found, list):
                    found[:] = _moved(found, self._directory, directory)
        self._directory = directory

    def spec(self) -> Spec:
        """Returns a new copy of the functions of the job, without state of earlier tasks."""
        if self._spec is not None:
            return self._spec.load()
        archives = [name for name in (MODULES_FILE, LIBRARIES_FILE) if os.path.exists(name)]
        if archives:
            # Imported here, because most jobs have no archives and need not wait for the import.
            from ._ship import use_archive

            behind = sys.path.index(self._directory) + 1
            for number, name in enumerate(archives):
                self.is_bound |= use_archive(name, behind + number)
        self._spec = PackedSpec(SPEC_FILE)
        spec = self._spec.load()
        # Batches consist of many short-lived objects. Collecting cycles among them at the default rate takes a tenth of the run time.
        gc.freeze()
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 50)
        return spec

    def leave(self) -> None:
        """Leaves the directory of the task, which the engine deletes."""
        os.chdir("/")


def _moved(paths: list[str], old: str, new: str) -> list[str]:
    """Returns the paths, with the directory `old` replaced by `new` in the paths below it."""
    return [new + path[len(old) :] if isinstance(path, str) and (path + "/").startswith(old + "/") else path for path in paths]


def _break(*arguments: Any, **options: Any) -> Any:
    """Replaces `breakpoint`: raises an error, unless the job names a debugger in PYTHONBREAKPOINT, which may not need a terminal."""
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*arguments, **options)
    raise RuntimeError(f"breakpoint(): {NO_TERMINAL}")


def _has_threads() -> bool:
    """Returns whether there are threads that Python would wait for at exit."""
    threading = sys.modules.get("threading")
    if threading is None:
        return False
    return any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate())


def _waits() -> bool:
    """Returns whether the process may run another task, which is the case if no other thread runs."""
    threading = sys.modules.get("threading")
    return threading is None or threading.active_count() == 1


def _run_task(source: Input, output: Output, kind: int, payload: bytes, place: TaskPlace) -> None:
    job = json.loads(payload) if kind == JOB else {}
    if job.get("version") != JOB_VERSION:
        raise Failed(
            f"the engine speaks version {job.get('version')} of the frames, and this package {JOB_VERSION}: "
            f"install the same version of both (this is sailfish {VERSION})"
        )
    place.enter(job)
    _run(source, output, job, place.spec())


def _take_standard_streams() -> tuple[Input, Output]:
    """Reserves standard input and output for frames. Redirects prints to standard error, the log of the task, and standard input to an
    empty file."""
    source, output = Input(os.dup(0)), Output(os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    log = io.FileIO(1, "w", closefd=False)
    # UTF-8 with escapes, so that no print fails, whatever the locale of the node.
    sys.stdout = io.TextIOWrapper(log, "utf-8", "backslashreplace", line_buffering=True, write_through=True)
    return source, output


def _tell(output: Output, error: BaseException) -> None:
    if isinstance(error, (Failed, WrongPlace)):
        message, cause = str(error), error.__cause__ if isinstance(error, Failed) else None
    else:
        message, cause = f"the Python worker failed: {short(error)}", error
    lines = []
    if cause is not None:
        users = _without_ours(cause.__traceback__)
        ours = cause.__traceback__ if not isinstance(error, Failed) else None
        lines = traceback.format_exception(type(cause), cause, users or ours)
    is_of_data = not isinstance(cause, (OSError, MemoryError))
    # The engine may have died, or abandoned the task.
    with contextlib.suppress(OSError):
        output.failure(message, "".join(lines).splitlines(), is_of_data)


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    """Returns the part of a traceback in the user's code; None if a built-in function failed, which has no frames."""
    here = os.path.dirname(__file__)
    left = frames
    while left is not None and os.path.dirname(left.tb_frame.f_code.co_filename) == here:
        left = left.tb_next
    return left


def _run(source: Input, output: Output, job: dict[str, Any], spec: Spec) -> None:
    _call("setup", spec.setup)
    if job["role"] == "map":
        Mapper(spec, output, job).run(source)
    else:
        Reducer(spec, output).run(source)
    _call("teardown", spec.teardown)


def _call(what: str, function: Callable[[], object] | None) -> None:
    if function is None:
        return
    try:
        function()
    except Exception as error:
        raise Failed(f"{what} failed: {short(error)}") from error
    except SystemExit as error:
        raise Failed(f"{what} called sys.exit") from error


def _who(steps: list[Step], error: BaseException) -> str:
    """Returns the failed function as the subject of a message."""
    named = [step for step in steps if step.name]
    name = failing_step(named, error) or (named[0].name if len(named) == 1 else None)
    if name is not None:
        return f"the {name} function"
    return f"one of the functions {', '.join(step.name for step in named)}" if named else "the stage"


def _index(records: Iterable[Any], left: Iterator[Any]) -> int:
    """Returns the index of the last record that was read. Steps finish a record before they read the next."""
    return max(0, len(records) - length_hint(left) - 1) if isinstance(records, list) else 0


def _may_generate(steps: list[Step]) -> bool:
    """Returns whether a function may have returned a generator as an item, which is always a mistake."""
    return any(step.kind == "map" for step in steps)


def steps_of(shuffle: Shuffle) -> list[Step]:
    """Returns the functions of a shuffle as steps, to find the function that failed."""
    return [Step("", function, name) for name, function in shuffle.functions() if function is not None and name != "combine"]


class Branch:
    """The steps of a source, and the sink of their items."""

    def __init__(self, number: int, spec: Spec, reader: Reader, sink: Sink | Running) -> None:
        self._number, self.source, self.reader = number, spec.sources[number], reader
        self._sink, self._shuffle = sink, spec.shuffle
        self._needs_pairs = spec.of_pairs if spec.shuffle is None else spec.shuffle.of_pairs
        self._may_generate = _may_generate(self.source.steps)
        self._batches = Batches()
        self._name, self._offset, self._block = "", 0, b""

    def take(self, name: str, offset: int, block: bytes) -> None:
        """Reads a block of records, runs the steps, and passes the items to the sink. Error: `Failed`."""
        self._name, self._offset, self._block = name, offset, block
        try:
            records = self.reader.records(block, name, offset)
        except Exception as error:
            self._fail_reading(error)
        self._map(records)

    def _fail_reading(self, error: Exception) -> NoReturn:
        at = self._at(self.reader.error_at(self._block, error))
        raise Failed(f"the input cannot be read as {self.source.format.name}, {at}: {short(error)}") from error

    def _where(self) -> str:
        # Items of the client lie in a new directory in each run, so only the file name is stable.
        name = os.path.basename(self._name) if self.source.format.name == "items" else self._name
        return f"{self._number}:{name}@{self._offset}"

    def _map(self, records: Iterable[Any]) -> None:
        left = iter(records)
        made = compose(self.source.steps, left, self._where)
        if isinstance(self._sink, Running):
            self._fold(made, records, left, self._sink)
            return
        first = 0
        while True:
            try:
                # Items are taken in batches, so that an endless generator does not fill the memory.
                at_once = self._batches.items
                items = list(islice(made, at_once))
            except (Exception, SystemExit) as error:
                self._fail(records, left, error)
            if len(items) < at_once and not is_at_end(left):
                self._fail(records, left, StopIteration("a function raised it"))
            if not items:
                return
            last = max(first, _index(records, left))
            self._put(items, records, first, last, self._sink)
            first = last

    def _fold(self, made: Iterator[Any], records: Iterable[Any], left: Iterator[Any], running: Running) -> None:
        """Folds pairs while the steps make them."""
        try:
            running.take(made)
        except WrongPair as error:
            index = _index(records, left)
            check_pairs([error.args[0]], lambda: self._who_yielded(records, index, index))
        except Stuck as stuck:
            index = _index(records, left)
            self._fail_going_on(records, index, index, stuck.error)
        except (Exception, SystemExit) as error:
            self._fail(records, left, error)
        if not is_at_end(left):
            self._fail(records, left, StopIteration("a function raised it"))

    def _put(self, items: list[Any], records: Iterable[Any], first: int, last: int, sink: Sink) -> None:
        """Passes the items of the records from `first` to `last` to the sink."""
        if self._needs_pairs:
            check_pairs(items, lambda: self._who_yielded(records, first, last))
        elif self._may_generate and GeneratorType in map(type, items):
            raise Failed(f"{self._who_yielded(records, first, last)} a generator: {FLAT_MAP}")
        self._batches.saw(items)
        try:
            sink.put(items)
        except Failed:
            raise
        except Exception as error:
            self._fail_going_on(records, first, last, error)

    def _fail_going_on(self, records: Iterable[Any], first: int, last: int, error: BaseException) -> NoReturn:
        name = None if self._shuffle is None else failing_step(steps_of(self._shuffle), error)
        if name is not None:
            raise Failed(f"the {name} function failed, {self._place(records, first)} or after it: {short(error)}") from error
        what = "written" if self._shuffle is None else "shuffled"
        raise Failed(f"{self._who_yielded(records, first, last)} an item that cannot be {what}: {short(error)}") from error

    def _who_yielded(self, records: Iterable[Any], first: int, last: int) -> str:
        who = self.source.steps[-1].name if self.source.steps else ""
        if not who and self.source.format.name == "items":
            return "the input has"
        place = self._place(records, first)
        more = " or a record shortly after it" if last > first else ""
        return f"the {who} function, given {place}{more}, yielded" if who else f"the input ({place}{more}) has"

    def _place(self, records: Iterable[Any], index: int) -> str:
        """Returns the file and offset of a record, or the item itself if it comes from the client or from another stage."""
        if self.source.format.name == "items" and isinstance(records, list) and index < len(records):
            return f"the item {records[index]!r:.200}"
        return self._at(self.reader.offset_of(self._block, index))

    def _fail(self, records: Any, left: Iterator[Any], error: BaseException) -> NoReturn:
        """Raises `Failed` with the name of the function and the place of the record: file and offset."""
        if isinstance(error, Failed):
            raise error
        if isinstance(error, Exception) and not isinstance(records, list) and not self.source.steps:
            self._fail_reading(error)
        index = _index(records, left)
        place = self._place(records, index)
        steps = self.source.steps
        if isinstance(error, NoPair):
            raise Failed(f"{error}: {place}")
        who = _who(steps, error)
        if isinstance(error, SystemExit):
            raise Failed(f"{who} called sys.exit, {place}") from error
        if isinstance(error, TypeError) and len(steps) == 1 and steps[0].kind == "flat_map" and isinstance(records, list):
            self._check_returned(records[index], place)
        others, seen = self._other_failures(records[index + 1 :]) if isinstance(records, list) else (0, 0)
        more = f"; {others} of the {seen} records after it fail as well" if others else ""
        raise Failed(f"{who} failed, {place}: {short(error)}{more}") from error

    def _check_returned(self, record: Any, place: str) -> None:
        """Raises `Failed` if a flat_map function returned a value that is not iterable. The original error would blame the code of this
        package."""
        step = self.source.steps[0]
        assert step.function is not None
        try:
            made = step.function(record)
        except (Exception, SystemExit):
            return
        if not hasattr(made, "__iter__"):
            what = "(key, value) pairs" if self._needs_pairs else "items"
            raise Failed(f"the {step.name} function, given {place}, returned {made!r:.200}: it must yield {what}")

    def _other_failures(self, records: list[Any]) -> tuple[int, int]:
        """Returns the number of the next records that also fail, and the number of records tried."""
        until = time.monotonic() + _LOOK_SECONDS
        others = seen = 0
        for record in records:
            seen += 1
            try:
                for _ in islice(compose(self.source.steps, [record]), _ITEMS_TRIED):
                    pass
            except (Exception, SystemExit):
                others += 1
            if time.monotonic() > until:
                break
        return others, seen

    def _at(self, offset: int) -> str:
        return f"{self._name} at byte {self._offset + offset}"


class Mapper:
    """A map task: runs the sources of a stage over the records of a split."""

    def __init__(self, spec: Spec, output: Output, job: dict[str, Any]) -> None:
        self._sinks: list[Sink | Running | _Part] = []
        if spec.shuffle is None:
            part = _Part(writer_of(spec, output))
            self._sinks.append(part)
            sinks: list[Sink | Running] = [part for _ in spec.sources]
        else:
            shuffle = spec.shuffle
            by_side = {side: shuffle.sink(output, job["record_bytes_max"], side) for side in {source.side for source in spec.sources}}
            self._sinks.extend(by_side.values())
            sinks = [by_side[source.side] for source in spec.sources]
        readers = [reader_of(source.format, job["input"]) for source in spec.sources]
        self._branches = [Branch(number, spec, readers[number], sink) for number, sink in enumerate(sinks)]

    def run(self, source: Input) -> None:
        for _, payload in frames_of(source):
            number, name, offset, block = records_of(payload)
            for branch in self._branches:
                inputs = branch.source.inputs
                if inputs is None or number in inputs:
                    branch.take(name, offset, block)
        try:
            for sink in self._sinks:
                sink.close()
        except Failed:
            raise
        except Exception as error:
            raise Failed(f"the output of the map task cannot be written: {short(error)}") from error


class _Part:
    """The sink of a stage without a shuffle: the writer of its output."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def put(self, items: list[Any]) -> None:
        self._writer.write(items)

    def close(self) -> None:
        self._writer.close()


class Reducer:
    """A reduce task: runs the shuffle and the steps of a stage over the groups of a range."""

    def __init__(self, spec: Spec, output: Output) -> None:
        assert spec.shuffle is not None
        self._spec, self._shuffle = spec, spec.shuffle
        self._writer = writer_of(spec, output)
        self._place = Place()

    def run(self, source: Input) -> None:
        batches = Batches()
        may_generate = _may_generate(self._spec.steps)
        place = self._place
        gathered = self._shuffle.gathered(source, place)
        made = compose(self._spec.steps, gathered, lambda: repr(place.key))
        while True:
            try:
                at_once = batches.items
                items = list(islice(made, at_once))
            except (CutOff, Failed):
                raise
            except MixedKeys as error:
                raise Failed(str(error)) from None
            except (Exception, SystemExit) as error:
                self._fail(error)
            if len(items) < at_once and not is_at_end(gathered):
                self._fail(StopIteration("a function raised it"))
            if not items:
                break
            if self._spec.of_pairs:
                check_pairs(items, lambda: "the reduce function yielded")
            elif may_generate and GeneratorType in map(type, items):
                raise Failed(f"{_who(self._spec.steps, TypeError())} yielded a generator: {FLAT_MAP}")
            batches.saw(items)
            self._guarded(partial(self._writer.write, items))
        self._guarded(self._writer.close)

    def _fail(self, error: BaseException) -> NoReturn:
        if isinstance(error, NoPair):
            raise Failed(str(error))
        who = _who([*steps_of(self._shuffle), *self._spec.steps], error)
        key = f" with the key {self._place.key!r:.200}" if self._place.has_key else ""
        if isinstance(error, SystemExit):
            raise Failed(f"{who} called sys.exit, given the key {self._place.key!r:.200}") from error
        raise Failed(f"{who} failed{key}: {short(error)}") from error

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            what = "the reduce function" if self._spec.of_pairs else "the stage"
            raise Failed(f"the output of {what} cannot be written: {short(error)}") from error


if __name__ == "__main__":
    sys.exit(main())
