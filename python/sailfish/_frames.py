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
#: The head of a frame with records: offset, number of the input, length of the name.
_RECORDS_HEAD = struct.Struct("<QII")
JOB, RECORDS, GROUPS, END = b"JRGE"
PAIRS, TAILED_PAIRS, OUTPUT, FAILURE = b"PTOX"
#: The payload of an end behind which the worker waits for another task.
WAITS = b"\1"
#: The version of the frames, which the frame with the job tells.
JOB_VERSION = 2
#: The most bytes in one read from the pipe.
_READ_BYTES = 1 << 18
#: The most bytes of a part in one frame.
_OUTPUT_BYTES_MAX = 1 << 20

#: Limits of a failure message: lines of the traceback, characters of a line, characters of the message.
_LINES_MAX, _LINE_CHARACTERS_MAX, _MESSAGE_CHARACTERS_MAX = 100, 1000, 4000

assert array("I").itemsize == 4, "lengths are arrays of 32-bit numbers"


class CutOff(Exception):
    """Error of a worker whose engine has gone: nobody wants the rest of the task."""


def lengths(numbers: Iterable[int]) -> bytes:
    """Returns lengths as the bytes of frames."""
    return _little(array("I", numbers)).tobytes()


def _told(text: str, characters_max: int) -> str:
    """Returns a text of limited length that any reader of JSON takes."""
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
        """Returns the next frame; None where the engine has no more."""
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
        """Writes a whole frame."""
        payload = b"".join(pieces)
        data = memoryview(_HEAD.pack(len(payload), kind) + payload)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def pairs(self, count: int, *columns: bytes) -> None:
        """Puts out pairs: the lengths of all keys, the lengths of all values, the keys, the values."""
        self.write(PAIRS, count.to_bytes(4, "little"), *columns)

    def tailed_pairs(self, count: int, *columns: bytes) -> None:
        """Puts out pairs as `pairs` does, with a column behind the lengths of the values: how many first bytes of each key decide where it
        goes."""
        self.write(TAILED_PAIRS, count.to_bytes(4, "little"), *columns)

    def output(self, records: int, data: bytes) -> None:
        """Puts out bytes of the part; `records` is the number of records that end in them."""
        # The records end with the last of the frames: only the sum of all matters.
        view = memoryview(data)
        while len(view) > _OUTPUT_BYTES_MAX:
            self.write(OUTPUT, bytes(8), view[:_OUTPUT_BYTES_MAX])
            view = view[_OUTPUT_BYTES_MAX:]
        self.write(OUTPUT, records.to_bytes(8, "little"), view)

    def failure(self, message: str, traceback: list[str], is_of_data: bool) -> None:
        """Tells the engine why this worker cannot go on."""
        self.write(FAILURE, _reason(message, traceback, is_of_data))


def failure_frame(message: str, traceback: list[str], is_of_data: bool) -> bytes:
    """Returns a whole frame that says why a worker cannot go on."""
    payload = _reason(message, traceback, is_of_data)
    return _HEAD.pack(len(payload), FAILURE) + payload


def _reason(message: str, traceback: list[str], is_of_data: bool) -> bytes:
    lines = [_told(line, _LINE_CHARACTERS_MAX) for line in traceback[-_LINES_MAX:]]
    return json.dumps({"message": _told(message, _MESSAGE_CHARACTERS_MAX), "traceback": lines, "is_of_data": is_of_data}).encode()


def records_of(payload: bytes) -> tuple[int, str, int, bytes]:
    """Returns the number of the input, its name, the offset in it, and the records of a frame with records."""
    offset, which, length = _RECORDS_HEAD.unpack_from(payload)
    at = _RECORDS_HEAD.size
    return which, payload[at : at + length].decode(errors="replace"), offset, payload[at + length :]


class Groups:
    """A frame of sorted pairs in groups."""

    def __init__(self, payload: bytes) -> None:
        groups, values = (int.from_bytes(payload[at : at + 4], "little") for at in (0, 4))
        #: The first group goes on from the frame before.
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
        #: The bytes of the first value of each group, where they may bring the key.
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
    """Yields the frames up to the end."""
    while True:
        kind, payload = source.next()
        if kind == END:
            return
        yield kind, payload
