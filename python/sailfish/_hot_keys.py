"""Hot keys of joins: keys with so many rows on one side that a single task would take too long.

Before the job begins, a worker on this machine reads samples of the files of each side and counts the keys. The counts only decide how a
key is split over tasks; they never change the result. If the samples cannot be read, no key is split.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import json
import math
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import _keys
from ._frames import END, JOB, JOB_VERSION, OUTPUT, RECORDS
from ._plan import Branch, Plan, Planned, Read
from ._readers import row_groups
from ._run import Settings
from ._ship import write_modules
from ._shuffles import Sides
from ._spec import SPEC_FILE, Source, Spec, dump

#: A side with fewer bytes is not searched for hot keys.
_SIDE_BYTES_MIN = 64 << 20
#: The number of samples of a side, and the bytes of a sample.
_STRETCHES = 16
_STRETCH_BYTES = 1 << 17
#: The number of rows of a sample of a Parquet file: the first rows of a row group.
_STRETCH_ROWS = 1 << 12
#: A key is hot if it has at least this share of the rows of a side. Each task of a hot key gets about one `_PARTS`-th of the rows of the
#: side; a key is split over at most `_WAYS_MAX` tasks.
_SHARE_MIN = 0.05
_PARTS = 32
_WAYS_MAX = 64
#: The timeout of the worker that reads the samples.
_SECONDS_MAX = 20.0

_HEAD = struct.Struct("<IB3x")


def cut(plan: Plan, settings: Settings) -> None:
    """Finds the hot keys of the joins of a plan, and sets the number of tasks of each key in the shuffles."""
    for stage in plan.stages:
        shuffle = stage.shuffle
        if not isinstance(shuffle, Sides) or shuffle.how is None or shuffle.count != 2:
            continue
        hot: dict[bytes, tuple[int, int]] = {}
        # Rows of the other side go to all tasks of the key. A task does not know whether a row has a match in another task, so a side is
        # split only if the join does not return unmatched rows of the other side.
        for side in {"inner": (0, 1), "left": (0,), "right": (1,)}.get(shuffle.how, ()):
            # A side that cannot be read is not split.
            with contextlib.suppress(Exception):
                for key, share in _shares(stage, side, settings).items():
                    data, _ = _keys.encode_inside(key)
                    ways = min(_WAYS_MAX, max(2, math.ceil(share * _PARTS)))
                    if ways > hot.get(data, (side, 0))[1]:
                        hot[data] = (side, ways)
        # Replace the shuffle in the plan only: the dataset shares it, and may run again over other files.
        stage.shuffle = replace(shuffle, hot=hot)


def _shares(stage: Planned, side: int, settings: Settings) -> dict[Any, float]:
    """Returns the hot keys of a side, each with its share of the rows."""
    branches = [_from_files(branch) for branch in stage.branches if branch.side == side]
    found = [(branch, list(_files(branch))) for branch in branches]
    if not branches or not all(files for _, files in found):
        return {}
    total = sum(size for _, files in found for _, size in files)
    if total < _SIDE_BYTES_MIN:
        return {}
    counts: Counter[Any] = Counter()
    rows = 0
    for branch, files in found:
        common, seen = _counted(branch, files, settings)
        counts.update(dict(common))
        rows += seen
    return {key: count / rows for key, count in counts.items() if count >= rows * _SHARE_MIN} if rows else {}


def _from_files(branch: Branch) -> Branch:
    """Returns a branch extended by the steps of the stages before it that only read files. Such stages exist because one stage cannot read
    Parquet files and lines."""
    while isinstance(branch.origin, Planned) and branch.origin.shuffle is None and len(branch.origin.branches) == 1:
        before = branch.origin.branches[0]
        branch = Branch(before.origin, [*before.steps, *branch.origin.steps, *branch.steps], branch.side)
    return branch


def _files(branch: Branch) -> Iterator[tuple[str, int]]:
    """Yields the files of a branch that this process can read, with their sizes."""
    if not isinstance(branch.origin, Read) or branch.origin.format.name not in ("text", "jsonl", "csv", "bytes", "parquet"):
        return
    for path in branch.origin.paths:
        for each in [path] if os.path.exists(path) else glob.glob(path):
            below = sorted(Path(each).rglob("*")) if os.path.isdir(each) else [Path(each)]
            for file in below:
                if file.is_file() and not file.name.startswith(("_", ".")):
                    yield str(file), file.stat().st_size


def _counted(branch: Branch, files: list[tuple[str, int]], settings: Settings) -> tuple[list[tuple[Any, int]], int]:
    """Returns the most common keys of the samples with their counts, and the number of rows of the samples."""
    assert isinstance(branch.origin, Read)
    spec = Spec([Source(None, branch.origin.format, branch.steps)], None, "key_counts", of_pairs=True)
    with tempfile.TemporaryDirectory(prefix="sailfish-look-") as directory:
        Path(directory, SPEC_FILE).write_bytes(dump(spec, settings.modules))
        write_modules(Path(directory), settings.modules)
        for file in settings.files:
            Path(directory, os.path.basename(file)).symlink_to(os.path.abspath(file))
        job = {"version": JOB_VERSION, "role": "map", "input": {"lines": {"terminator": 10}}, "record_bytes_max": 0}
        job.update(env={}, work_dir=directory)
        frames = [_frame(JOB, json.dumps(job).encode())]
        for path, offset, data in _stretches(files, branch.origin.format.name == "parquet"):
            name = path.encode(errors="replace")
            frames.append(_frame(RECORDS, struct.pack("<QII", offset, 0, len(name)) + name + data))
        frames.append(_frame(END, b""))
        here = str(Path(__file__).parent.parent)
        paths = os.pathsep.join([here, *(os.path.abspath(entry or ".") for entry in sys.path)])
        ran = subprocess.run(
            [sys.executable, "-m", f"{__package__}._worker"],
            input=b"".join(frames),
            capture_output=True,
            timeout=_SECONDS_MAX,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0", **(settings.env or {})},
            check=True,
        )
        counted: tuple[list[tuple[Any, int]], int] = pickle.loads(_output(ran.stdout))
        return counted


def _frame(kind: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), kind) + payload


def _output(data: bytes) -> bytes:
    """Returns the bytes of the output part that a worker wrote."""
    pieces = []
    while data:
        length, kind = _HEAD.unpack_from(data)
        if kind == OUTPUT:
            pieces.append(data[_HEAD.size + 8 : _HEAD.size + length])
        data = data[_HEAD.size + length :]
    return b"".join(pieces)


def _stretches(files: Iterable[tuple[str, int]], are_parquet: bool) -> Iterator[tuple[str, int, bytes]]:
    """Yields the path, offset and whole lines of each sample. The samples are evenly spaced over all files. The sample of a gzip file is
    its beginning; the lines of a Parquet file name row groups."""
    known = list(files)
    total = sum(size for _, size in known)
    wanted = [total * number // _STRETCHES for number in range(_STRETCHES)]
    begin = 0
    for path, size in known:
        inside = [place - begin for place in wanted if begin <= place < begin + size]
        begin += size
        if not inside:
            continue
        if are_parquet:
            yield path, 0, _first_rows(path, inside)
            continue
        if path.endswith(".gz"):
            with gzip.open(path, "rb") as unpacked:
                yield path, 0, _whole_lines(unpacked.read(_STRETCH_BYTES * len(inside)))
            continue
        with open(path, "rb") as file:
            for offset in inside:
                file.seek(offset)
                skipped = len(file.readline(_STRETCH_BYTES)) if offset else 0
                yield path, offset + skipped, _whole_lines(file.read(_STRETCH_BYTES))


def _first_rows(path: str, places: Iterable[int]) -> bytes:
    """Returns lines of JSON that name the first rows of the row groups at the given offsets."""
    begins = row_groups(path)
    counts = Counter(max((begin for begin in begins if begin <= place), default=begins[0]) for place in places) if begins else {}
    stretches = ({"path": path, "offset": begin, "length": 1, "rows": _STRETCH_ROWS * count} for begin, count in counts.items())
    return "".join(f"{json.dumps(stretch)}\n" for stretch in stretches).encode()


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]
