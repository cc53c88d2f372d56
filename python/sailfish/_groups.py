"""Groups of sorted pairs as they come from the engine, and what is made of a group."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from . import _keys, _values
from ._batch import MixedKeys
from ._frames import Groups, Input, frames_of
from ._spec import FOLDS

#: Key as it came, the values, and the first of these as it came, where it is not a whole number.
RawGroup = tuple[bytes, Iterator[Any], "bytes | None"]


def raw_groups(source: Input) -> Iterator[RawGroup]:
    """The groups of a task. Values that were not read when the next group is asked for are passed over."""
    frames = (Groups(payload) for _, payload in frames_of(source))
    frame = next(frames, None)
    while frame is not None:
        following: list[Groups | None] = []
        last = len(frame.keys) - 1
        for index, (data, values, raw) in enumerate(frame):
            if index == 0 and frame.goes_on:
                continue
            if index < last:
                yield data, iter(values), raw
                continue
            rest = _to_the_end(values, frames, following)
            yield data, rest, raw
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


def groups(source: Input) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The groups of a task with their keys, which can all be compared."""
    before: Any = None
    is_first = True
    for data, values, raw in raw_groups(source):
        key = key_of(data, raw, _keys.decode)
        if not is_first:
            check_order(before, key)
        before, is_first = key, False
        yield key, values


def key_of(data: bytes, raw: bytes | None, decode: Callable[[bytes], Any]) -> Any:
    """The key of a group: as it was, where its bytes do not tell."""
    if raw is not None:
        is_there, key = _values.key_of(raw)
        if is_there:
            return key
    return decode(data)


def check_order(before: Any, key: Any) -> None:
    """Refuses keys that Python does not compare."""
    try:
        before < key  # noqa: B015
    except TypeError:
        raise MixedKeys(before, key) from None


@dataclass
class Gather:
    """What is made of a group: its kind, a function of the user, and what messages call it."""

    kind: str
    function: Callable[..., Any] | None = None
    name: str = ""
    #: Of windows.
    size: int = 0
    step: int = 1

    def of_group(self) -> Callable[[Any, Iterator[Any]], Iterable[Any]]:
        """Makes of a key and its values what goes on."""
        function = self.function
        if self.kind == "windows":
            return functools.partial(_windows, self.size, self.step)
        assert function is not None
        if self.kind == "fold":
            fold = _count if function is len else function
            return lambda key, values: ((key, fold(values)),)
        if self.kind == "items":
            return function
        if self.kind == "item":
            return lambda key, values: (_whole(function(key, values)),)
        if self.kind == "value":
            return lambda key, values: ((key, _whole(function(values))),)
        return lambda key, values: pairs_of(key, function(key, values))


def is_fold(function: Any) -> bool:
    """Whether it is one of Python's own that fold values."""
    return any(function is fold for fold in FOLDS)


def _count(values: Iterable[Any]) -> int:
    return sum(1 for _ in values)


def _whole(made: Any) -> Any:
    if isinstance(made, Iterator):
        raise TypeError(f"it returned {made!r:.200}, which can be read once: return a list of it")
    return made


def pairs_of(key: Any, made: Any) -> Iterator[tuple[Any, Any]]:
    """What a reduce or combine function made of a key: the value, or pairs."""
    if inspect.isgenerator(made):
        return cast("Iterator[tuple[Any, Any]]", made)
    if isinstance(made, Iterator):
        raise TypeError(f"it returned {made!r:.200}, which can be read once: return a list of it, or yield pairs")
    return iter(((key, made),))


def _windows(size: int, step: int, key: Any, values: Iterator[Any]) -> Iterator[tuple[Any, list[Any]]]:
    window: deque[Any] = deque(maxlen=size)
    for number, value in enumerate(values, 1):
        window.append(value)
        if number >= size and (number - size) % step == 0:
            yield key, list(window)
