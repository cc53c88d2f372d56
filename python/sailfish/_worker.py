"""The process that runs a job's functions for the engine, over frames on its standard input and output."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from itertools import islice
from types import TracebackType
from typing import Any, NoReturn, cast

from . import _context, _keys, _values
from ._batch import Encoder, MixedKeys
from ._formats import Writer, reader_of, writer_of
from ._frames import END, JOB, CutOff, Groups, Input, Output, frames_of, records_of
from ._sizes import Batches, size_of
from ._spec import FOLDS, SPEC_FILE, Spec, WrongPlace, load

#: Pairs of a record that are tried where it is only looked whether they can be had.
_PAIRS_TRIED = 8192
#: Pairs in a window of the combiner, and about how many bytes.
_WINDOW_PAIRS = 1 << 17
_WINDOW_BYTES = 64 << 20
#: How long is looked, after a record that failed, whether others fail as well.
_LOOK_SECONDS = 1.0

Pair = tuple[Any, Any]


class Failed(Exception):
    """A function of the job failed. `__cause__` is what it raised, where it raised anything."""


def main() -> int:
    """Runs one task."""
    source, output = _take_standard_streams()
    if hasattr(sys, "set_int_max_str_digits"):
        # Keys are numbers of any size.
        sys.set_int_max_str_digits(0)
    try:
        kind, payload = source.next()
        if kind != JOB:
            raise Failed(f"the engine began with a frame {chr(kind)!r}: it is of another version than this package")
        _run(source, output, json.loads(payload))
        _context.flush()
        output.write(END)
    except CutOff:
        return 1
    except BaseException as error:
        _context.flush()
        _tell(output, error)
        return 1
    return 0


def _take_standard_streams() -> tuple[Input, Output]:
    """The frames' own descriptors. Whatever prints, prints into the log of the task; whatever reads, finds nothing."""
    source, output = Input(os.dup(0)), Output(os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), line_buffering=True, write_through=True)
    return source, output


def _tell(output: Output, error: BaseException) -> None:
    if isinstance(error, (Failed, WrongPlace)):
        message, cause = str(error), error.__cause__ if isinstance(error, Failed) else None
    else:
        message, cause = f"the Python worker failed: {_short(error)}", error
    lines = []
    if cause is not None:
        lines = traceback.format_exception(type(cause), cause, _without_ours(cause.__traceback__))
    is_of_data = not isinstance(cause, (OSError, MemoryError))
    # The engine may be gone, or have given this task up.
    with contextlib.suppress(OSError):
        output.failure(message, "".join(lines).splitlines(), is_of_data)


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    """The user's own part of a traceback; all of it where there is none."""
    here = os.path.dirname(__file__)
    left = frames
    while left is not None and os.path.dirname(left.tb_frame.f_code.co_filename) == here:
        left = left.tb_next
    return left if left is not None else frames


def _short(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def _run(source: Input, output: Output, job: dict[str, Any]) -> None:
    spec = load(SPEC_FILE)
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
        raise Failed(f"{what} failed: {_short(error)}") from error
    except SystemExit as error:
        raise Failed(f"{what} called sys.exit") from error


class Mapper:
    """Runs the map function over the records of a split."""

    def __init__(self, spec: Spec, output: Output, job: dict[str, Any]) -> None:
        self._spec = spec
        self._read = reader_of(spec, job["input"])
        self._name, self._offset, self._block = "", 0, b""
        self._batches = Batches()
        self._put: Callable[[list[Pair]], None]
        self._end: Callable[[], None]
        if spec.reduce is None:
            writer = writer_of(spec, output)
            self._put, self._end = writer.write, writer.close
        else:
            encoder = Encoder(output, job["record_bytes_max"])
            if spec.combine is None:
                self._put, self._end = lambda pairs: _put_pairs(encoder, pairs), lambda: None
            else:
                window = Window(spec.combine, encoder)
                self._put, self._end = window.add, window.drain

    def run(self, source: Input) -> None:
        for _, payload in frames_of(source):
            _, self._name, self._offset, self._block = records_of(payload)
            try:
                records = self._read.records(self._block)
            except Exception as error:
                at = self._read.error_at(self._block, error)
                raise Failed(f"the input cannot be read as {self._spec.input_format}, {self._at(at)}: {_short(error)}") from error
            self._map(records)
        self._guarded(self._end)

    def _map(self, records: list[Any]) -> None:
        map_function, at_once = self._spec.map, self._batches.pairs
        pairs: list[Pair] = []
        index = first = 0
        made: Any = ()
        try:
            for index, record in enumerate(records):
                made = map_function(record)
                left = iter(made)
                # An endless generator must not fill the memory.
                pairs.extend(islice(left, at_once))
                while len(pairs) >= at_once:
                    self._take(pairs, records, first, index)
                    pairs, first, at_once = list(islice(left, self._batches.pairs)), index, self._batches.pairs
        except Failed:
            raise
        except (Exception, SystemExit) as error:
            self._fail(records, index, made, error)
        self._take(pairs, records, first, index)

    def _fail(self, records: list[Any], index: int, made: Any, error: BaseException) -> NoReturn:
        place = self._at(self._read.offset_of(self._block, index))
        if isinstance(error, TypeError) and not hasattr(made, "__iter__"):
            raise Failed(f"the map function, given {place}, returned {made!r:.200}: it yields (key, value) pairs")
        if isinstance(error, SystemExit):
            raise Failed(f"the map function called sys.exit, {place}") from error
        others, seen = self._other_failures(records[index + 1 :])
        more = f"; {others} of the {seen} records after it fail as well" if others else ""
        raise Failed(f"the map function failed, {place}: {_short(error)}{more}") from error

    def _other_failures(self, records: list[Any]) -> tuple[int, int]:
        """How many of the next records fail as well, and how many were tried."""
        until = time.monotonic() + _LOOK_SECONDS
        others = seen = 0
        for record in records:
            seen += 1
            try:
                for _ in islice(self._spec.map(record), _PAIRS_TRIED):
                    pass
            except (Exception, SystemExit):
                others += 1
            if time.monotonic() > until:
                break
        return others, seen

    def _take(self, pairs: list[Pair], records: list[Any], first: int, last: int) -> None:
        """Hands on what the records from `first` to `last` gave."""
        if not pairs:
            return
        begin = self._read.offset_of(self._block, first)
        place = f"given {self._at(begin)}" + (" or a record not far behind it" if last > first else "")
        _check_pairs(pairs, f"the map function, {place}, yielded")
        self._batches.saw(pairs)
        try:
            self._put(pairs)
        except Failed:
            raise
        except Exception as error:
            raise Failed(f"what the map function yielded, {place}, cannot go on: {_short(error)}") from error

    def _guarded(self, end: Callable[[], None]) -> None:
        try:
            end()
        except Failed:
            raise
        except Exception as error:
            raise Failed(f"what the map function yielded cannot go on: {_short(error)}") from error

    def _at(self, offset: int) -> str:
        return f"{self._name} at byte {self._offset + offset}"


def _check_pairs(pairs: list[Pair], who: str) -> None:
    """Refuses what is no pair."""
    if set(map(type, pairs)) == {tuple} and set(map(len, pairs)) == {2}:
        return
    wrong = [pair for pair in pairs if not isinstance(pair, tuple) or len(pair) != 2]
    if wrong:
        raise Failed(f"{who} {wrong[0]!r:.200}, and not a (key, value) pair")


def _put_pairs(encoder: Encoder, pairs: list[Pair]) -> None:
    keys, values = zip(*pairs, strict=True)
    encoder.put(keys, values)


class Window:
    """Pairs that wait to be folded by the combine function."""

    def __init__(self, combine: Callable[..., Any], encoder: Encoder) -> None:
        self._combine, self._encoder = combine, encoder
        self._fold = combine if _is_fold(combine) else None
        self._values: defaultdict[Any, list[Any]] = defaultdict(list)
        #: Of keys whose equality is not that of their bytes, or that are none: by bytes, with the key.
        self._by_bytes: dict[bytes, tuple[Any, list[Any]]] = {}
        self._pairs = 0
        self._bytes = 0

    def add(self, pairs: list[Pair]) -> None:
        values = self._values
        for key, value in pairs:
            kind = type(key)
            if kind in _PLAIN or (kind is tuple and _PLAIN.issuperset(map(type, key))):
                values[key].append(value)
            else:
                data, _ = _keys.encode(key)
                self._by_bytes.setdefault(data, (key, []))[1].append(value)
        self._pairs += len(pairs)
        self._bytes += size_of(pairs)
        if self._pairs >= _WINDOW_PAIRS or self._bytes >= _WINDOW_BYTES:
            self.drain()

    def drain(self) -> None:
        groups = [*self._values.items(), *self._by_bytes.values()]
        self._values, self._by_bytes = defaultdict(list), {}
        self._pairs = self._bytes = 0
        pairs: list[Pair] = []
        for key, values in groups:
            try:
                pairs.extend(self._folded(key, values))
            except Failed:
                raise
            except Exception as error:
                raise Failed(f"the combine function failed with the key {key!r:.200}: {_short(error)}") from error
        if pairs:
            _put_pairs(self._encoder, pairs)

    def _folded(self, key: Any, values: list[Any]) -> Iterable[Pair]:
        if self._fold is not None:
            return ((key, self._fold(values)),)
        pairs = list(_pairs_of(key, self._combine(key, iter(values))))
        _check_pairs(pairs, f"the combine function, given the key {key!r:.200}, yielded")
        for made, _ in pairs:
            if made is not key and made != key:
                raise Failed(
                    f"the combine function, given the key {key!r:.200}, yielded the key {made!r:.200}: it may only fold the values of a key"
                )
        return pairs


#: Keys that are equal where their bytes are.
_PLAIN = frozenset({str, int, bytes, float, bool, type(None), date})


def _is_fold(function: Callable[..., Any]) -> bool:
    return any(function is fold for fold in FOLDS)


def _count(values: Iterable[Any]) -> int:
    return sum(1 for _ in values)


def _pairs_of(key: Any, made: Any) -> Iterator[Pair]:
    """What a reduce or combine function made of a key: the value, or pairs."""
    if inspect.isgenerator(made):
        return cast("Iterator[Pair]", made)
    if isinstance(made, Iterator):
        raise TypeError(f"it returned {made!r:.200}, which can be read once: return a list of it, or yield pairs")
    return iter(((key, made),))


class Reducer:
    """Runs the reduce function over the groups of a range."""

    def __init__(self, spec: Spec, output: Output) -> None:
        self._writer = writer_of(spec, output)
        function = spec.reduce
        assert function is not None
        self._fold: Callable[[Iterable[Any]], Any] | None = None
        if _is_fold(function):
            self._fold = _count if function is len else function
        self._reduce = function
        self._batches = Batches()

    def run(self, source: Input) -> None:
        pairs: list[Pair] = []
        before: Any = None
        is_first = True
        for key, values in groups(source):
            if not is_first:
                _check_order(before, key)
            before, is_first = key, False
            try:
                if self._fold is not None:
                    pairs.append((key, self._fold(values)))
                else:
                    made = self._reduce(key, values)
                    if made is values:
                        raise TypeError("it returned its values, which can be read once: return list(values)")
                    left = _pairs_of(key, made)
                    pairs.extend(islice(left, self._batches.pairs))
                    while len(pairs) >= self._batches.pairs:
                        self._write(pairs)
                        pairs = list(islice(left, self._batches.pairs))
            except (CutOff, Failed):
                raise
            except SystemExit as error:
                raise Failed(f"the reduce function called sys.exit, given the key {key!r:.200}") from error
            except Exception as error:
                raise Failed(f"the reduce function failed with the key {key!r:.200}: {_short(error)}") from error
            if len(pairs) >= self._batches.pairs:
                self._write(pairs)
                pairs = []
        self._write(pairs)
        _guarded_close(self._writer)

    def _write(self, pairs: list[Pair]) -> None:
        if not pairs:
            return
        _check_pairs(pairs, "the reduce function yielded")
        self._batches.saw(pairs)
        try:
            self._writer.write(pairs)
        except Exception as error:
            raise Failed(f"what the reduce function made cannot be written: {_short(error)}") from error


def _guarded_close(writer: Writer) -> None:
    try:
        writer.close()
    except Exception as error:
        raise Failed(f"what the reduce function made cannot be written: {_short(error)}") from error


def _check_order(before: Any, key: Any) -> None:
    try:
        before < key  # noqa: B015
    except TypeError:
        raise Failed(str(MixedKeys(before, key))) from None


def groups(source: Input) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The groups of a task with their keys. Values that were not read when the next group is asked for are passed over."""
    frames = (Groups(payload, _values.decode) for _, payload in frames_of(source))
    frame = next(frames, None)
    while frame is not None:
        following: list[Groups | None] = []
        last = len(frame.keys) - 1
        for index, (data, values, raw) in enumerate(frame):
            if index == 0 and frame.goes_on:
                continue
            key = _key(data, raw)
            if index < last:
                yield key, iter(values)
                continue
            rest = _to_the_end(values, frames, following)
            yield key, rest
            for _ in rest:
                pass
        frame = following[-1] if following else next(frames, None)


def _to_the_end(values: list[Any], frames: Iterator[Groups], following: list[Groups | None]) -> Iterator[Any]:
    """The values of the last group of a frame, which may go on in the next ones. Leaves the frames that it read, up to the one in which it
    ends."""
    yield from values
    while True:
        frame = next(frames, None)
        following.append(frame)
        if frame is None or not frame.goes_on:
            return
        yield from next(iter(frame))[1]
        if len(frame.keys) > 1:
            return


def _key(data: bytes, raw: bytes | None) -> Any:
    if raw is not None:
        is_there, key = _values.key_of(raw)
        if is_there:
            return key
    return _keys.decode(data)


if __name__ == "__main__":
    sys.exit(main())
