"""Values as bytes. Eight bytes are an ``int``; all other values begin with a tag."""

from __future__ import annotations

import marshal
import pickle
import struct
from collections.abc import Callable, Sequence
from itertools import chain, pairwise, repeat
from operator import itemgetter
from typing import Any, NamedTuple

_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

#: Types that `marshal` gives back as they were. It takes more types, but turns any object with a buffer into bytes.
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
#: The version of `marshal` in which equal values have equal bytes, however often their parts are referred to.
_MARSHAL_VERSION = 2

# A value that would have eight bytes gets another tag and a byte more.
_STR, _STR_PADDED = b"s", b"S"
_BYTES, _BYTES_PADDED = b"b", b"B"
#: Tags of pickles, and of tuples by `marshal`: their own first byte, or another tag where they have eight bytes.
_PICKLE, _PICKLE_PADDED = b"\x80", b"P"
_TUPLE, _TUPLE_PADDED = b"(", b"M"
#: Tags of several values of a key, by `marshal`. A single value that is a list is pickled, so its tag differs.
_SEVERAL, _SEVERAL_PADDED = b"[", b"L"
_OF_SEVERAL = frozenset(_SEVERAL + _SEVERAL_PADDED)
_FLOAT_TAG = b"f"
_NONE = b"n"
_TRUE, _FALSE = b"t", b"u"
#: The tag of a value that brings its key, because the bytes of the key do not give the key back as it was.
_WITH_KEY = b"k"


def encode(value: Any) -> bytes:
    """Returns the bytes of a value."""
    kind = type(value)
    if kind is int and _INT_MIN <= value <= _INT_MAX:
        return _INT.pack(value)
    if kind is str:
        try:
            return _tagged(_STR, _STR_PADDED, value.encode())
        except UnicodeEncodeError:
            pass
    elif kind is float:
        return _FLOAT_TAG + _FLOAT.pack(value)
    elif kind is bytes:
        return _tagged(_BYTES, _BYTES_PADDED, value)
    elif value is None:
        return _NONE
    elif value is True:
        return _TRUE
    elif value is False:
        return _FALSE
    return _padded(_PICKLE_PADDED, [pickled(value)])[0]


def encode_column(values: Sequence[Any]) -> list[bytes]:
    """Returns the bytes of each value. Where all are of one kind, a few calls encode all of them."""
    kinds = set(map(type, values))
    if kinds == {str}:
        try:
            return [_STR + data if len(data) != 7 else _STR_PADDED + b"\x00" + data for data in map(str.encode, values)]
        except UnicodeEncodeError:
            pass
    elif kinds == {int}:
        try:
            return list(map(_INT.pack, values))
        except struct.error:
            pass
    elif kinds == {tuple}:
        # Half the time that pickling takes.
        if are_plain(values):
            return _padded(_TUPLE_PADDED, list(map(marshal.dumps, values, repeat(_MARSHAL_VERSION))))
        try:
            return _padded(_PICKLE_PADDED, [pickle.dumps(value, pickle.HIGHEST_PROTOCOL) for value in values])
        except (pickle.PicklingError, AttributeError, TypeError):
            pass
    return [encode(value) for value in values]


def are_plain(values: Sequence[Any]) -> bool:
    """Returns whether all values are immutable and `marshal` gives them back as they were."""
    kinds = set(map(type, values))
    return kinds <= _PLAIN or (kinds == {tuple} and _PLAIN.issuperset(map(type, chain.from_iterable(values))))


def encode_several(values: list[Any]) -> bytes:
    """Returns bytes that stand for several plain values."""
    data = marshal.dumps(values, _MARSHAL_VERSION)
    return _SEVERAL_PADDED + data if len(data) == 8 else data


def _padded(tag: bytes, encoded: list[bytes]) -> list[bytes]:
    """Returns the same bytes, with a tag before those that would pass for a whole number because they are eight."""
    if 8 in map(len, encoded):
        return [tag + data if len(data) == 8 else data for data in encoded]
    return encoded


class Column(NamedTuple):
    """Decoded values."""

    values: list[Any]
    #: The bytes of each, where they may bring keys; else None.
    raw: list[bytes] | None
    #: The number of values that each piece of bytes gave; None where each gave one.
    counts: list[int] | None = None


def decode_column(payload: bytes, ends: Sequence[int], has_ints: bool) -> Column:
    """Returns the values of a payload. `ends`: the place where the first value begins, and the places where the values end. `has_ints`:
    some values have eight bytes. Where all are of one kind, a few calls decode all of them."""
    starts = ends[:-1]
    tags = set(itemgetter(*starts)(payload)) if len(starts) > 1 else {payload[start] for start in starts}
    tag = next(iter(tags)) if len(tags) == 1 and not has_ints else None
    if tag == _STR[0]:
        return Column([payload[start + 1 : end].decode() for start, end in pairwise(ends)], None)
    raw = [payload[start:end] for start, end in pairwise(ends)]
    if tag == _PICKLE[0]:
        # Not by `map`, for which a `StopIteration` of the user's would be the end.
        loads = pickle.loads
        return Column([loads(data) for data in raw], None)
    if tag == _TUPLE[0]:
        return Column(list(map(marshal.loads, raw)), None)
    # The first byte of a whole number may be any byte, so it may look like one of these tags.
    if _OF_SEVERAL.isdisjoint(tags):
        decoders, whole = _DECODERS, _INT.unpack
        return Column([decoders[data[0]](data) if len(data) != 8 else whole(data)[0] for data in raw], raw)
    if tag == _SEVERAL[0]:
        lists = list(map(marshal.loads, raw))
    else:
        lists = [_DECODERS_OF_SEVERAL[data[0]](data) if len(data) != 8 else list(_INT.unpack(data)) for data in raw]
    return Column(list(chain.from_iterable(lists)), None if tag == _SEVERAL[0] else raw, list(map(len, lists)))


def pickled(value: Any) -> bytes:
    """Pickles a value, also one of a class that only the functions of the job know."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle

        data: bytes = cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        return data


def pickled_items(items: list[Any]) -> bytes:
    """Pickles items for another stage, which does not know the classes of the user's script: these go with the items."""
    data = pickled(items)
    if b"__main__" not in data:
        return data
    import cloudpickle

    with_classes: bytes = cloudpickle.dumps(items, pickle.HIGHEST_PROTOCOL)
    return with_classes


def encode_with_key(key: Any, value: Any) -> bytes:
    """Returns the bytes of a value with its key, for a key whose own bytes do not give it back."""
    data = pickled(key)
    # More than eight bytes.
    return _WITH_KEY + len(data).to_bytes(4, "little") + data + encode(value)


def _tagged(tag: bytes, padded: bytes, data: bytes) -> bytes:
    return padded + b"\x00" + data if len(data) == 7 else tag + data


def decode(data: bytes) -> Any:
    """Returns the value of some bytes."""
    return _INT.unpack(data)[0] if len(data) == 8 else _DECODERS[data[0]](data)


def _no_value(data: bytes) -> Any:
    raise ValueError(f"a value has the tag {data[:1]!r}, which is none")


#: Functions that decode values, by the tag.
_DECODERS: list[Callable[[bytes], Any]] = [_no_value] * 256
for _tag, _decoder in (
    (_STR, lambda data: data[1:].decode()),
    (_STR_PADDED, lambda data: data[2:].decode()),
    (_BYTES, lambda data: data[1:]),
    (_BYTES_PADDED, lambda data: data[2:]),
    (_FLOAT_TAG, lambda data: _FLOAT.unpack_from(data, 1)[0]),
    (_NONE, lambda data: None),
    (_TRUE, lambda data: True),
    (_FALSE, lambda data: False),
    (_PICKLE, pickle.loads),
    (_PICKLE_PADDED, lambda data: pickle.loads(memoryview(data)[1:])),
    (_TUPLE, marshal.loads),
    (_TUPLE_PADDED, lambda data: marshal.loads(data[1:])),
    (_WITH_KEY, lambda data: decode(data[_value_at(data) :])),
):
    _DECODERS[_tag[0]] = _decoder
#: Functions that decode bytes which may stand for several values, by the tag.
_DECODERS_OF_SEVERAL: list[Callable[[bytes], list[Any]]] = [lambda data: [_DECODERS[data[0]](data)]] * 256
_DECODERS_OF_SEVERAL[_SEVERAL[0]] = marshal.loads
_DECODERS_OF_SEVERAL[_SEVERAL_PADDED[0]] = lambda data: marshal.loads(data[1:])


def key_of(data: bytes) -> tuple[bool, Any]:
    """Returns whether a value brings its key as it was, and this key."""
    if len(data) == 8 or data[:1] != _WITH_KEY:
        return False, None
    return True, pickle.loads(memoryview(data)[_PICKLED_AT : _value_at(data)])


#: The offset of the pickled key, behind the tag and the length.
_PICKLED_AT = 5


def _value_at(data: bytes) -> int:
    return _PICKLED_AT + int.from_bytes(data[1:_PICKLED_AT], "little")
