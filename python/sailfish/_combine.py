"""Pairs that are folded before they travel."""

from __future__ import annotations

import functools
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, islice
from typing import Any, NoReturn

from . import _keys
from ._batch import Encoder, columns
from ._failed import Failed, check_pairs, short
from ._groups import pairs_of
from ._sizes import size_of

#: What waits at most: pairs, or keys with what their values make so far, and about how many bytes.
_PAIRS_MAX = 1 << 17
_KEYS_MAX = 1 << 18
_BYTES_MAX = 64 << 20
#: Pairs of which one is looked at, to see how large they are, and about how many bytes these may have.
_LOOK_EVERY = 64
_LOOK_BYTES = 4 << 20
#: Pairs that wait for a window.
_OTHERS_MAX = 2048
#: Keys that are equal where their bytes are.
_PLAIN = frozenset({str, int, bytes, float, bool, type(None), date})

Pair = tuple[Any, Any]
_NONE = object()
#: Types whose values nothing changes in place.
_UNCHANGING = frozenset((int, float, complex, bool, str, bytes, type(None)))


def _are_plain(keys: Sequence[Any]) -> bool:
    kinds = set(map(type, keys))
    return kinds <= _PLAIN or (kinds == {tuple} and _PLAIN.issuperset(map(type, chain.from_iterable(keys))))


def _is_plain(key: Any) -> bool:
    return type(key) in _PLAIN or (type(key) is tuple and _PLAIN.issuperset(map(type, key)))


@dataclass(frozen=True)
class Adding:
    """How a value is made of the values of a key, one after the other."""

    add: Callable[[Any, Any], Any]
    #: The first one is added to `initial`; else it is the value so far.
    has_initial: bool = False
    initial: Any = None

    @functools.cached_property
    def _pickled(self) -> bytes | None:
        """The initial value, if something could change it in place."""
        initial = self.initial
        parts = initial if type(initial) is tuple else (initial,)
        if _UNCHANGING.issuperset(map(type, parts)):
            return None
        import cloudpickle

        pickled: bytes = cloudpickle.dumps(self.initial)
        return pickled

    def begin(self) -> Any:
        """The initial value, for one key: a function that changes it in place changes that of no other key."""
        return self.initial if self._pickled is None else pickle.loads(self._pickled)

    def of_many(self, values: Iterable[Any]) -> Any:
        """The value of some values."""
        return functools.reduce(self.add, values, self.begin()) if self.has_initial else functools.reduce(self.add, values)


def _lesser(before: Any, value: Any) -> Any:
    return value if value < before else before


def _greater(before: Any, value: Any) -> Any:
    return value if value > before else before


#: What compares the values of a key, a value at a time.
_COMPARING: dict[Callable[..., Any], Adding] = {min: Adding(_lesser), max: Adding(_greater)}


class WrongPair(Exception):
    """Its argument is no (key, value) pair."""


class Stuck(Exception):
    """What was folded cannot go on."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _Totals:
    """Keys with what their values make so far."""

    def __init__(self, encoder: Encoder, totals: dict[Any, Any], rest: Window) -> None:
        self._encoder, self._rest, self._totals = encoder, rest, totals
        self._bytes = 0

    def _drain_when_full(self) -> None:
        if len(self._totals) >= _KEYS_MAX or self._bytes >= _BYTES_MAX:
            self._drain()

    def _drain(self) -> None:
        keys, values = list(self._totals), list(self._totals.values())
        # The same dict: a loop may be at work on it.
        self._totals.clear()
        self._bytes = 0
        if keys:
            self._encoder.put(keys, values)

    def close(self) -> None:
        """Puts out what there is."""
        self._drain()
        self._rest.close()


class Running(_Totals):
    """Keeps one value for each key, that of all its values so far: of ``sum`` over whole numbers, ``min``, ``max``, or a function of two
    values. What cannot be kept so goes on to a window.

    Pairs are folded one by one as they are made: so the memory of one serves the next while it is in the cache. Lists of pairs, gone
    through once for each thing to know of them, take half as long again."""

    def __init__(self, encoder: Encoder, fold: Callable[..., Any], rest: Window, adding: Adding | None, name: str) -> None:
        super().__init__(encoder, {}, rest)
        self._name = name
        self._adding = _COMPARING.get(fold) if adding is None else adding
        #: How many are taken before one is looked at.
        self._until_look = 1
        self._others: list[Pair] = []

    def take(self, pairs: Iterator[Pair]) -> None:
        """Takes pairs until there are no more. Errors: those of `pairs`; `WrongPair`; `Failed`, of the function that folds; `Stuck`."""
        if self._adding is None:
            self._sum(pairs)
        else:
            self._add(pairs, self._adding)
        self._put_others()

    # Two loops, and not one that calls a function for each pair: the call would take as long as all else.

    def _sum(self, pairs: Iterator[Pair]) -> None:
        totals = self._totals
        get, none, plain = totals.get, _NONE, _PLAIN
        until_look = self._until_look
        for pair in pairs:
            try:
                key, value = pair
                before = get(key, none)
            except (TypeError, ValueError):
                self._refuse(pair)
            if before is not none and type(pair) is tuple:
                try:
                    totals[key] = before + value
                except Exception as error:
                    self._fail(key, error)
                continue
            if type(key) in plain and type(value) is int and type(pair) is tuple:
                totals[key] = value
            elif not self._begin(pair):
                continue
            # Numbers do not grow: only keys count.
            until_look -= 1
            if not until_look:
                until_look = self._look(pair)
        self._until_look = until_look

    def _add(self, pairs: Iterator[Pair], adding: Adding) -> None:
        totals = self._totals
        get, none, add = totals.get, _NONE, adding.add
        until_look = self._until_look
        for pair in pairs:
            try:
                key, value = pair
                before = get(key, none)
            except (TypeError, ValueError):
                self._refuse(pair)
            if before is not none and type(pair) is tuple:
                try:
                    totals[key] = add(before, value)
                except Exception as error:
                    self._fail(key, error)
            else:
                self._begin(pair)
            # What is made of values may have all of them in it: each counts.
            until_look -= 1
            if not until_look:
                until_look = self._look(pair)
        self._until_look = until_look

    def _look(self, pair: Pair) -> int:
        """Counts the bytes of a pair, and as many for each one up to the next that is looked at; gives how many these are."""
        size = size_of([pair])
        count = max(1, min(_LOOK_EVERY, _LOOK_BYTES // size))
        self._bytes += size * count
        self._put_on(self._drain_when_full)
        return count

    def _begin(self, pair: Pair) -> bool:
        """Takes the first pair of a key, and any that is not quite like others; whether there is a key more."""
        if not isinstance(pair, tuple) or len(pair) != 2:
            self._refuse(pair)
        key, value = pair
        if not _is_plain(key):
            self._put_other(pair)
            return False
        before: Any = self._totals.get(key, _NONE)
        try:
            made = self._made(before, value)
        except Exception as error:
            self._fail(key, error)
        if self._adding is None and type(made) is not int:
            # How such numbers are added up is for `sum` to say, which rounds less where it sees many of them.
            self._put_other(pair)
            return False
        self._totals[key] = made
        return before is _NONE

    def _made(self, before: Any, value: Any) -> Any:
        if self._adding is None:
            return (0 if before is _NONE else before) + value
        if before is not _NONE:
            return self._adding.add(before, value)
        return self._adding.add(self._adding.begin(), value) if self._adding.has_initial else value

    def _put_other(self, pair: Pair) -> None:
        self._others.append(pair)
        if len(self._others) >= _OTHERS_MAX:
            self._put_others()

    def _put_others(self) -> None:
        others, self._others = self._others, []
        if others:
            self._put_on(lambda: self._rest.put(others))

    def _refuse(self, pair: Any) -> NoReturn:
        """Says why something is no pair, or has no key."""
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise WrongPair(pair)
        try:
            _keys.encode(pair[0])
            raise TypeError(f"{pair[0]!r:.200} has no hash, and is no key")
        except TypeError as error:
            # That a dict does not take it says less.
            error.__context__ = None
            raise Stuck(error) from error

    def _fail(self, key: Any, error: Exception) -> NoReturn:
        raise Failed(f"the {self._name} function failed with the key {key!r:.200}: {short(error)}") from error

    @staticmethod
    def _put_on(put: Callable[[], object]) -> None:
        try:
            put()
        except Failed:
            raise
        except Exception as error:
            raise Stuck(error) from error


class Counting(_Totals):
    """Counts how often each key is there. What a dict cannot tell apart, or can and should not, goes on to a window."""

    def __init__(self, encoder: Encoder) -> None:
        self._counts: Counter[Any] = Counter()
        super().__init__(encoder, self._counts, Window(encoder, sum))

    def put(self, keys: list[Any]) -> None:
        """Takes keys."""
        counts = self._counts
        before = len(counts)
        try:
            counts.update(keys)
        except TypeError:
            # What cannot be in a dict is no key.
            for key in keys:
                _keys.encode(key)
            raise
        new = list(islice(reversed(counts), len(counts) - before))
        if not _are_plain(new):
            # What a dict calls equal may be two keys here. Those of this batch are taken out again.
            counts.subtract(keys)
            for key in new:
                del counts[key]
            self._rest.put([(key, 1) for key in keys])
            return
        self._bytes += size_of(new)
        self._drain_when_full()


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
        if pairs:
            self._encoder.put(*columns(pairs))

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
