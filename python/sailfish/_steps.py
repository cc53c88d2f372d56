"""Steps: operations on single items, before or after the shuffle of a stage."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from types import GeneratorType
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True)
class Step:
    """A step: its kind, the user's function, and its name in messages."""

    kind: str
    function: Function | None = None
    name: str = ""
    #: The arguments of `sample`: the share of the items to keep, and the seed.
    fraction: float = 1.0
    seed: int = 0


def compose(steps: Iterable[Step], items: Iterable[Any], place: Callable[[], str] = str) -> Iterator[Any]:
    """Returns a lazy iterator of the items after all steps. `place` is called at the first item and returns its origin, which seeds
    samples: the same origin gives the same sample.

    A function that raises `StopIteration` ends this iterator early, as in `map` and `filter`; `is_at_end` detects it."""
    made = iter(items)
    for number, step in enumerate(steps):
        if step.kind == "sample":
            made = _sampled(made, step, number, place)
        else:
            made = _KINDS[step.kind](step.function, made)
    return made


def _mapped(function: Any, items: Iterator[Any]) -> Iterator[Any]:
    return map(function, items)


def _filtered(function: Any, items: Iterator[Any]) -> Iterator[Any]:
    return filter(function, items)


def _flattened(function: Any, items: Iterator[Any]) -> Iterator[Any]:
    return chain.from_iterable(map(function, items))


def _keyed(function: Any, items: Iterator[Any]) -> Iterator[Any]:
    return ((function(item), item) for item in items)


def _with_values(function: Any, items: Iterator[Any]) -> Iterator[Any]:
    return ((key, function(value)) for key, value in map(_pair, items))


def _firsts(_: Any, items: Iterator[Any]) -> Iterator[Any]:
    return map(itemgetter(0), map(_pair, items))


def _seconds(_: Any, items: Iterator[Any]) -> Iterator[Any]:
    return map(itemgetter(1), map(_pair, items))


def _pair(item: Any) -> tuple[Any, Any]:
    if not isinstance(item, tuple) or len(item) != 2:
        raise NoPair(f"{item!r:.200} is not a (key, value) pair")
    return item


class NoPair(TypeError):
    """Error of an item that is not a pair, in a method by key."""


def _sampled(items: Iterator[Any], step: Step, number: int, place: Callable[[], str]) -> Iterator[Any]:
    chance: Callable[[], float] | None = None
    for item in items:
        if chance is None:
            chance = random.Random(f"{step.seed}:{number}:{place()}").random
        if chance() < step.fraction:
            yield item


def is_at_end(source: Iterator[Any]) -> bool:
    """Returns whether an iterator of a list, or a generator, is exhausted. If steps end and their source is not exhausted, a function
    raised `StopIteration`."""
    if isinstance(source, GeneratorType):
        return source.gi_frame is None
    # An exhausted iterator of a list has no reference to the list.
    return len(source.__reduce__()) < 3


_KINDS: dict[str, Callable[[Any, Iterator[Any]], Iterator[Any]]] = {
    "map": _mapped,
    "filter": _filtered,
    "flat_map": _flattened,
    "key_by": _keyed,
    "map_values": _with_values,
    "keys": _firsts,
    "values": _seconds,
}


def name_of(function: Any) -> str:
    """Returns the name of a function in messages and plans."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    name = name.rpartition("<locals>.")[2]
    code = getattr(function, "__code__", None)
    if name == "<lambda>" and code is not None:
        return f"lambda of line {code.co_firstlineno}"
    return str(name)


def failing_step(steps: Iterable[Step], error: BaseException) -> str | None:
    """Returns the name of the step whose function raised the error; None if the traceback contains no function of a step."""
    codes = []
    trace = error.__traceback__
    while trace is not None:
        codes.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    for step in steps:
        code = getattr(getattr(step.function, "__func__", step.function), "__code__", None)
        if code is not None and code in codes:
            return step.name
    return None
