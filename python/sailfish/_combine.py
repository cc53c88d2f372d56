"""Map-side combining: folds the pairs of a map task before the shuffle."""

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

#: Limits of the buffered pairs: the number of pairs, the number of keys with an aggregate, and the approximate bytes.
_PAIRS_MAX = 1 << 17
_KEYS_MAX = 1 << 18
_BYTES_MAX = 64 << 20
#: One pair in this many is measured at least, and one in about this many bytes.
_LOOK_EVERY = 64
_LOOK_BYTES = 4 << 20
#: The most pairs that are buffered before they go to a window.
_OTHERS_MAX = 2048
#: Types of keys whose equality is the equality of their bytes.
_PLAIN = frozenset({str, int, bytes, float, bool, type(None), date})

Pair = tuple[Any, Any]
_NONE = object()
#: Types whose values are immutable.
_UNCHANGING = frozenset((int, float, complex, bool, str, bytes, type(None)))


def _are_plain(keys: Sequence[Any]) -> bool:
    kinds = set(map(type, keys))
    return kinds <= _PLAIN or (kinds == {tuple} and _PLAIN.issuperset(map(type, chain.from_iterable(keys))))


def _is_plain(key: Any) -> bool:
    return type(key) in _PLAIN or (type(key) is tuple and _PLAIN.issuperset(map(type, key)))


@dataclass(frozen=True)
class Adding:
    """A fold of the values of a key, one value at a time."""

    add: Callable[[Any, Any], Any]
    #: Whether the fold starts from `initial`; otherwise it starts from the first value.
    has_initial: bool = False
    initial: Any = None

    @functools.cached_property
    def _pickled(self) -> bytes | None:
        """Returns the pickled initial value; None if it is immutable."""
        initial = self.initial
        parts = initial if type(initial) is tuple else (initial,)
        if _UNCHANGING.issuperset(map(type, parts)):
            return None
        import cloudpickle

        pickled: bytes = cloudpickle.dumps(self.initial)
        return pickled

    def begin(self) -> Any:
        """Returns a copy of the initial value for one key, so that a function that changes it in place does not affect other keys."""
        return self.initial if self._pickled is None else pickle.loads(self._pickled)

    def of_many(self, values: Iterable[Any]) -> Any:
        """Returns the fold of the values."""
        return functools.reduce(self.add, values, self.begin()) if self.has_initial else functools.reduce(self.add, values)


def _lesser(before: Any, value: Any) -> Any:
    return value if value < before else before


def _greater(before: Any, value: Any) -> Any:
    return value if value > before else before


#: `min` and `max` as folds of one value at a time.
_COMPARING: dict[Callable[..., Any], Adding] = {min: Adding(_lesser), max: Adding(_greater)}


class WrongPair(Exception):
    """Error of an item that is not a (key, value) pair; its argument is the item."""


class Stuck(Exception):
    """Error of pairs that cannot be encoded or written. `error` is the cause."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _Totals:
    """A table of the aggregate of each key so far."""

    def __init__(self, encoder: Encoder, totals: dict[Any, Any], rest: Window) -> None:
        self._encoder, self._rest, self._totals = encoder, rest, totals
        self._bytes = 0

    def _drain_when_full(self) -> None:
        if len(self._totals) >= _KEYS_MAX or self._bytes >= _BYTES_MAX:
            self._drain()

    def _drain(self) -> None:
        keys, values = list(self._totals), list(self._totals.values())
        # Clear the dict in place: a loop may be using it.
        self._totals.clear()
        self._bytes = 0
        if keys:
            self._encoder.put(keys, values)

    def close(self) -> None:
        """Writes the aggregates and closes the window."""
        self._drain()
        self._rest.close()


class Running(_Totals):
    """A fold that keeps one aggregate per key: ``sum`` over whole numbers, ``min``, ``max``, or a function of two values. Other pairs go to
    a window.

    Each pair is folded as soon as it is made, while its memory is still in the cache. Collecting pairs in lists and scanning the lists
    several times takes 50 % longer."""

    def __init__(self, encoder: Encoder, fold: Callable[..., Any], rest: Window, adding: Adding | None, name: str) -> None:
        super().__init__(encoder, {}, rest)
        self._name = name
        self._adding = _COMPARING.get(fold) if adding is None else adding
        #: The number of pairs until the next pair is measured.
        self._until_look = 1
        self._others: list[Pair] = []

    def take(self, pairs: Iterator[Pair]) -> None:
        """Folds all pairs of an iterator. Errors: the errors of `pairs`; `WrongPair`; `Failed`, if the fold function fails; `Stuck`."""
        if self._adding is None:
            self._sum(pairs)
        else:
            self._add(pairs, self._adding)
        self._put_others()

    # The loop is written twice, because a function call per pair would double its time.

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
            # A sum does not grow, so only new keys are measured.
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
            # An aggregate may hold all its values, so each value is measured.
            until_look -= 1
            if not until_look:
                until_look = self._look(pair)
        self._until_look = until_look

    def _look(self, pair: Pair) -> int:
        """Measures a pair, adds its size for all pairs until the next measurement, and returns the number of these pairs."""
        size = size_of([pair])
        count = max(1, min(_LOOK_EVERY, _LOOK_BYTES // size))
        self._bytes += size * count
        self._put_on(self._drain_when_full)
        return count

    def _begin(self, pair: Pair) -> bool:
        """Handles the first pair of a key, and any pair that the loops do not handle. Returns whether the key is new."""
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
            # `sum` over many such numbers at once rounds less than adding one at a time.
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
        """Raises `WrongPair` for an item that is not a pair, or `Stuck` for an invalid key."""
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise WrongPair(pair)
        try:
            _keys.encode(pair[0])
            raise TypeError(f"{pair[0]!r:.200} is not hashable, so it cannot be a key")
        except TypeError as error:
            # The original error of the dict is less clear.
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
    """A counter of the occurrences of each key. Keys whose equality in a dict differs from the equality of their bytes go to a window."""

    def __init__(self, encoder: Encoder) -> None:
        self._counts: Counter[Any] = Counter()
        super().__init__(encoder, self._counts, Window(encoder, sum))

    def put(self, keys: list[Any]) -> None:
        """Counts keys."""
        counts = self._counts
        before = len(counts)
        try:
            counts.update(keys)
        except TypeError:
            # Raise the clearer error: an item that is not hashable is not a key.
            for key in keys:
                _keys.encode(key)
            raise
        new = list(islice(reversed(counts), len(counts) - before))
        if not _are_plain(new):
            # A dict may merge two different keys of this batch, so the whole batch is taken out again.
            counts.subtract(keys)
            for key in new:
                del counts[key]
            self._rest.put([(key, 1) for key in keys])
            return
        self._bytes += size_of(new)
        self._drain_when_full()


class Window:
    """A buffer of pairs, folded when it is full: by `fold`, which turns a list of values into one value, or by the user's combine
    function."""

    def __init__(
        self, encoder: Encoder, fold: Callable[[list[Any]], Any] | None, combine: Callable[..., Any] | None = None, name: str = "combine"
    ) -> None:
        self._encoder, self._fold, self._combine, self._name = encoder, fold, combine, name
        self._values: defaultdict[Any, list[Any]] = defaultdict(list)
        #: Keys whose equality differs from the equality of their bytes, with their values, by their bytes.
        self._by_bytes: dict[bytes, tuple[Any, list[Any]]] = {}
        self._pairs = 0
        self._bytes = 0

    def put(self, pairs: list[Pair]) -> None:
        """Adds pairs. If the window is full, folds and writes them."""
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
        """Folds the pairs and writes them."""
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
                    f"the combine function, given the key {key!r:.200}, yielded the key {made!r:.200}: it must yield the key that it gets"
                )
        return pairs
