"""Frames that a worker and the engine exchange: ``docs/formats/program-frames.md``."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise, repeat
from typing import Any

from . import _values

_HEAD = struct.Struct("<IB3x")
#: The header of a frame with records: offset, number of the input, length of the name.
_RECORDS_HEAD = struct.Struct("<QII")
JOB, RECORDS, GROUPS, END = b"JRGE"
PAIRS, TAILED_PAIRS, OUTPUT, FAILURE = b"PTOX"
#: The payload of an end frame that says: the worker waits for another task.
WAITS = b"\1"
#: The version of the frames. The job frame carries it.
JOB_VERSION = 2
#: The most bytes in one read from the pipe.
_READ_BYTES = 1 << 18
#: The most bytes of output in one frame.
_OUTPUT_BYTES_MAX = 1 << 20

#: Limits of a failure message: lines of the traceback, characters of a line, characters of the message.
_LINES_MAX, _LINE_CHARACTERS_MAX, _MESSAGE_CHARACTERS_MAX = 100, 1000, 4000

assert array("I").itemsize == 4, "lengths must be arrays of 32-bit numbers"


class CutOff(Exception):
    """Error of a worker whose input ended before the end of the task, because the engine abandoned the task or died."""


def lengths(numbers: Iterable[int]) -> bytes:
    """Returns lengths in the byte format of frames: 32 bits each, little-endian."""
    return _little(array("I", numbers)).tobytes()


def _told(text: str, characters_max: int) -> str:
    """Returns a text of at most `characters_max` characters, before escapes, that every JSON parser accepts."""
    if len(text) > characters_max:
        text = text[: characters_max - 1] + "…"
    return text.encode("utf-8", "backslashreplace").decode()


def _numbers(data: bytes) -> array[int]:
    read = array("I")
    read.frombytes(data)
    return _little(read)


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class Input:
    """The frames that the engine sends."""

    def __init__(self, descriptor: int) -> None:
        self._file = io.BufferedReader(io.FileIO(descriptor), _READ_BYTES)

    def next_or_end(self) -> tuple[int, bytes] | None:
        """Returns the next frame; None at the end of the input. Error: `CutOff`."""
        return self.next() if self._file.peek(1) else None

    def next(self) -> tuple[int, bytes]:
        """Returns the kind and the payload of the next frame. Error: `CutOff`."""
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise CutOff
        length, kind = _HEAD.unpack(head)
        payload = self._file.read(length)
        if len(payload) < length:
            raise CutOff
        return kind, payload


class Output:
    """The frames that this worker sends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, kind: int, *pieces: bytes | memoryview) -> None:
        """Writes a frame."""
        payload = b"".join(pieces)
        data = memoryview(_HEAD.pack(len(payload), kind) + payload)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def pairs(self, count: int, *columns: bytes) -> None:
        """Writes pairs as columns: the lengths of all keys, the lengths of all values, the keys, the values."""
        self.write(PAIRS, count.to_bytes(4, "little"), *columns)

    def tailed_pairs(self, count: int, *columns: bytes) -> None:
        """Writes pairs as `pairs` does, with one more column after the lengths of the values: the length of the prefix of each key that
        decides its partition, in bytes."""
        self.write(TAILED_PAIRS, count.to_bytes(4, "little"), *columns)

    def output(self, records: int, data: bytes) -> None:
        """Writes bytes of the output part. `records` is the number of records that end in these bytes."""
        # Only the sum of the counts matters, so the last frame carries the whole count.
        view = memoryview(data)
        while len(view) > _OUTPUT_BYTES_MAX:
            self.write(OUTPUT, bytes(8), view[:_OUTPUT_BYTES_MAX])
            view = view[_OUTPUT_BYTES_MAX:]
        self.write(OUTPUT, records.to_bytes(8, "little"), view)

    def failure(self, message: str, traceback: list[str], is_of_data: bool) -> None:
        """Reports to the engine why the task failed."""
        self.write(FAILURE, _reason(message, traceback, is_of_data))


def failure_frame(message: str, traceback: list[str], is_of_data: bool) -> bytes:
    """Returns a frame that reports why a task failed."""
    payload = _reason(message, traceback, is_of_data)
    return _HEAD.pack(len(payload), FAILURE) + payload


def _reason(message: str, traceback: list[str], is_of_data: bool) -> bytes:
    lines = [_told(line, _LINE_CHARACTERS_MAX) for line in traceback[-_LINES_MAX:]]
    return json.dumps({"message": _told(message, _MESSAGE_CHARACTERS_MAX), "traceback": lines, "is_of_data": is_of_data}).encode()


def records_of(payload: bytes) -> tuple[int, str, int, bytes]:
    """Returns the number of the input, its name, the offset in the input, and the records of a frame."""
    offset, which, length = _RECORDS_HEAD.unpack_from(payload)
    at = _RECORDS_HEAD.size
    return which, payload[at : at + length].decode(errors="replace"), offset, payload[at + length :]


class Groups:
    """A frame of sorted pairs, grouped by key."""

    def __init__(self, payload: bytes) -> None:
        groups, values = (int.from_bytes(payload[at : at + 4], "little") for at in (0, 4))
        #: Whether the first group continues the last group of the previous frame.
        self.goes_on = payload[8] != 0
        at = 12
        columns = []
        for count in (groups, groups, values):
            columns.append(_numbers(payload[at : at + 4 * count]))
            at += 4 * count
        key_lengths, counts, value_lengths = columns
        key_ends = list(accumulate(key_lengths, initial=at))
        self.keys = [payload[start:end] for start, end in pairwise(key_ends)]
        at = key_ends[-1]
        #: The index of the first value of each group, and the number of all values at the end.
        self._starts = list(accumulate(counts, initial=0))
        #: The bytes of the first value of each group, if they may carry the key.
        self._firsts: list[bytes] | None = None
        if value_lengths and min(value_lengths) == max(value_lengths) == 8:
            whole = array("q", payload[at:])
            if sys.byteorder == "big":
                whole.byteswap()
            self._values: list[Any] = whole.tolist()
            return
        ends = list(accumulate(value_lengths, initial=at))
        self._values, raw, made = _values.decode_column(payload, ends, 8 in value_lengths)
        if raw is not None:
            self._firsts = [raw[start] for start in self._starts[:-1]]
        if made is not None:
            places = list(accumulate(made, initial=0))
            self._starts = [places[start] for start in self._starts]

    def __iter__(self) -> Iterator[tuple[bytes, list[Any], bytes | None]]:
        """Yields the key of each group, its values, and the bytes of the first value."""
        firsts = repeat(None) if self._firsts is None else self._firsts
        for key, (start, end), first in zip(self.keys, pairwise(self._starts), firsts):
            yield key, self._values[start:end], first


def frames_of(source: Input) -> Iterator[tuple[int, bytes]]:
    """Yields the frames of a task, without the end frame."""
    while True:
        kind, payload = source.next()
        if kind == END:
            return
        yield kind, payload
