"""Reading of groups from the engine, and the functions that process a group."""

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

#: The bytes of the key, the values, and the bytes of the first value, unless it is a whole number.
RawGroup = tuple[bytes, Iterator[Any], "bytes | None"]


def raw_groups(source: Input) -> Iterator[RawGroup]:
    """Yields the groups of a task. The unread values of a group are dropped when the next group is requested."""
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
    """Yields the values of the last group of a frame, which may continue in the next frames. Appends the frames that it reads to
    `following`; the last of them contains the end of the group."""
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
    """Yields the groups of a task with their decoded keys. Error: `MixedKeys` if Python cannot compare two successive keys."""
    before: Any = None
    is_first = True
    for data, values, raw in raw_groups(source):
        key = key_of(data, raw, _keys.decode)
        if not is_first:
            check_order(before, key)
        before, is_first = key, False
        yield key, values


def key_of(data: bytes, raw: bytes | None, decode: Callable[[bytes], Any]) -> Any:
    """Returns the key of a group: the copy that the first value carries, or the decoded bytes."""
    if raw is not None:
        is_there, key = _values.key_of(raw)
        if is_there:
            return key
    return decode(data)


def check_order(before: Any, key: Any) -> None:
    """Raises `MixedKeys` if Python cannot compare two keys."""
    try:
        before < key  # noqa: B015
    except TypeError:
        raise MixedKeys(before, key) from None


@dataclass
class Gather:
    """An operation on groups: its kind, a function of the user, and its name in messages."""

    kind: str
    function: Callable[..., Any] | None = None
    name: str = ""
    #: The size of a window, and the distance between the starts of two windows, in values.
    size: int = 0
    step: int = 1

    def of_group(self) -> Callable[[Any, Iterator[Any]], Iterable[Any]]:
        """Returns a function that returns the items of a group, given its key and its values."""
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
    """Returns whether a function is one of the built-in folds of Python in `FOLDS`."""
    return any(function is fold for fold in FOLDS)


def _count(values: Iterable[Any]) -> int:
    return sum(1 for _ in values)


def _whole(made: Any) -> Any:
    if isinstance(made, Iterator):
        raise TypeError(f"it returned {made!r:.200}, which can be read only once: return a list")
    return made


def pairs_of(key: Any, made: Any) -> Iterator[tuple[Any, Any]]:
    """Returns the pairs of a reduce or combine function for a key: the pairs that it yielded, or the key with the value that it
    returned."""
    if inspect.isgenerator(made):
        return cast("Iterator[tuple[Any, Any]]", made)
    if isinstance(made, Iterator):
        raise TypeError(f"it returned {made!r:.200}, which can be read only once: return a list, or yield pairs")
    return iter(((key, made),))


def _windows(size: int, step: int, key: Any, values: Iterator[Any]) -> Iterator[tuple[Any, list[Any]]]:
    window: deque[Any] = deque(maxlen=size)
    for number, value in enumerate(values, 1):
        window.append(value)
        if number >= size and (number - size) % step == 0:
            yield key, list(window)
