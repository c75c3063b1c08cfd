"""The client of a cluster."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any, cast
from urllib.parse import quote

from . import _native
from ._native import Values
from .options import ReadOptions, with_limits
from .store import Key, Keys, Store

#: The time limit of requests, unless they have their own, in milliseconds.
DEADLINE_MS = 1000.0

#: How long ``connect`` waits for the first answer of the cluster, in milliseconds.
CONNECT_MS = 10_000.0


class Client:
    """A client of a cluster, as :func:`connect` makes it. Any number of threads may share it.

    It knows the nodes of each key, asks them directly, and asks other replicas when a node fails or is slow. Calls
    release the interpreter lock while they wait, and a signal, such as Ctrl-C, ends them.
    """

    def __init__(self, native: _native.Client) -> None:
        self._native = native

    def store(self, name: str) -> Store:
        """A store of the cluster, by its name. Nothing is asked for yet.

        >>> client.store("cities").get("1")
        b'{"city":"Pisa","population":90036}'
        """
        return Store(self._native, name)

    def mget(
        self,
        keys: Keys,
        options: ReadOptions | None = None,
        *,
        deadline_ms: float | None = None,
        partial: bool | None = None,
    ) -> Values:
        """The values of keys of several stores, each given as ``store:key``, in one request. The limits are those of
        :meth:`Store.get_many`.

        >>> list(client.mget(["cities:1", "carts:none"]))
        [b'{"city":"Pisa","population":90036}', None]
        """
        options = with_limits(options, deadline_ms, partial)
        return cast(Values, self._native.get_many(None, keys, options))

    def stores(self) -> list[dict[str, Any]]:
        """All stores that the user may read, in the order of their names.

        >>> [store["kind"] for store in client.stores() if store["name"] in ("carts", "cities")]
        ['versioned', 'batch']
        """
        return cast("list[dict[str, Any]]", self._control("GET", "/v1/stores", member="stores"))

    def create_store(self, name: str, kind: str = "batch", **options: Any) -> dict[str, Any]:
        """Creates a store. The options are those of ``POST /v1/stores``, for instance ``replicas``, ``backups``,
        ``value_type``, ``versioned={"reads": 2}`` or ``stream={…}``.

        >>> client.create_store("sessions", kind="versioned", versioned={"ttl_ms": 60_000})["kind"]
        'versioned'
        """
        return cast("dict[str, Any]", self._control("POST", "/v1/stores", {"name": name, "kind": kind, **options}))

    def alter_store(self, name: str, **options: Any) -> dict[str, Any]:
        """Changes options of a store; the others stay.

        >>> client.alter_store("carts", versioned={"ttl_ms": 3_600_000})["versioned"]["ttl_ms"]
        3600000
        """
        return cast("dict[str, Any]", self._control("PATCH", f"/v1/stores/{_part(name)}", options))

    def drop_store(self, name: str, *, now: bool = False) -> None:
        """Drops a store. Nodes keep its data for a day, unless ``now`` is given.

        >>> client.drop_store("sessions", now=True)
        """
        return cast(None, self._control("DELETE", f"/v1/stores/{_part(name)}" + ("?now=true" if now else "")))

    def restore_store(self, name: str) -> dict[str, Any]:
        """Restores a dropped store, as long as its data is kept."""
        return cast("dict[str, Any]", self._control("POST", f"/v1/stores/{_part(name)}/restore", {}))

    def status(self) -> dict[str, Any]:
        """The cluster: its nodes, its stores, and what is wrong.

        >>> client.status()["nodes"][0]["node"]
        1
        """
        return cast("dict[str, Any]", self._control("GET", "/v1/cluster"))

    def why(self, decision: int | None = None, *, last: int = 20, moves: bool = False) -> Any:
        """The last decisions of the cluster about its load, with reasons; or one of them, with its input.

        >>> isinstance(client.why(), list)
        True
        """
        if decision is not None:
            return self._control("GET", f"/v1/decisions/{decision}")
        path = f"/v1/decisions?count={last}&moves={str(moves).lower()}"
        return self._control("GET", path, member="decisions")

    def control(self, method: str, path: str, body: object = None) -> Any:
        """Any other request to the control port, by its path: see docs/http.md.

        >>> client.control("GET", "/v1/stores/cities/versions")["push"] is None
        True
        """
        return self._control(method, path, body)

    def close(self) -> None:
        """Ends the connections. Calls after it fail."""
        self._native.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _control(self, method: str, path: str, body: object = None, member: str | None = None) -> Any:
        return self._native.control(method, path, None if body is None else json.dumps(body), member)


def _part(name: str) -> str:
    return quote(name, safe="")


def _connect(
    seeds: tuple[str, ...],
    http: str | None,
    user: str | None,
    password: str | None,
    token: str | None,
    tls: bool,
    ca: str | os.PathLike[str] | None,
    zone: str | None,
    deadline_ms: float,
    connect_ms: float,
    is_async: bool,
) -> Any:
    if not seeds and http is None:
        seeds = (os.environ.get("FONDACO_RESP", "127.0.0.1:6500"),)
        http = os.environ.get("FONDACO_HTTP")
    return _native.connect(
        list(seeds),
        http=http,
        user=user,
        password=password,
        token=token if token is not None else os.environ.get("FONDACO_TOKEN"),
        tls=tls,
        ca=ca,
        zone=zone,
        deadline_ms=deadline_ms,
        connect_ms=connect_ms,
        is_async=is_async,
    )


def connect(
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
    """Connects to a cluster, by the addresses of the RESP ports of nodes or routers: one that answers is enough.

    ``http`` is the control port, which is asked of the first seed by default; ``token`` is its token. ``ca`` is a PEM
    file of certificates to trust, and turns TLS on. Requests take at most ``deadline_ms`` unless they have a limit of
    their own. Without addresses, those of ``FONDACO_RESP`` and ``FONDACO_HTTP`` are used, or else 127.0.0.1:6500.

    >>> with fondaco.connect("127.0.0.1:6500") as other:
    ...     other.store("cities").get("2") is None
    False
    """
    return Client(
        _connect(seeds, http, user, password, token, tls, ca, zone, deadline_ms, connect_ms, is_async=False)
    )


__all__ = ["Client", "Key", "Keys", "connect"]
