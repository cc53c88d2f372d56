"""Pairs that are folded before they travel."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, islice
from typing import Any

from . import _keys
from ._batch import Encoder, columns
from ._failed import Failed, check_pairs, short
from ._groups import pairs_of
from ._sizes import size_of

#: What waits at most: pairs, or keys with what their values make so far, and about how many bytes.
_PAIRS_MAX = 1 << 17
_KEYS_MAX = 1 << 18
_BYTES_MAX = 64 << 20
#: Keys that are equal where their bytes are.
_PLAIN = frozenset({str, int, bytes, float, bool, type(None), date})

Pair = tuple[Any, Any]
_NONE = object()


def _are_plain(keys: Sequence[Any]) -> bool:
    kinds = set(map(type, keys))
    return kinds <= _PLAIN or (kinds == {tuple} and _PLAIN.issuperset(map(type, chain.from_iterable(keys))))


@dataclass(frozen=True)
class Adding:
    """How a value is made of the values of a key, one after the other."""

    add: Callable[[Any, Any], Any]
    #: The first one is added to `initial`; else it is the value so far.
    has_initial: bool = False
    initial: Any = None

    def of_many(self, values: Iterable[Any]) -> Any:
        """The value of some values."""
        return functools.reduce(self.add, values, self.initial) if self.has_initial else functools.reduce(self.add, values)


class Running:
    """Keeps one value for each key, that of all its values so far: of ``sum`` over whole numbers, ``min``, ``max``, or a function of two
    values. What cannot be kept so goes on to a window."""

    def __init__(self, encoder: Encoder, fold: Callable[..., Any], rest: Window, adding: Adding | None, name: str) -> None:
        self._encoder, self._fold, self._adding = encoder, fold, adding
        self._rest, self._name = rest, name
        self._totals: Counter[Any] = Counter()
        self._bytes = 0

    def put(self, pairs: list[Pair]) -> None:
        """Takes pairs."""
        keys, values = columns(pairs)
        if not _are_plain(keys) or (self._fold is sum and set(map(type, values)) != {int}):
            self._rest.put(pairs)
            return
        before = len(self._totals)
        if self._fold is sum:
            self._add(keys, values, pairs)
        else:
            self._keep(pairs)
        size = size_of(pairs)
        # Numbers do not grow; what else is made of values may have all of them in it.
        self._bytes += size * (len(self._totals) - before) // len(pairs) if self._fold is sum else size
        self._drain_when_full()

    def put_keys(self, keys: list[Any]) -> None:
        """Takes keys, each with the value 1."""
        totals = self._totals
        before = len(totals)
        try:
            totals.update(keys)
        except TypeError:
            # What cannot be in a dict is no key.
            for key in keys:
                _keys.encode(key)
            raise
        new = list(islice(reversed(totals), len(totals) - before))
        if not _are_plain(new):
            # What a dict calls equal may be two keys here. Those of this batch are taken out again.
            totals.subtract(keys)
            for key in new:
                del totals[key]
            self._rest.put([(key, 1) for key in keys])
            return
        self._bytes += size_of(new)
        self._drain_when_full()

    def _add(self, keys: Sequence[Any], values: Sequence[int], pairs: list[Pair]) -> None:
        totals = self._totals
        if values.count(1) == len(values):
            totals.update(keys)
            return
        for key, value in pairs:
            totals[key] += value

    def _keep(self, pairs: list[Pair]) -> None:
        # A plain dict: a Counter has a value for keys that it has not.
        kept: dict[Any, Any] = self._totals
        get, adding, fold = kept.get, self._adding, self._fold
        key: Any = None
        try:
            if adding is not None and adding.has_initial:
                add, initial = adding.add, adding.initial
                for key, value in pairs:
                    kept[key] = add(get(key, initial), value)
                return
            add = adding.add if adding is not None else lambda before, value: fold((before, value))
            for key, value in pairs:
                before = get(key, _NONE)
                kept[key] = value if before is _NONE else add(before, value)
        except Exception as error:
            raise Failed(f"the {self._name} function failed with the key {key!r:.200}: {short(error)}") from error

    def _drain_when_full(self) -> None:
        if len(self._totals) >= _KEYS_MAX or self._bytes >= _BYTES_MAX:
            self._drain()

    def _drain(self) -> None:
        totals, self._totals, self._bytes = self._totals, Counter(), 0
        if totals:
            self._encoder.put(list(totals), list(totals.values()))

    def close(self) -> None:
        """Puts out what there is."""
        self._drain()
        self._rest.close()


class Window:
    """Pairs that wait to be folded: by `fold`, which makes one value of a list of values, or by the combine function of the user."""

    def __init__(
        self, encoder: Encoder, fold: Callable[[list[Any]], Any] | None, combine: Callable[..., Any] | None = None, name: str = "combine"
    ) -> None:
        self._encoder, self._fold, self._combine, self._name = encoder, fold, combine, name
        self._values: defaultdict[Any, list[Any]] = defaultdict(list)
        #: Of keys whose equality is not that of their bytes, or that are none: by bytes, with the key.
        self._by_bytes: dict[bytes, tuple[Any, list[Any]]] = {}
        self._pairs = 0
        self._bytes = 0

    def put(self, pairs: list[Pair]) -> None:
        """Takes pairs."""
        values = self._values
        if _are_plain([key for key, _ in pairs]):
            for key, value in pairs:
                values[key].append(value)
        else:
            for key, value in pairs:
                data, _ = _keys.encode(key)
                self._by_bytes.setdefault(data, (key, []))[1].append(value)
        self._pairs += len(pairs)
        self._bytes += size_of(pairs)
        if self._pairs >= _PAIRS_MAX or self._bytes >= _BYTES_MAX:
            self.close()

    def close(self) -> None:
        """Puts out what there is."""
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
                raise Failed(f"the {self._name} function failed with the key {key!r:.200}: {short(error)}") from error
        put_pairs(self._encoder, pairs)

    def _folded(self, key: Any, values: list[Any]) -> Iterable[Pair]:
        if self._fold is not None:
            return ((key, self._fold(values)),)
        assert self._combine is not None
        pairs = list(pairs_of(key, self._combine(key, iter(values))))
        check_pairs(pairs, lambda: f"the combine function, given the key {key!r:.200}, yielded")
        for made, _ in pairs:
            if made is not key and made != key:
                raise Failed(
                    f"the combine function, given the key {key!r:.200}, yielded the key {made!r:.200}: it may only fold the values of a key"
                )
        return pairs


def put_pairs(encoder: Encoder, pairs: list[Pair]) -> None:
    """Puts out pairs as they are."""
    if pairs:
        encoder.put(*columns(pairs))
