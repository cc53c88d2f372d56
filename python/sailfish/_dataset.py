"""Dataflows: lazy collections derived from other collections."""

from __future__ import annotations

import inspect
import operator
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from . import _hot_keys, _html
from ._combine import Adding
from ._failed import FLAT_MAP
from ._groups import Gather
from ._job import check_encoding
from ._needed import needed
from ._plan import Joined, Made, Node, Plan, Read, Shuffled, Stepped
from ._result import Result
from ._run import Paths, Settings, paths_of, run, settings_of, stored_or_absolute
from ._shuffles import Count, Ordered, Reduce, Shuffle, Sides, Sort, Top
from ._spec import FOLDS, PARTIAL_FOLDS, Format
from ._steps import Step, name_of
from ._tables import refuse_table, warn_of_types

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

_HOW = ("inner", "left", "right", "full")
#: Methods whose function returns a value per item. A function that yields would return a generator as the value.
_RETURNING = ("map", "filter", "key_by", "map_values")
#: The most sides of a cogroup.
_SIDES_MAX = 250


def read_text(paths: Paths, encoding: str = "utf-8", errors: str = "strict") -> Dataset[str]:
    """Reads the lines of files, without their line ends."""
    check_encoding(encoding, errors)
    return Dataset(Read(tuple(paths_of(paths)), Format("text", encoding, errors)))


def read_jsonl(paths: Paths) -> Dataset[Any]:
    """Reads one JSON value per line. Skips empty lines."""
    return Dataset(Read(tuple(paths_of(paths)), Format("jsonl")))


def read_csv(
    paths: Paths, columns: Sequence[str] | None = None, delimiter: str = ",", encoding: str = "utf-8", errors: str = "strict"
) -> Dataset[dict[str, str]]:
    """Reads the rows of CSV files as dicts of texts. Without `columns` the first line of each file names the columns. Each row is one line:
    a quoted field with a line end is an error."""
    check_encoding(encoding, errors)
    if len(delimiter) != 1:
        raise ValueError(f"delimiter={delimiter!r} must be one character")
    return Dataset(Read(tuple(paths_of(paths)), Format("csv", encoding, errors, _names(columns), delimiter)))


def read_parquet(paths: Paths, columns: Sequence[str] | None = None) -> Dataset[dict[str, Any]]:
    """Reads the rows of Parquet files as dicts; with `columns`, only these columns. Needs pyarrow."""
    needed("pyarrow.parquet", "read_parquet")
    return Dataset(Read(tuple(paths_of(paths)), Format("parquet", columns=_names(columns))))


def from_iterable(items: Iterable[T]) -> Dataset[T]:
    """Returns a dataset of items of this program. They stay in its memory. Error: `TypeError` for a table of pandas, polars or pyarrow,
    because iterating it does not yield rows."""
    refuse_table(items)
    return Dataset(Made(list(items)))


def _names(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(columns, str):
        raise TypeError(f"columns={columns!r} must be a list of names")
    if columns is not None and len(set(columns)) != len(list(columns)):
        raise ValueError(f"columns={list(columns)!r} has duplicate names")
    return None if columns is None else tuple(columns)


class Dataset(Generic[T]):
    """A lazy collection.

    A dataset is derived from others and never changes. A call of ``write_text``, ``write_jsonl``, ``write_csv``, ``write_parquet``,
    ``collect``, ``count``, ``to_arrow``, ``to_pandas`` or ``to_polars`` runs the whole dataflow as stages of map and reduce; nothing runs
    before. `explain` shows the stages. These calls take the same options: ``engine``, ``memory``, ``slots``, ``progress``, ``python``,
    ``sync``, ``name``, ``limits``, ``files``, ``modules``, ``env`` and ``requirements``, as for `MapReduce`, and ``scratch``, a directory
    that this machine and the nodes of a server share: items pass through it to the nodes and back.

    Methods by key take items that are ``(key, value)`` tuples. `MapReduce` lists the types of keys.

    >>> import sailfish as sf
    >>> sales = sf.from_iterable([("Ulm", 3), ("Bonn", 5), ("Ulm", 4)])
    >>> sales.reduce_by_key(sum).sort_by().collect()
    [('Bonn', 5), ('Ulm', 7)]
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lookups: _Lookups | None = None

    def __repr__(self) -> str:
        return f"<sailfish.Dataset\n{self.explain()}>"

    def _repr_html_(self) -> str:
        return _html.of_plan(self.explain())

    def explain(self) -> str:
        """Returns a description of the stages of this dataflow, a few lines per stage. Runs nothing."""
        return str(Plan(self._node))

    # Operations on single items

    def map(self, function: Callable[[T], U]) -> Dataset[U]:
        """Returns the result of the function for each item. Error: `TypeError` for a generator function: use `flat_map`."""
        return self._stepped("map", function)

    def filter(self, function: Callable[[T], object]) -> Dataset[T]:
        """Returns the items for which the function returns a true value."""
        return self._stepped("filter", function)

    def flat_map(self, function: Callable[[T], Iterable[U]]) -> Dataset[U]:
        """Returns all items that the function yields, or returns as a list, for each item."""
        return self._stepped("flat_map", function)

    def key_by(self, function: Callable[[T], K]) -> Dataset[tuple[K, T]]:
        """Returns ``(function(item), item)`` pairs."""
        return self._stepped("key_by", function)

    def map_values(self: Dataset[tuple[K, V]], function: Callable[[V], W]) -> Dataset[tuple[K, W]]:
        """Returns ``(key, function(value))`` pairs."""
        return self._stepped("map_values", function)

    def keys(self: Dataset[tuple[K, V]]) -> Dataset[K]:
        """Returns the keys of pairs. ``dict(dataset)`` calls it first, and looks up the value of each key afterwards."""
        return _Keys(self)

    def values(self: Dataset[tuple[K, V]]) -> Dataset[V]:
        """Returns the values of pairs."""
        return self._stepped("values")

    def sample(self, fraction: float, seed: int = 0) -> Dataset[T]:
        """Returns a random sample of about `fraction` of the items. The same seed, data and settings select the same items."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction={fraction!r} must be between 0 and 1")
        return Dataset(Stepped(self._node, Step("sample", None, f"sample({fraction})", fraction, seed)))

    def union(self, *others: Dataset[U]) -> Dataset[T | U]:
        """Returns the items of all datasets, duplicates included."""
        _check_datasets("union", others)
        # Unions made in a loop are flattened, so that the plan does not become as deep as the loop is long.
        before = self._node.parents if isinstance(self._node, Joined) else (self._node,)
        return Dataset(Joined((*before, *(other._node for other in others))))

    def _stepped(self, kind: str, function: Callable[..., Any] | None = None) -> Dataset[Any]:
        name = kind
        if function is not None:
            _check_callable(kind, function)
            if kind in _RETURNING:
                _check_returns(kind, function)
            name = f"{kind}({name_of(function)})"
        return Dataset(Stepped(self._node, Step(kind, function, name if function is not None else "")))

    # Operations by key

    def reduce_by_key(self: Dataset[tuple[K, V]], fold: Callable[..., V]) -> Dataset[tuple[K, V]]:
        """Returns one pair per key: the key and its folded values. `fold`: ``sum``, ``min``, ``max``, ``any`` or ``all``, or an associative
        and commutative function of two values. Map tasks fold their own values before the shuffle."""
        _check_callable("reduce_by_key", fold)
        adding = None
        if any(fold is known for known in PARTIAL_FOLDS):
            function = fold
        elif any(fold is known for known in FOLDS):
            raise ValueError(
                f"reduce_by_key({fold.__name__}): {fold.__name__} cannot fold its own results: use group_by().map_values({fold.__name__})"
            )
        else:
            adding = Adding(fold)
            function = adding.of_many
        gather = Gather("fold", function, f"reduce_by_key({name_of(fold)})")
        return self._shuffled(Reduce(gather, function, combine_folds=True, adding=adding), "reduce_by_key")

    def aggregate_by_key(
        self: Dataset[tuple[K, V]], initial: W, add: Callable[[W, V], W], merge: Callable[[W, W], W]
    ) -> Dataset[tuple[K, W]]:
        """Returns one pair per key: the key and the aggregate of its values. ``add(aggregate, value)`` adds one value; the aggregate of
        each key starts as a copy of `initial`. ``merge(aggregate, aggregate)`` merges the aggregates of two sets of values of a key."""
        _check_callable("aggregate_by_key", add)
        _check_callable("aggregate_by_key", merge)
        adding = Adding(add, True, initial)
        gather = Gather("fold", Adding(merge).of_many, f"aggregate_by_key({name_of(add)}, {name_of(merge)})")
        return self._shuffled(Reduce(gather, adding.of_many, combine_folds=True, adding=adding), "aggregate_by_key")

    def count_by_key(self: Dataset[tuple[K, V]]) -> Dataset[tuple[K, int]]:
        """Returns one pair per key: the key and the number of its items."""
        return self._stepped("keys")._shuffled(Count(of_each=True), "count_by_key")

    @overload
    def group_by(self: Dataset[tuple[K, V]], key: None = None) -> Groups[K, V]: ...

    @overload
    def group_by(self, key: Callable[[T], K]) -> Groups[K, T]: ...

    def group_by(self, key: Callable[[Any], Any] | None = None) -> Groups[Any, Any]:
        """Groups the values of pairs by their keys; with `key`, groups the items by ``key(item)``."""
        if key is None:
            return Groups(self._node)
        _check_callable("group_by", key)
        return Groups(self.key_by(key)._node)

    def join(self: Dataset[tuple[K, V]], other: Dataset[tuple[K, W]], how: str = "inner") -> Dataset[tuple[K, tuple[Any, Any]]]:
        """Returns ``(key, (left, right))`` for each combination of a left and a right value of a key. `how`: ``"inner"``; ``"left"``,
        ``"right"`` and ``"full"`` also return the values of that side, or of both, that have no match, paired with None. If the files are
        large, a key with a large share of the rows is split over several tasks: on either side of an inner join, on the left side of a left
        join, on the right side of a right join. A full join splits no key."""
        if how not in _HOW:
            raise ValueError(f"how={how!r} is not known: choose {', '.join(_HOW)}")
        return self._beside((other,), Sides(how, 2), "join")

    def cogroup(self: Dataset[tuple[K, V]], *others: Dataset[tuple[K, Any]]) -> Dataset[tuple[K, tuple[list[Any], ...]]]:
        """Returns ``(key, (values, other values, ...))`` for each key of any dataset, with a list of values per dataset. The lists of one
        key must fit in memory."""
        if not others:
            raise ValueError("cogroup needs at least one other dataset")
        return self._beside(others, Sides(None, 1 + len(others)), "cogroup")

    def _beside(self, others: Sequence[Dataset[Any]], shuffle: Shuffle, name: str) -> Dataset[Any]:
        _check_datasets(name, others)
        if len(others) >= _SIDES_MAX:
            raise ValueError(f"{name} takes at most {_SIDES_MAX} datasets")
        return Dataset(Shuffled((self._node, *(other._node for other in others)), shuffle, name))

    # Operations on all items

    def distinct(self) -> Dataset[T]:
        """Returns each distinct item once. Each part of the output is sorted. Items must have the types of keys."""
        return self._shuffled(Count(of_each=False), "distinct")

    def count_by_value(self) -> Dataset[tuple[T, int]]:
        """Returns one pair per distinct item: the item and its number of occurrences. Items must have the types of keys."""
        return self._shuffled(Count(of_each=True), "count_by_value")

    def sort_by(self, key: Callable[[T], Any] | None = None, reverse: bool = False) -> Dataset[T]:
        """Returns the items sorted, or sorted by `key(item)`. The sort keys must have the types of keys. A written output is sorted across
        its parts."""
        if key is not None:
            _check_callable("sort_by", key)
        return self._shuffled(Sort(key, reverse), "sort_by")

    def top(self, n: int, key: Callable[[T], Any] | None = None) -> Dataset[T]:
        """Returns the n largest items, the largest first; with `key`, the items with the largest `key(item)`. They must fit in memory."""
        if operator.index(n) < 0:
            raise ValueError(f"n={n} must not be negative")
        if key is not None:
            _check_callable("top", key)
        return self._shuffled(Top(n, key), "top")

    def _shuffled(self, shuffle: Shuffle, name: str) -> Dataset[Any]:
        return Dataset(Shuffled((self._node,), shuffle, name))

    # Operations that run the dataflow

    def write_text(self, output: str | os.PathLike[str], *, overwrite: bool = False, **options: Any) -> Result:
        """Writes one line per item, ``str(item)``, into part files."""
        return self._write(output, "text", overwrite, options)

    def write_jsonl(self, output: str | os.PathLike[str], *, overwrite: bool = False, **options: Any) -> Result:
        """Writes one line of JSON per item."""
        return self._write(output, "json", overwrite, options)

    def write_csv(
        self,
        output: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        *,
        multiline: bool = False,
        overwrite: bool = False,
        **options: Any,
    ) -> Result:
        """Writes items that are dicts, tuples or lists as rows of CSV. The first line of each part names the columns; they are the keys of
        the first dict, or `columns`. A field with a line end is an error, because `read_csv` reads one row per line; `multiline` writes
        such a field in quotes, for other programs."""
        return self._write(output, "csv", overwrite, options, columns=_names(columns), multiline=multiline)

    def write_parquet(self, output: str | os.PathLike[str], schema: Any = None, *, overwrite: bool = False, **options: Any) -> Result:
        """Writes rows of Parquet. Items are dicts, or pairs, which become the columns key and value. `schema`: a schema of pyarrow; without
        it each part has the types of its own first values, and a warning reports parts that differ. Needs pyarrow."""
        needed("pyarrow.parquet", "write_parquet")
        result = self._write(output, "rows", overwrite, options, schema=schema)
        if schema is None:
            warn_of_types(result, "write_parquet(schema=...) sets the types of all parts")
        return result

    def _write(
        self, output: str | os.PathLike[str], output_format: str, overwrite: bool, options: dict[str, Any], **of_output: Any
    ) -> Result:
        settings = settings_of({"overwrite": overwrite, **options})
        path = stored_or_absolute(os.fspath(output))
        return Result(path, output_format, self._run(path, output_format, settings, of_output), None)

    def collect(self, **options: Any) -> list[T]:
        """Returns the items as a list."""
        return list(self._kept("pickle", options))

    def count(self, **options: Any) -> int:
        """Returns the number of items."""
        return sum(self._kept("count", options))

    def __iter__(self) -> Iterator[T]:
        return iter(self._kept("pickle", {}))

    def __getitem__(self: Dataset[tuple[K, V]], key: K) -> V:
        """Returns the value of a key. Only ``dict(dataset)`` may call it, after it has listed the keys. Error: `TypeError` otherwise."""
        lookups = self._lookups
        if lookups is None:
            raise TypeError("a dataset cannot be indexed: collect() returns a list, dict(dataset.collect()) a dict of pairs")
        # Drop the values first, so that they do not stay in memory after an error.
        self._lookups = None
        value: V = lookups.next(self, key)
        self._lookups = None if lookups.is_over else lookups
        return value

    def to_arrow(self, **options: Any) -> Any:
        """Returns a table of pyarrow: the columns of dicts, the columns key and value of pairs, or one column `item`."""
        return needed("pyarrow", "to_arrow").table(_columns(self.collect(**options)))

    def to_pandas(self, **options: Any) -> Any:
        """Returns the table of `to_arrow` as a data frame of pandas."""
        return needed("pandas", "to_pandas").DataFrame(_columns(self.collect(**options)))

    def to_polars(self, **options: Any) -> Any:
        """Returns the table of `to_arrow` as a data frame of polars."""
        return needed("polars", "to_polars").DataFrame(_columns(self.collect(**options)))

    def _kept(self, output_format: str, options: dict[str, Any]) -> Result:
        settings = settings_of(options)
        kept = settings.directory("sailfish-", "the nodes of a server write the items into a shared directory")
        try:
            output = os.path.join(kept, "output")
            return Result(output, output_format, self._run(output, output_format, settings, {}), kept)
        except BaseException:
            shutil.rmtree(kept, ignore_errors=True)
            raise

    def _run(self, output: str, output_format: str, settings: Settings, of_output: dict[str, Any]) -> list[dict[str, Any]]:
        plan = Plan(self._node)
        _hot_keys.cut(plan, settings)
        if not plan.has_made:
            return run(plan.written(Path(), output_format, **of_output), output, settings)
        directory = settings.directory("sailfish-items-", "the nodes read items of this program from a shared directory")
        try:
            return run(plan.written(Path(directory), output_format, **of_output), output, settings)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


class _Keys(Dataset[K]):
    """The keys of pairs. `dict` lists the keys and looks up the value of each key afterwards."""

    def __init__(self, pairs: Dataset[tuple[K, Any]]) -> None:
        super().__init__(Stepped(pairs._node, Step("keys")))
        self._pairs = pairs

    def __iter__(self) -> Iterator[K]:
        self._pairs._lookups = None
        count = 0
        for key in super().__iter__():
            count += 1
            yield key
        self._pairs._lookups = _Lookups(count)


class _Lookups:
    """The lookups of one `dict` call, one per listed key. The first lookup collects the pairs, the last one frees them."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._values: dict[Any, Any] | None = None

    def next(self, pairs: Dataset[Any], key: Any) -> Any:
        """Returns the value of a key; if the key occurs several times, its last value. Error: `RuntimeError` for a missing key."""
        if self._values is None:
            self._values = dict(pairs.collect())
        self._left -= 1
        if key not in self._values:
            raise RuntimeError(f"the key {key!r:.200} is missing in the second run: the functions of the dataset are not deterministic")
        return self._values[key]

    @property
    def is_over(self) -> bool:
        """Whether each listed key has been looked up."""
        return self._left <= 0


class Groups(Generic[K, V]):
    """The values of each key. A function is called once per group. A group may be larger than memory: its values are an iterator, which can
    be read once. The order of the values is undefined unless `sorted` is used.

    >>> import sailfish as sf
    >>> sales = sf.from_iterable([("Ulm", 4), ("Bonn", 5), ("Ulm", 3)])
    >>> sorted(sales.group_by().map_values(sorted))
    [('Bonn', [5]), ('Ulm', [3, 4])]
    """

    def __init__(self, node: Node, order: tuple[Callable[[Any], Any] | None, bool] | None = None) -> None:
        self._node, self._order = node, order

    def __repr__(self) -> str:
        order = " with values in order" if self._order else ""
        return f"<sailfish.Groups{order}: map, flat_map, map_values and windows return datasets>"

    def sorted(self, by: Callable[[V], Any] | None = None, reverse: bool = False) -> Groups[K, V]:
        """Returns the same groups with their values sorted, or sorted by `by(value)`."""
        if by is not None:
            _check_callable("sorted", by)
        return Groups(self._node, (by, reverse))

    def map(self, function: Callable[[K, Iterator[V]], U]) -> Dataset[U]:
        """Returns the result of the function for each key and an iterator of its values."""
        _check_returns("group_by().map", function)
        return self._gathered("item", "map", function)

    def flat_map(self, function: Callable[[K, Iterator[V]], Iterable[U]]) -> Dataset[U]:
        """Returns all items that the function yields for each key and an iterator of its values."""
        return self._gathered("items", "flat_map", function)

    @overload
    def map_values(self, function: Callable[[Iterator[V]], W]) -> Dataset[tuple[K, W]]: ...

    # `len` does not take an iterator, but it is one of the built-in folds.
    @overload
    def map_values(self, function: Callable[[Sized], W]) -> Dataset[tuple[K, W]]: ...

    def map_values(self, function: Callable[..., Any]) -> Dataset[tuple[K, Any]]:
        """Returns one pair per key: the key and the result of the function for an iterator of its values."""
        _check_returns("group_by().map_values", function)
        return self._gathered("fold" if any(function is fold for fold in FOLDS) else "value", "map_values", function)

    def windows(self, size: int, step: int = 1) -> Dataset[tuple[K, list[V]]]:
        """Returns one pair per window: the key and a list of `size` consecutive values. A window begins at every `step`-th value of a
        group. Incomplete windows are dropped. Error: `ValueError` for a size or step below 1."""
        if size < 1 or step < 1:
            raise ValueError(f"size={size}, step={step}: both must be at least 1")
        return self._shuffled(Gather("windows", None, "", size, step), "windows")

    def _gathered(self, kind: str, method: str, function: Callable[..., Any]) -> Dataset[Any]:
        _check_callable(method, function)
        return self._shuffled(Gather(kind, function, f"group_by().{method}({name_of(function)})"), "group_by")

    def _shuffled(self, gather: Gather, name: str) -> Dataset[Any]:
        shuffle: Shuffle = Reduce(gather) if self._order is None else Ordered(gather, *self._order)
        return Dataset(Shuffled((self._node,), shuffle, name))


def _check_datasets(name: str, others: Sequence[object]) -> None:
    for other in others:
        if not isinstance(other, Dataset):
            raise TypeError(f"{name} takes datasets, not {other!r:.200}")


def _check_callable(name: str, function: object) -> None:
    if not callable(function):
        raise TypeError(f"{name} takes a function, and {function!r:.200} is not callable")


def _check_returns(name: str, function: object) -> None:
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{name} takes a function that returns a value, but {name_of(function)} yields: {FLAT_MAP}")


def _columns(items: list[Any]) -> dict[str, list[Any]]:
    if items and all(isinstance(item, dict) for item in items):
        names = list(dict.fromkeys(name for item in items for name in item))
        return {str(name): [item.get(name) for item in items] for name in names}
    if items and all(isinstance(item, tuple) and len(item) == 2 for item in items):
        return {"key": [key for key, _ in items], "value": [value for _, value in items]}
    return {"item": items}


__all__ = ["Dataset", "Groups", "from_iterable", "read_csv", "read_jsonl", "read_parquet", "read_text"]
