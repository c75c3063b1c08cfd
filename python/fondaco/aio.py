"""The client for asyncio: the same methods, as coroutines.

They are those of :class:`fondaco.Client` and :class:`fondaco.Store`; ``aio.pyi`` has their types. A task that is
cancelled stops its request. A client may be used from any number of event loops.

>>> async def example():
...     async with await fondaco.aio.connect("127.0.0.1:6500") as client:
...         return await client.store("cities").get("1")
>>> asyncio.run(example())
b'{"city":"Pisa","population":90036}'
"""

from __future__ import annotations

import os

from . import client as _blocking
from . import store as _store
from .client import CONNECT_MS, DEADLINE_MS


class Store(_store.Store):
    """A store of a cluster. What blocks in :class:`fondaco.Store` is a future here."""


class Client(_blocking.Client):
    """A client of a cluster. What blocks in :class:`fondaco.Client` is a future here."""

    def store(self, name: str) -> Store:
        return Store(self._native, name)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def connect(
    *seeds: str,
    http: str | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls: bool = False,
    ca: str | os.PathLike[str] | None = None,
    zone: str | None = None,
    deadline_ms: float = DEADLINE_MS,
    connect_ms: float = CONNECT_MS,
) -> Client:
    """Connects to a cluster: see :func:`fondaco.connect`."""
    native = await _blocking._connect(
        seeds, http, user, password, token, tls, ca, zone, deadline_ms, connect_ms, is_async=True
    )
    return Client(native)


__all__ = ["Client", "Store", "connect"]
