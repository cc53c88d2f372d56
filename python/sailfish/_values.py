"""Encoding of values. A value of eight bytes is an ``int``; all other values begin with a tag."""

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

#: Types that `marshal` preserves. It accepts more types, but turns every object with a buffer into bytes.
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
#: The version of `marshal` in which equal values have equal bytes, independent of reference counts.
_MARSHAL_VERSION = 2

# If an encoded value would have eight bytes, it gets another tag and one more byte.
_STR, _STR_PADDED = b"s", b"S"
_BYTES, _BYTES_PADDED = b"b", b"B"
#: Tags of pickles, and of tuples encoded by `marshal`: their own first byte, or another tag if they have eight bytes.
_PICKLE, _PICKLE_PADDED = b"\x80", b"P"
_TUPLE, _TUPLE_PADDED = b"(", b"M"
#: Tags of several packed values of a key, encoded by `marshal`. A single value that is a list is pickled, so it has another tag.
_SEVERAL, _SEVERAL_PADDED = b"[", b"L"
_OF_SEVERAL = frozenset(_SEVERAL + _SEVERAL_PADDED)
_FLOAT_TAG = b"f"
_NONE = b"n"
_TRUE, _FALSE = b"t", b"u"
#: The tag of a value that carries its key, because the bytes of the key do not decode to the identical key.
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
    """Returns the bytes of each value. A few calls encode a column of one type."""
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
        # `marshal` takes half the time of `pickle`.
        if are_plain(values):
            return _padded(_TUPLE_PADDED, list(map(marshal.dumps, values, repeat(_MARSHAL_VERSION))))
        try:
            return _padded(_PICKLE_PADDED, [pickle.dumps(value, pickle.HIGHEST_PROTOCOL) for value in values])
        except (pickle.PicklingError, AttributeError, TypeError):
            pass
    return [encode(value) for value in values]


def are_plain(values: Sequence[Any]) -> bool:
    """Returns whether all values are immutable and preserved by `marshal`."""
    kinds = set(map(type, values))
    return kinds <= _PLAIN or (kinds == {tuple} and _PLAIN.issuperset(map(type, chain.from_iterable(values))))


def encode_several(values: list[Any]) -> bytes:
    """Returns the bytes of several packed values, which must be plain."""
    data = marshal.dumps(values, _MARSHAL_VERSION)
    return _SEVERAL_PADDED + data if len(data) == 8 else data


def _padded(tag: bytes, encoded: list[bytes]) -> list[bytes]:
    """Returns the encoded values, with a tag before each value of eight bytes, which would otherwise decode as a whole number."""
    if 8 in map(len, encoded):
        return [tag + data if len(data) == 8 else data for data in encoded]
    return encoded


class Column(NamedTuple):
    """A column of decoded values."""

    values: list[Any]
    #: The bytes of each value, if the values may carry keys; otherwise None.
    raw: list[bytes] | None
    #: The number of values packed in each encoded value; None if each holds one value.
    counts: list[int] | None = None


def decode_column(payload: bytes, ends: Sequence[int], has_ints: bool) -> Column:
    """Returns the values of a payload. `ends`: the offset of the first value, and the end offsets of all values. `has_ints`: whether some
    values have eight bytes. A few calls decode a column of one type."""
    starts = ends[:-1]
    tags = set(itemgetter(*starts)(payload)) if len(starts) > 1 else {payload[start] for start in starts}
    tag = next(iter(tags)) if len(tags) == 1 and not has_ints else None
    if tag == _STR[0]:
        return Column([payload[start + 1 : end].decode() for start, end in pairwise(ends)], None)
    raw = [payload[start:end] for start, end in pairwise(ends)]
    if tag == _PICKLE[0]:
        # A list comprehension, because `map` would end at a `StopIteration` of the user's class.
        loads = pickle.loads
        return Column([loads(data) for data in raw], None)
    if tag == _TUPLE[0]:
        return Column(list(map(marshal.loads, raw)), None)
    # The first byte of a whole number may be any byte, including these tags.
    if _OF_SEVERAL.isdisjoint(tags):
        decoders, whole = _DECODERS, _INT.unpack
        return Column([decoders[data[0]](data) if len(data) != 8 else whole(data)[0] for data in raw], raw)
    if tag == _SEVERAL[0]:
        lists = list(map(marshal.loads, raw))
    else:
        lists = [_DECODERS_OF_SEVERAL[data[0]](data) if len(data) != 8 else list(_INT.unpack(data)) for data in raw]
    return Column(list(chain.from_iterable(lists)), None if tag == _SEVERAL[0] else raw, list(map(len, lists)))


def pickled(value: Any) -> bytes:
    """Pickles a value. Classes that cannot be imported are pickled by value."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle

        data: bytes = cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        return data


def pickled_items(items: list[Any]) -> bytes:
    """Pickles items for another stage. Classes of the user's script are pickled by value, because the other stage cannot import them."""
    data = pickled(items)
    if b"__main__" not in data:
        return data
    import cloudpickle

    with_classes: bytes = cloudpickle.dumps(items, pickle.HIGHEST_PROTOCOL)
    return with_classes


def encode_with_key(key: Any, value: Any) -> bytes:
    """Returns the bytes of a value that carries its key, for a key that its own bytes do not preserve."""
    data = pickled(key)
    # The result has more than eight bytes, so it needs no padding.
    return _WITH_KEY + len(data).to_bytes(4, "little") + data + encode(value)


def _tagged(tag: bytes, padded: bytes, data: bytes) -> bytes:
    return padded + b"\x00" + data if len(data) == 7 else tag + data


def decode(data: bytes) -> Any:
    """Returns the value of the bytes. Error: `ValueError` for an unknown tag."""
    return _INT.unpack(data)[0] if len(data) == 8 else _DECODERS[data[0]](data)


def _no_value(data: bytes) -> Any:
    raise ValueError(f"the value has the unknown tag {data[:1]!r}")


#: The function that decodes a value, by its tag.
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
#: The function that decodes an encoded value into a list of values, by its tag.
_DECODERS_OF_SEVERAL: list[Callable[[bytes], list[Any]]] = [lambda data: [_DECODERS[data[0]](data)]] * 256
_DECODERS_OF_SEVERAL[_SEVERAL[0]] = marshal.loads
_DECODERS_OF_SEVERAL[_SEVERAL_PADDED[0]] = lambda data: marshal.loads(data[1:])


def key_of(data: bytes) -> tuple[bool, Any]:
    """Returns whether a value carries its key, and the key."""
    if len(data) == 8 or data[:1] != _WITH_KEY:
        return False, None
    return True, pickle.loads(memoryview(data)[_PICKLED_AT : _value_at(data)])


#: The offset of the pickled key, after the tag and the length.
_PICKLED_AT = 5


def _value_at(data: bytes) -> int:
    return _PICKLED_AT + int.from_bytes(data[1:_PICKLED_AT], "little")
