"""A client of fondaco, a store of derived data, and a reader of its versions without a server.

>>> import fondaco
>>> client = fondaco.connect("127.0.0.1:6500")
>>> "cities" in [store["name"] for store in client.stores()]
True
>>> cities = client.store("cities")
>>> cities.row("1")
{'city': 'Pisa', 'population': 90036}
>>> client.close()
"""

import sys

if sys.version_info < (3, 10):
    raise ImportError(
        "fondaco needs Python 3.10 or later, and this is Python %d.%d: use a newer interpreter"
        % sys.version_info[:2]
    )

from . import aio, errors
from ._native import Batch, Scan, Schema, Table, Values
from .client import Client, connect
from .embedded import Reader, Status, StreamProgress, export, open, scan
from .errors import (
    AlreadyExists,
    BadInput,
    Cancelled,
    Conflict,
    ConnectionError,
    Corrupt,
    FondacoError,
    Forked,
    NoQuorum,
    NoStore,
    NotFound,
    NoVersion,
    Overloaded,
    PushFailed,
    ReadOnly,
    Refused,
    Timeout,
    WrongType,
)
from .graph import QueryResult
from .options import ReadOptions
from .store import Store

__all__ = [
    "AlreadyExists",
    "BadInput",
    "Batch",
    "Cancelled",
    "Client",
    "Conflict",
    "ConnectionError",
    "Corrupt",
    "FondacoError",
    "Forked",
    "NoQuorum",
    "NoStore",
    "NoVersion",
    "NotFound",
    "Overloaded",
    "PushFailed",
    "QueryResult",
    "ReadOnly",
    "ReadOptions",
    "Reader",
    "Refused",
    "Scan",
    "Schema",
    "Status",
    "Store",
    "StreamProgress",
    "Table",
    "Timeout",
    "Values",
    "WrongType",
    "aio",
    "connect",
    "errors",
    "export",
    "open",
    "scan",
]
