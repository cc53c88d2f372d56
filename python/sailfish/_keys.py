"""Order-preserving encoding of keys: comparing the bytes of two keys gives the order of Python.

A key is ``None``, a number (``bool``, ``int`` of any size, ``float``), ``str``, ``bytes``, ``date``, ``datetime``, or a tuple of these.
Keys that are equal in Python have the same bytes: ``True``, ``1`` and ``1.0`` are one key, so are ``0.0`` and ``-0.0``, and two aware
datetimes of the same instant. NaN is one key and sorts after all other numbers. The bytes do not tell equal keys apart; `encode` returns
whether the bytes decode to the identical key.

A tag for its type precedes each key. Inside a tuple a key also marks its end: zeros are escaped in a way that preserves the order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from itertools import chain
from operator import itemgetter
from typing import Any

NONE = 0x08
NUMBER = 0x10
STR = 0x20
BYTES = 0x28
DATE = 0x30
DATETIME = 0x38
AWARE = 0x40
TUPLE = 0x50

_STR = bytes([STR])
_BYTES = bytes([BYTES])
#: The bytes before, between and after the texts of a tuple, for texts without zeros.
_AROUND_TEXTS = (chr(TUPLE) + chr(STR), "\0\0" + chr(STR), "\0\0\0")
# A number begins with its class. The class of a positive number is the byte length of its integer part; the class of a negative number is
# the bitwise complement, so that longer numbers sort first.
_MINUS_INFINITY = 0x00
_ZERO = 0x80
_LONG = 0x71
_INFINITY = 0xFE
_NAN = 0xFF
_WHOLE = b"\x00"
_FRACTION = b"\x01"
_INVERTED = bytes(255 - byte for byte in range(256))
_EPOCH = datetime(1, 1, 1)
_EPOCH_UTC = datetime(1, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class KeyTypeError(TypeError):
    """Error of a key whose type is not supported."""


def encode(key: Any) -> tuple[bytes, bool]:
    """Returns the bytes of a key, and whether `decode` returns an identical key. Error: `KeyTypeError`."""
    kind = type(key)
    if kind is str:
        return _STR + _utf8(key), True
    if kind is int:
        return _int(key), True
    if kind is bytes:
        return _BYTES + key, True
    return _other(key, inside=False)


def encode_inside(key: Any) -> tuple[bytes, bool]:
    """Encodes a key in the form that it has inside a tuple. No key is a prefix of another in this form, so other bytes may follow. Returns
    the same as `encode`. Error: `KeyTypeError`."""
    if type(key) is str:
        return _STR + _escaped(_utf8(key)), True
    return _other(key, inside=True)


def encode_column(keys: Sequence[Any], inside: bool) -> tuple[list[bytes], list[int]]:
    """Returns the bytes of each key, in the form inside a tuple if `inside`, and the indexes of the keys that `decode` does not return
    identically. A few calls encode a column of texts, or of tuples of texts. Error: `KeyTypeError`."""
    kinds = set(map(type, keys))
    if kinds == {str}:
        text = "".join(keys)
        if text.isascii() and not (inside and "\0" in text):
            end = b"\x00\x00" if inside else b""
            return [_STR + data + end for data in map(str.encode, keys)], []
    elif kinds == {tuple} and all(keys) and set(map(type, chain.from_iterable(keys))) == {str}:
        # Tags are ASCII.
        before, between, behind = _AROUND_TEXTS
        texts = [before + between.join(key) + behind for key in keys]
        ends = 2 * sum(map(len, keys)) + len(keys)
        if "".join(texts).count("\0") == ends:
            try:
                return list(map(str.encode, texts)), []
            except UnicodeEncodeError:
                pass
    encoded = list(map(encode_inside if inside else encode, keys))
    inexact = [] if all(map(itemgetter(1), encoded)) else [place for place, (_, is_exact) in enumerate(encoded) if not is_exact]
    return list(map(itemgetter(0), encoded)), inexact


def decode_inside(data: bytes) -> Any:
    """Returns the key at the beginning of `data`, which is in the form inside a tuple."""
    return _decode_at(data, 0)[0]


def inverted(data: bytes) -> bytes:
    """Returns bytes that sort in the reverse order. No compared key may be a prefix of another."""
    return data.translate(_INVERTED)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _other(key: Any, inside: bool) -> tuple[bytes, bool]:
    kind = type(key)
    if key is None:
        return bytes([NONE]), True
    if isinstance(key, str):
        # `str.__str__` returns the text itself for a member of an enumeration, too.
        data = _utf8(str.__str__(key))
        return _STR + (_escaped(data) if inside else data), kind is str
    if isinstance(key, int):
        return _int(int(key)), kind is int
    if isinstance(key, float):
        return _float(float(key)), kind is float and not key.is_integer()
    if isinstance(key, bytes):
        return _BYTES + (_escaped(bytes(key)) if inside else bytes(key)), kind is bytes
    if isinstance(key, datetime):
        return _datetime(key, kind)
    if isinstance(key, date):
        return bytes([DATE]) + key.toordinal().to_bytes(4, "big"), kind is date
    if isinstance(key, tuple):
        parts = [bytes([TUPLE])]
        exact = kind is tuple
        for each in key:
            if type(each) is str:
                parts.append(_STR + _escaped(_utf8(each)))
            elif type(each) is int:
                parts.append(_int(each))
            else:
                part, is_exact = _other(each, inside=True)
                parts.append(part)
                exact = exact and is_exact
        parts.append(b"\x00")
        return b"".join(parts), exact
    raise KeyTypeError(
        f"{key!r:.200} is a {kind.__module__}.{kind.__qualname__}, which cannot be a key: use None, bool, int, float, str, bytes, "
        "date, datetime or a tuple of these"
    )


def _escaped(data: bytes) -> bytes:
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _int(number: int) -> bytes:
    if 256 <= number < 65536:
        return b"\x10\x82" + number.to_bytes(2, "big") + _WHOLE
    return _magnitude(abs(number), _WHOLE, number < 0)


def _float(number: float) -> bytes:
    if number.is_integer():
        return _int(int(number))
    if math.isnan(number):
        return bytes([NUMBER, _NAN])
    if math.isinf(number):
        return bytes([NUMBER, _INFINITY if number > 0 else _MINUS_INFINITY])
    size = abs(number)
    whole = int(size)
    # The subtraction is exact: the fraction has no bits that the number lacks. The bits of positive floats sort like the floats.
    return _magnitude(whole, _FRACTION + struct.pack(">d", size - whole), number < 0)


def _magnitude(whole: int, rest: bytes, is_negative: bool) -> bytes:
    length = (whole.bit_length() + 7) // 8
    if length < _LONG:
        head = bytes([_ZERO + length])
    else:
        head = bytes([_ZERO + _LONG]) + length.to_bytes(4, "big")
    data = head + whole.to_bytes(length, "big") + rest
    return b"\x10" + (data.translate(_INVERTED) if is_negative else data)


def _datetime(key: datetime, kind: type) -> tuple[bytes, bool]:
    if kind is not datetime and getattr(key, "nanosecond", None):
        raise KeyTypeError(f"{key!r:.200} has nanoseconds, but keys have a precision of microseconds: floor it to microseconds")
    if key.utcoffset() is None:
        since, tag = key.replace(tzinfo=None) - _EPOCH, DATETIME
        exact = kind is datetime and key.tzinfo is None and key.fold == 0
    else:
        since, tag = key - _EPOCH_UTC, AWARE
        exact = kind is datetime and key.tzinfo is timezone.utc and key.fold == 0
    # An aware datetime may lie up to a day before the minimum or after the maximum in UTC, so the number is shifted to be positive.
    microseconds = since // _MICROSECOND + (1 << 62)
    return bytes([tag]) + microseconds.to_bytes(8, "big"), exact


def decode(data: bytes) -> Any:
    """Returns the key of the bytes: an ``int`` for each whole number, UTC for aware datetimes, a plain tuple for named tuples."""
    tag = data[0]
    if tag == STR:
        return _text(data[1:])
    if tag == BYTES:
        return data[1:]
    key, end = _decode_at(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} unexpected bytes follow the key")
    return key


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogatepass")


def _decode_at(data: bytes, at: int) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    if tag == NUMBER:
        return _number(data, at)
    if tag in (STR, BYTES):
        # Every zero of the content is followed by 255, so two zeros are the end.
        end = data.index(b"\x00\x00", at)
        content = data[at:end].replace(b"\x00\xff", b"\x00")
        return (_text(content) if tag == STR else content), end + 2
    if tag == NONE:
        return None, at
    if tag == DATE:
        return date.fromordinal(int.from_bytes(data[at : at + 4], "big")), at + 4
    if tag in (DATETIME, AWARE):
        since = timedelta(microseconds=int.from_bytes(data[at : at + 8], "big") - (1 << 62))
        if tag == DATETIME:
            return _EPOCH + since, at + 8
        return _aware(since), at + 8
    if tag == TUPLE:
        items = []
        while data[at]:
            item, at = _decode_at(data, at)
            items.append(item)
        return tuple(items), at + 1
    raise ValueError(f"the key has the unknown tag {tag:#x}")


def _aware(since: timedelta) -> Any:
    try:
        return _EPOCH_UTC + since
    except OverflowError:
        # The datetime is out of range in UTC, but was in range in its own time zone. The value carries the original key.
        return None


def _number(data: bytes, at: int) -> tuple[Any, int]:
    head = data[at]
    if head == _NAN:
        return math.nan, at + 1
    if head == _INFINITY:
        return math.inf, at + 1
    if head == _MINUS_INFINITY:
        return -math.inf, at + 1
    is_negative = head < _ZERO
    if is_negative:
        # The length takes at most 4 bytes after the head.
        start = data[at : at + 5].translate(_INVERTED)
    else:
        start = data[at : at + 5]
    length, at = start[0] - _ZERO, at + 1
    if length == _LONG:
        length, at = int.from_bytes(start[1:5], "big"), at + 4
    rest = data[at : at + length + 9]
    if is_negative:
        rest = rest.translate(_INVERTED)
    whole = int.from_bytes(rest[:length], "big")
    at += length + 1
    if rest[length] == _WHOLE[0]:
        return (-whole if is_negative else whole), at
    (fraction,) = struct.unpack(">d", rest[length + 1 : length + 9])
    size = whole + fraction
    return (-size if is_negative else size), at + 8
