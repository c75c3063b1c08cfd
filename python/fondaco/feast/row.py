"""The value of a key: the features of one entity in one feature view.

The key is the entity key as Feast serialises it. The value is::

    0      1              9          13
    +------+--------------+----------+---------------------------+
    | form | event time   | schema   | values                    |
    | 1    | i64, LE,     | 4 bytes  | feast.types.RepeatedValue |
    |      | microseconds |          | (protobuf)                |
    +------+--------------+----------+---------------------------+

One message has all values, in the order of the schema: it is parsed once, where a message for each feature costs a call
each. The names are not in the row. ``schema`` is a digest of them, and the store has one more record for each schema,
under a key that no entity has, with the names. So rows that were written before a view changed stay readable: a feature
is found by its name, whatever its place was.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone

from feast.protos.feast.types.Value_pb2 import RepeatedValue
from feast.protos.feast.types.Value_pb2 import Value as ValueProto

FORM = 1
_HEADER = struct.Struct("<Bq4s")
# Where the digest of the schema is.
DIGEST = slice(9, 13)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)

# An entity key begins with its number of join keys, as four bytes: this would be 1.7 billion of them.
_SCHEMA_KEY = b"sche"

Names = tuple[str, ...]
Features = dict[str, ValueProto]


def micros_of(moment: datetime) -> int:
    """The time in microseconds since 1970. Feast says that a time without a zone is in UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // _MICROSECOND


def time_of(micros: int) -> datetime:
    """The inverse of `micros_of`."""
    return _EPOCH + timedelta(microseconds=micros)


def digest_of(names: Names) -> bytes:
    """The schema's digest: equal names in the same order have the same."""
    return hashlib.blake2b(schema_of(names), digest_size=4).digest()


def schema_key(digest: bytes) -> bytes:
    """The key of the record with the names of a schema."""
    return _SCHEMA_KEY + digest


def schema_of(names: Names) -> bytes:
    """The value of that record."""
    return json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode()


def names_of(schema: bytes) -> Names:
    """The inverse of `schema_of`."""
    return tuple(json.loads(schema))


def encode(values: Mapping[str, ValueProto], event_micros: int, digest: bytes) -> bytes:
    """The row of these features, whose names have this digest."""
    message = RepeatedValue(val=values.values())
    values_bytes: bytes = message.SerializeToString()
    return _HEADER.pack(FORM, event_micros, digest) + values_bytes


def header_of(row: bytes) -> tuple[int, bytes]:
    """The event time in microseconds, and the digest of the schema."""
    if len(row) < _HEADER.size or row[0] != FORM:
        raise ValueError(
            f"a row of a feature view begins with {FORM} and has {_HEADER.size} bytes or more, not {row[:16]!r}: "
            "another program wrote to the store"
        )
    _, micros, digest = _HEADER.unpack_from(row)
    return micros, digest


def features_of(row: bytes, names: Names, wanted: Sequence[str] | None) -> Features:
    """The features of a row by name: all, or those that are wanted. All of these are among the names."""
    features = dict(zip(names, RepeatedValue.FromString(row[_HEADER.size :]).val, strict=True))
    return features if wanted is None else {name: features[name] for name in wanted}
