"""The embedded reader: batch and hybrid stores are read within this process, without a server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, cast

from . import _native
from ._native import Scan, Schema, Values
from .errors import BadInput
from .progress import Progress, chosen
from .store import Key, Keys

#: How long ``open(…, follow=True)`` waits for the first version, in milliseconds.
FIRST_VERSION_MS = 60_000.0


class StreamProgress(NamedTuple):
    """How far a reader has read the stream of a hybrid store."""

    #: How old the last event that was applied is, in seconds, if there are more; 0 if it has all.
    lag_seconds: float
    #: How many records are yet to be read, as far as is known.
    lag_records: int | None
    #: How many records it has read since it was opened.
    records_read: int
    #: How many keys have events.
    keys: int
    #: Records that the topic had deleted before they were read: topic partition, first offset, offset after the last.
    lost: list[tuple[int, int, int]]
    #: Why it cannot read on.
    error: str | None


class Status(NamedTuple):
    """The status of a reader that follows a store."""

    #: ``current``, ``fetching``, ``catching up``, ``events lost``, ``retrying``, ``unreachable``, ``no store`` or
    #: ``no version``.
    state: str
    #: The version that it reads.
    version: int | None
    #: The current version of the cluster, as far as it is known.
    target: int | None
    #: Why it has not the current version.
    error: str | None
    #: How far the stream was read; ``None`` for batch stores.
    stream: StreamProgress | None


class Reader:
    """Reads a store within this process. Any number of threads may share it; each call sees one version."""

    def __init__(self, native: _native.Reader) -> None:
        self._native: _native.Reader | None = native

    def _open(self) -> _native.Reader:
        if self._native is None:
            raise BadInput("the reader is closed: open it again", code="CLOSED")
        return self._native

    def get(self, key: Key) -> bytes | None:
        """The value of a key, or ``None``.

        >>> reader.get("1")
        b'{"city":"Pisa","population":90036}'
        """
        return self._open().get(key)

    def get_many(self, keys: Keys) -> Values:
        """The values of many keys, in their order, all of one version.

        >>> reader.get_many(["1", "none"]).rows()
        [{'city': 'Pisa', 'population': 90036}, None]
        """
        return self._open().get_many(keys)

    def row(self, key: Key) -> Any:
        """The row of a key, with the types of the pushed rows.

        >>> reader.row("2")["city"]
        'Lucca'
        """
        return self.get_many([key]).rows()[0]

    def scan(self, *, raw: bool = False) -> Scan:
        """All rows of the present version.

        >>> len(reader.scan().to_arrow())
        2
        """
        return self._open().scan(raw)

    @property
    def schema(self) -> Schema:
        """The columns of the rows.

        >>> reader.schema.column_names
        ['id', 'city', 'population']
        """
        return self._open().schema()

    @property
    def store(self) -> str:
        """The name of the store."""
        return self._open().store

    @property
    def version(self) -> int | None:
        """The number of the present version in the cluster; ``None`` for a directory that was opened by itself."""
        return self._open().version

    def status(self) -> Status:
        """Whether it has the current version of the cluster, and why not."""
        state, version, target, error, stream = self._open().status()
        return Status(state, version, target, error, StreamProgress(*stream) if stream is not None else None)

    def wait_for(self, version: int, *, timeout_ms: float = FIRST_VERSION_MS) -> None:
        """Waits until it reads this version of the cluster."""
        self._open().wait(version, timeout_ms)

    def warm(self) -> None:
        """Reads all indexes into memory, and verifies them: each look-up then reads the disk at most once."""
        self._open().warm()

    def __len__(self) -> int:
        return len(self._open())

    def close(self) -> None:
        """Ends the reader: it stops to follow, and unmaps its files once no call needs them."""
        self._native = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open(
    source: str | os.PathLike[str],
    *,
    follow: bool = False,
    http: str | Sequence[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    keep: int = 1,
    rate_limit_bytes_per_second: int | None = None,
    poll_ms: float = 1000.0,
    first_version_ms: float = FIRST_VERSION_MS,
    fallback: bool = True,
    kafka: Mapping[str, str] | None = None,
    events_memory_bytes: int = 256 << 20,
) -> Reader:
    """Opens the directory of a version; with ``follow``, a store of a cluster by its name.

    A reader that follows fetches the current version to ``directory`` as a node does, swaps it in, and each later one as
    the cluster swaps it; ``keep`` former versions stay there. ``http`` names control ports of the cluster. It waits up to
    ``first_version_ms`` for the first version; 0 does not wait.

    Of a hybrid store it also reads the topic of events: ``kafka`` has properties of librdkafka, and
    ``events_memory_bytes`` limits the memory for keys and values of events. What is not here yet is asked from the
    nodes, unless ``fallback`` is false.

    >>> with fondaco.open(version_directory) as cities:
    ...     cities.row("1")
    {'city': 'Pisa', 'population': 90036}
    """
    if not follow:
        if http is not None or directory is not None:
            raise BadInput("http= and directory= are for follow=True", code="BADINPUT")
        return Reader(_native.open_version(source))
    if directory is None:
        raise BadInput("name a directory for the versions: directory=…", code="BADINPUT")
    ports = [http] if isinstance(http, str) else list(http or [os.environ.get("FONDACO_HTTP", "127.0.0.1:6580")])
    native = _native.follow_store(
        os.fspath(source),
        http=ports,
        directory=directory,
        user=user,
        password=password,
        token=token if token is not None else os.environ.get("FONDACO_TOKEN"),
        ca=ca,
        keep=keep,
        rate_limit_bytes_per_second=rate_limit_bytes_per_second,
        poll_ms=poll_ms,
        fallback=fallback,
        kafka=dict(kafka or {}),
        events_memory_bytes=events_memory_bytes,
    )
    if first_version_ms > 0:
        try:
            native.wait(None, first_version_ms)
        except BaseException:
            del native  # it would go on, in the frame that the exception keeps
            raise
    return Reader(native)


def scan(source: str | os.PathLike[str], *, raw: bool = False) -> Scan:
    """All rows of a version, at a path or a URL (``file``, ``hdfs``, ``s3``).

    >>> len(fondaco.scan(version_directory).to_arrow())
    2
    """
    return _native.scan_version(os.fspath(source), raw)


def export(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    format: str = "parquet",
    raw: bool = False,
    progress: bool | Progress | None = None,
) -> dict[str, Any]:
    """Writes all rows of a version, at a path or a URL, to a file: ``parquet``, or a stream of Arrow IPC with ``arrow``.
    :meth:`Store.export` does the same for a store.

    >>> fondaco.export(version_directory, f"{version_directory}.arrow", format="arrow")["records"]
    2
    """
    report = _native.export_version(os.fspath(source), path, format, raw, chosen(progress))
    return cast("dict[str, Any]", json.loads(report))
