"""The kinds of shuffles. A shuffle defines the output of the map tasks of a stage, and the work of its reduce tasks on the groups."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from typing import Any, Protocol

from . import _keys, _values
from ._batch import Encoder, columns, encoded_values
from ._combine import Adding, Counting, Running, Window
from ._frames import Input, Output
from ._groups import Gather, RawGroup, check_order, groups, is_fold, key_of, raw_groups
from ._rows import Rows
from ._steps import name_of

Named = Iterator[tuple[str, Any]]
#: The first byte of encoded tuples, in order and reversed.
_OF_TUPLES = (_keys.TUPLE, 255 - _keys.TUPLE)
#: The key of all items of a shuffle with a single group.
_ONE_KEY = bytes([_keys.NONE])


class Sink(Protocol):
    """A sink of the items of a map task, which come in lists."""

    def put(self, items: list[Any]) -> None: ...

    def close(self) -> None: ...


@dataclass
class Place:
    """The position of a reduce task: its current key, for error messages."""

    key: Any = None
    has_key: bool = False

    def at(self, key: Any) -> None:
        self.key, self.has_key = key, True


class Shuffle(Protocol):
    """A kind of shuffle."""

    #: Whether keys have a tail, which sorts the records within a key.
    has_tails: bool
    #: Whether the output is sorted across its parts.
    is_total: bool
    #: Whether the items are (key, value) pairs.
    of_pairs: bool

    def functions(self) -> Named:
        """Yields the user's functions with their names."""

    def shown(self) -> str:
        """Returns the description of the shuffle in plans."""

    def sink(self, output: Output, record_bytes_max: int, side: int) -> Sink | Running:
        """Returns the sink for the items of a side in a map task."""

    def gathered(self, source: Input, place: Place) -> Iterator[Any]:
        """Yields the items of a reduce task, computed from its groups."""


@dataclass
class Reduce:
    """A shuffle of values by their keys."""

    gather: Gather
    combine: Callable[..., Any] | None = None
    #: Whether `combine` turns a list of values into a value, without the key.
    combine_folds: bool = False
    #: The same fold as `combine`, one value at a time.
    adding: Adding | None = None

    has_tails = False
    is_total = False
    of_pairs = True

    def functions(self) -> Named:
        yield self.gather.name, self.gather.function
        yield "combine", self.combine

    def shown(self) -> str:
        what = self.gather.name or self.gather.kind
        return f"by key -> {what}" + (", combined in the map tasks" if self.combine is not None else "")

    def sink(self, output: Output, record_bytes_max: int, side: int) -> Sink | Running:
        encoder = Encoder(output, record_bytes_max)
        if self.combine is None:
            return _Plain(encoder)
        if not self.combine_folds and not is_fold(self.combine):
            return Window(encoder, None, self.combine)
        name = self.gather.name if self.combine_folds else "combine"
        window = Window(encoder, self.combine, None, name)
        if self.adding is None and self.combine not in (sum, min, max):
            return window
        return Running(encoder, self.combine, window, self.adding, name)

    def gathered(self, source: Input, place: Place) -> Iterator[Any]:
        of_group = self.gather.of_group()
        for key, values in groups(source):
            place.at(key)
            made = of_group(key, values)
            if made is values and self.gather.kind == "pairs":
                raise TypeError("it returned its values, which can be read only once: return list(values)")
            yield from made


class _Plain:
    """A sink of pairs that are not combined."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def put(self, pairs: list[Any]) -> None:
        self._encoder.put_together(*columns(pairs))

    def close(self) -> None:
        pass


@dataclass
class Count:
    """A shuffle that counts the occurrences of each item if `of_each` is set, and otherwise returns each distinct item."""

    of_each: bool

    has_tails = False
    is_total = False
    of_pairs = False

    def functions(self) -> Named:
        return iter(())

    def shown(self) -> str:
        return "by item -> " + ("count" if self.of_each else "distinct") + ", counted in the map tasks"

    def sink(self, output: Output, record_bytes_max: int, side: int) -> Sink:
        return Counting(Encoder(output, record_bytes_max))

    def gathered(self, source: Input, place: Place) -> Iterator[Any]:
        for key, values in groups(source):
            place.at(key)
            yield (key, sum(values)) if self.of_each else key


class _Encoding:
    """A sink that encodes keys by a function of the shuffle."""

    def __init__(self, put: Callable[[list[Any]], None]) -> None:
        self.put = put

    def close(self) -> None:
        pass


@dataclass
class Sides:
    """A shuffle of the values of several sides by their keys: a join or a cogroup."""

    #: "inner", "left", "right" or "full"; None for a cogroup, which returns the values of each side as a list.
    how: str | None
    count: int
    #: Hot keys, as bytes: each with the side that is split and the number of tasks of the key. Rows of the other side go to all of them.
    hot: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    has_tails = True
    is_total = False
    of_pairs = True

    def functions(self) -> Named:
        return iter(())

    def shown(self) -> str:
        return "by key -> " + ("cogroup" if self.how is None else f"join ({self.how})")

    def sink(self, output: Output, record_bytes_max: int, side: int) -> Sink:
        encoder, end = Encoder(output, record_bytes_max), b"\x00" + bytes([side])
        turn = [0]

        def put(pairs: list[Any]) -> None:
            keys, values = columns(pairs)
            together = encoder.together(keys, values)
            if together is None:
                encoded, inexact = _keys.encode_column(keys, inside=True)
                coded = encoded_values(keys, values, inexact)
            else:
                keys, coded = together
                encoded, _ = _keys.encode_column(keys, inside=True)
            if self.hot and not self.hot.keys().isdisjoint(encoded):
                keys, encoded, coded = self._cut(side, turn, keys, encoded, coded)
            else:
                encoded = [data + end for data in encoded]
            encoder.put_encoded(keys, encoded, coded, [len(data) - 1 for data in encoded])

        return _Encoding(put)

    def _cut(
        self, side: int, turn: list[int], keys: Sequence[Any], encoded: list[bytes], coded: list[bytes]
    ) -> tuple[list[Any], list[bytes], list[bytes]]:
        """Returns the rows with a task number for hot keys. On the split side, rows go to the tasks in turn; on the other side, each row
        goes to all tasks."""
        rows: list[tuple[Any, bytes, bytes]] = []
        for key, data, value in zip(keys, encoded, coded):
            cut_side, ways = self.hot.get(data, (side, 1))
            chosen: Iterable[int] = range(ways)
            if side == cut_side:
                turn[0] += 1
                chosen = (turn[0] % ways,)
            rows.extend((key, data + bytes([way, side]), value) for way in chosen)
        return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]

    def gathered(self, source: Input, place: Place) -> Iterator[Any]:
        previous: list[Any] = []
        before = b""
        for data, sides in groupby(raw_groups(source), key=lambda group: group[0][:-1]):
            first = next(sides)
            key = key_of(data, first[2], _keys.decode_inside)
            # A hot key has a group per task. Its groups are not compared with each other.
            if data[:-1] != before:
                _check_after(previous, key)
            before = data[:-1]
            place.at(key)
            by_side = ((group[0][-1], group[1]) for group in chain((first,), sides))
            if self.how is None:
                yield key, self._listed(by_side)
            else:
                yield from self._joined(key, by_side)

    def _listed(self, by_side: Iterator[tuple[int, Iterator[Any]]]) -> tuple[list[Any], ...]:
        lists: list[list[Any]] = [[] for _ in range(self.count)]
        for side, values in by_side:
            lists[side].extend(values)
        return tuple(lists)

    def _joined(self, key: Any, by_side: Iterator[tuple[int, Iterator[Any]]]) -> Iterator[Any]:
        left: Rows | None = None
        is_matched = False
        for side, values in by_side:
            if side == 0:
                left = Rows(values)
            elif left is None:
                if self.how in ("right", "full"):
                    yield from zip(repeat(key), zip(repeat(None), values))
            else:
                is_matched = True
                yield from zip(repeat(key), left.beside(values))
        if left is not None and not is_matched and self.how in ("left", "full"):
            yield from zip(repeat(key), zip(left, repeat(None)))


@dataclass
class Ordered:
    """A shuffle of values by their keys, with sorted values."""

    gather: Gather
    by: Callable[[Any], Any] | None
    is_reversed: bool

    has_tails = True
    is_total = False
    of_pairs = True

    def functions(self) -> Named:
        yield self.gather.name, self.gather.function
        yield "sorted", self.by

    def shown(self) -> str:
        order = f" by {name_of(self.by)}" if self.by is not None else ""
        return f"by key, values in order{order}{' reversed' * self.is_reversed} -> {self.gather.name or self.gather.kind}"

    def sink(self, output: Output, record_bytes_max: int, side: int) -> Sink:
        encoder = Encoder(output, record_bytes_max)

        def put(pairs: list[Any]) -> None:
            keys, values = columns(pairs)
            encoded, inexact = _keys.encode_column(keys, inside=True)
            orders, _ = _keys.encode_column(_made(self.by, values), inside=True)
            if self.is_reversed:
                orders = list(map(_keys.inverted, orders))
            coded = encoded_values(keys, values, inexact)
            # No encoded order is a prefix of another, so the length after it is never compared.
            whole = [data + order + len(order).to_bytes(4, "big") for data, order in zip(encoded, orders)]
            encoder.put_encoded(keys, whole, coded, list(map(len, encoded)))

        return _Encoding(put)

    def gathered(self, source: Input, place: Place) -> Iterator[Any]:
        of_group = self.gather.of_group()
        previous: list[Any] = []
        for data, parts in groupby(raw_groups(source), key=_without_order):
            first = next(parts)
            key = key_of(data, first[2], _keys.decode_inside)
            _check_after(previous, key)
            place.at(key)
            values = self._values(len(data), chain((first,), parts))  # noqa: B031
            yield from of_group(key, values)

    def _values(self, at: int, parts: Iterator[RawGroup]) -> Iterator[Any]:
        order = _Comparable(self.by)
        for data, values, _ in parts:
            for number, value in enumerate(values):
                if number == 0:
                    order.check(data[at], value)
                yield value


def _without_order(group: RawGroup) -> bytes:
    data = group[0]
    return data[: -4 - int.from_bytes(data[-4:], "big")]


def _made(function: Callable[[Any], Any] | None, items: list[Any]) -> list[Any]:
    """Returns the results of a function for each item, as a list: `map` would end at a `StopIteration` of the function."""
    return items if function is None else [function(item) for item in items]


class _Comparable:
    """A check that Python can compare successive items. It compares their orders only if the first bytes differ, or are those of tuples."""

    def __init__(self, by: Callable[[Any], Any] | None) -> None:
        self._by = by
        self._kind: int | None = None
        self._before: Any = None

    def check(self, kind: int, item: Any) -> None:
        """Compares an item with the previous one. `kind`: the first byte of its encoded order. Error: `MixedKeys`."""
        # Tuples may hold elements that cannot be compared.
        if self._kind is not None and (kind != self._kind or kind in _OF_TUPLES):
            check_order(*_made(self._by, [self._before, item]))
        self._kind, self._before = kind, item


def _check_after(previous: list[Any], key: Any) -> None:
    """Raises `MixedKeys` if Python cannot compare a key with the previous key. Stores the key in `previous`."""
    if previous:
        check_order(previous[0], key)
    previous[:] = [key]


@dataclass
class Sort:
    """A shuffle that sorts all items."""

    by: Callable[[Any], Any] | None
    is_reversed: bool

    has_tails = False
    is_total = True
    of_pairs = False

    def functions(self) -> Named:
        yield "sort_by", self.by

    def shown(self) -> str:
        return "in order" + (f" of {name_of(self.by)}" if self.by is not None else "") + ", reversed" * self.is_reversed

    def sink(self, output: Output, record_bytes_max: int, side: int) -> Sink:
        encoder = Encoder(output, record_bytes_max)

        def put(items: list[Any]) -> None:
            orders = _made(self.by, items)
            encoded, _ = _keys.encode_column(orders, inside=self.is_reversed)
            if self.is_reversed:
                encoded = list(map(_keys.inverted, encoded))
            encoder.put_encoded(orders, encoded, _values.encode_column(items))

        return _Encoding(put)

    def gathered(self, source: Input, place: Place) -> Iterator[Any]:
        order = _Comparable(self.by)
        for data, values, _ in raw_groups(source):
            for number, item in enumerate(values):
                if number == 0:
                    place.at(item)
                    order.check(data[0], item)
                yield item


@dataclass
class Top:
    """A shuffle that keeps the largest items."""

    count: int
    by: Callable[[Any], Any] | None

    has_tails = False
    is_total = False
    of_pairs = False

    def functions(self) -> Named:
        yield "top", self.by

    def shown(self) -> str:
        return f"the {self.count} largest" + (f" by {name_of(self.by)}" if self.by is not None else "")

    def sink(self, output: Output, record_bytes_max: int, side: int) -> Sink:
        return _Largest(self, Encoder(output, record_bytes_max))

    def gathered(self, source: Input, place: Place) -> Iterator[Any]:
        for _, values, _ in raw_groups(source):
            yield from self.largest(values)

    def largest(self, items: Iterable[Any]) -> list[Any]:
        """Returns the `count` largest of the items, the largest first."""
        return heapq.nlargest(self.count, items, self.by)


class _Largest:
    def __init__(self, top: Top, encoder: Encoder) -> None:
        self._top, self._encoder = top, encoder
        self._items: list[Any] = []

    def put(self, items: list[Any]) -> None:
        self._items = self._top.largest(chain(self._items, items))

    def close(self) -> None:
        count = len(self._items)
        self._encoder.put_encoded([None] * count, [_ONE_KEY] * count, _values.encode_column(self._items))


__all__ = ["Count", "Ordered", "Place", "Reduce", "Shuffle", "Sides", "Sink", "Sort", "Top"]
