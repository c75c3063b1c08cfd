"""The online store: which store of fondaco a feature view has, its rows, and what Feast asks of it.

The invariant: an entity has the row with the newest event time that was ever written, and a reader never sees one row's
features mixed with another's, since a row is one value.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

import fondaco
import fondaco.aio
from pydantic import StrictBool, StrictInt, StrictStr

from feast.entity import Entity
from feast.feature_view import FeatureView
from feast.infra.infra_object import InfraObject
from feast.infra.online_stores.helpers import compute_versioned_name
from feast.infra.online_stores.online_store import OnlineStore
from feast.infra.supported_async_methods import SupportedAsyncMethods
from feast.protos.feast.core.InfraObject_pb2 import InfraObject as InfraObjectProto
from feast.protos.feast.core.Registry_pb2 import Registry as RegistryProto
from feast.protos.feast.types.EntityKey_pb2 import EntityKey as EntityKeyProto
from feast.protos.feast.types.Value_pb2 import Value as ValueProto
from feast.repo_config import FeastConfigBaseModel, RepoConfig
from feast.stream_feature_view import StreamFeatureView

from . import row as rows
from .keys import serialize
from .merge import settle, settle_async
from .names import store_name

InputRow = tuple[EntityKeyProto, dict[str, ValueProto], datetime, datetime | None]
OutputRow = tuple[datetime | None, dict[str, ValueProto] | None]

# Rows that are written at a time: a bound of the memory of a write, and of what is under way.
WRITE_ROWS_MAX = 2000

# How long a client may take to hear of a store that it created.
KNOWN_SECONDS_MAX = 10

# A batch store without a version: its view has no rows yet.
_NEVER_MATERIALISED = [None]


class FondacoOnlineStoreConfig(FeastConfigBaseModel):
    """The section ``online_store`` of ``feature_store.yaml``."""

    type: StrictStr = "fondaco.feast.FondacoOnlineStore"

    resp: StrictStr = "127.0.0.1:6500"
    """The RESP port of any node or router: host:port, several separated by commas"""

    http: StrictStr = "127.0.0.1:6580"
    """The control port of any process: stores are created and dropped there, and versions pushed"""

    kind: Literal["versioned", "batch"] = "versioned"
    """The kind of the stores of feature views. The tag ``fondaco.kind`` of a view takes precedence"""

    key_ttl_seconds: StrictInt | None = None
    """How long a row lives after it was written, for ever by default. Only versioned stores"""

    expire_by_view_ttl: StrictBool = False
    """Whether a row whose event is older than the ``ttl`` of its feature view is no longer returned"""

    skip_dedup: StrictBool = False
    """Whether rows are written without a look at what is there: faster, but a late write replaces a newer event"""

    store: dict[str, Any] = {}
    """Further options of created stores: replicas, backups, versioned, … as for ``Client.create_store``"""

    connection: dict[str, Any] = {}
    """Further options of connections: user, password, ca, deadline_ms, … as for ``fondaco.connect``"""


class BatchStoreWritten(ValueError):
    """A row was written to a batch store, which takes only whole versions."""


class FondacoOnlineStore(OnlineStore):
    """Feast's online store on a cluster of fondaco."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None
        self._async_client: Any = None
        # The names of the features by store and digest. They never change, so they are read once.
        self._schemas: dict[tuple[str, bytes], rows.Names] = {}

    @property
    def async_supported(self) -> SupportedAsyncMethods:
        return SupportedAsyncMethods(read=True, write=True)

    def _is_versioned_read_supported(self) -> bool:
        return True

    # --- Connections ---

    async def initialize(self, config: RepoConfig) -> None:
        await self._connect_async(config)

    async def close(self) -> None:
        with self._lock:
            clients = [self._client, self._async_client]
            self._client = self._async_client = None
        for client in clients:
            if client is not None:
                client.close()

    def connect(self, config: RepoConfig) -> Any:
        """The client of this process, which all threads share."""
        with self._lock:
            if self._client is None:
                settings = config.online_store
                self._client = fondaco.connect(*_seeds(settings), http=settings.http, **settings.connection)
            return self._client

    async def _connect_async(self, config: RepoConfig) -> Any:
        if self._async_client is None:
            settings = config.online_store
            client = await fondaco.aio.connect(*_seeds(settings), http=settings.http, **settings.connection)
            if self._async_client is None:
                self._async_client = client
            else:
                # Another task has connected meanwhile.
                client.close()
        return self._async_client

    # --- Reading ---

    def online_read(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: list[EntityKeyProto],
        requested_features: list[str] | None = None,
    ) -> list[OutputRow]:
        name = store_of(config, table)
        store = self.connect(config).store(name)
        try:
            values = list(store.get_many(serialize(entity_keys, config.entity_key_serialization_version)))
        except fondaco.NoVersion:
            values = _NEVER_MATERIALISED * len(entity_keys)
        for digest in self._unknown_schemas(name, values):
            self._learn(name, digest, store.get(rows.schema_key(digest)))
        return self._rows(config, table, name, values, requested_features)

    async def online_read_async(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: list[EntityKeyProto],
        requested_features: list[str] | None = None,
    ) -> list[OutputRow]:
        name = store_of(config, table)
        store = (await self._connect_async(config)).store(name)
        try:
            values = list(await store.get_many(serialize(entity_keys, config.entity_key_serialization_version)))
        except fondaco.NoVersion:
            values = _NEVER_MATERIALISED * len(entity_keys)
        for digest in self._unknown_schemas(name, values):
            self._learn(name, digest, await store.get(rows.schema_key(digest)))
        return self._rows(config, table, name, values, requested_features)

    def _unknown_schemas(self, name: str, values: Iterable[bytes | None]) -> list[bytes]:
        digests = {value[rows.DIGEST] for value in values if value is not None}
        return [digest for digest in digests if (name, digest) not in self._schemas]

    def _learn(self, name: str, digest: bytes, schema: bytes | None) -> None:
        if schema is None:
            raise ValueError(
                f'store "{name}" has a row of the schema {digest.hex()}, but not the schema: another program wrote to it'
            )
        self._schemas[name, digest] = rows.names_of(schema)

    def _rows(
        self,
        config: RepoConfig,
        table: FeatureView,
        name: str,
        values: Iterable[bytes | None],
        requested: Sequence[str] | None,
    ) -> list[OutputRow]:
        oldest = _oldest_micros(config, table)
        plans: dict[bytes, tuple[rows.Names, list[str] | None]] = {}
        times: dict[int, datetime] = {}
        output: list[OutputRow] = []
        for value in values:
            if value is None:
                output.append((None, None))
                continue
            micros, digest = rows.header_of(value)
            if micros < oldest:
                output.append((None, None))
                continue
            if digest not in plans:
                names = self._schemas[name, digest]
                # Features that the view had when the row was written, and has no longer, are never returned.
                wanted = requested or [feature.name for feature in table.features]
                whole = set(names) <= set(wanted)
                plans[digest] = names, None if whole else [one for one in wanted if one in names]
            # Rows of one materialisation often have the same time.
            if micros not in times:
                times[micros] = rows.time_of(micros)
            output.append((times[micros], rows.features_of(value, *plans[digest])))
        return output

    # --- Writing ---

    def online_write_batch(
        self,
        config: RepoConfig,
        table: FeatureView,
        data: list[InputRow],
        progress: Callable[[int], Any] | None,
    ) -> None:
        name = self._writable(config, table)
        store = self.connect(config).store(name)
        for schemas, items, ttl_ms, count in _pieces(config, table, data):
            self._write_schemas(config, table, name, schemas)
            if config.online_store.skip_dedup:
                store.put_many(list(items.items()), ttl_ms=ttl_ms)
            else:
                settle(items, store.get_contexts, partial(_put, store, ttl_ms))
            if progress:
                progress(count)

    async def online_write_batch_async(
        self,
        config: RepoConfig,
        table: FeatureView,
        data: list[InputRow],
        progress: Callable[[int], Any] | None,
    ) -> None:
        name = self._writable(config, table)
        store = (await self._connect_async(config)).store(name)
        for schemas, items, ttl_ms, count in _pieces(config, table, data):
            if any((name, digest) not in self._schemas for digest in schemas):
                await asyncio.to_thread(self._write_schemas, config, table, name, schemas)
            if config.online_store.skip_dedup:
                await store.put_many(list(items.items()), ttl_ms=ttl_ms)
            else:
                await settle_async(items, store.get_contexts, partial(_put, store, ttl_ms))
            if progress:
                progress(count)

    def _writable(self, config: RepoConfig, table: FeatureView) -> str:
        name = store_of(config, table)
        if kind_of(config, table) == "batch":
            raise BatchStoreWritten(
                f'feature view "{table.name}" is in the batch store "{name}", which takes whole versions and no single rows: '
                "materialise it, with batch_engine: fondaco.feast.FondacoComputeEngine in feature_store.yaml, "
                "or tag the view fondaco.kind: versioned"
            )
        return name

    def _write_schemas(
        self, config: RepoConfig, table: FeatureView, name: str, schemas: dict[bytes, rows.Names]
    ) -> None:
        """Writes the names of features before the first row that refers to them. They never expire."""
        store = self.connect(config).store(name)
        for digest, names in schemas.items():
            if (name, digest) in self._schemas:
                continue
            try:
                stored = store.get(rows.schema_key(digest))
            except fondaco.NoStore:
                # Feast does not announce every view by `update`.
                self.create(config, table)
                stored = None
            if stored is None:
                store.put(rows.schema_key(digest), rows.schema_of(names))
            elif rows.names_of(stored) != names:
                raise ValueError(
                    f'the features {list(names)} and {list(rows.names_of(stored))} of store "{name}" have the same digest '
                    f"{digest.hex()}: declare the features of the view in another order"
                )
            self._schemas[name, digest] = names

    # --- Stores ---

    def update(
        self,
        config: RepoConfig,
        tables_to_delete: Sequence[FeatureView],
        tables_to_keep: Sequence[FeatureView],
        entities_to_delete: Sequence[Entity],
        entities_to_keep: Sequence[Entity],
        partial: bool,
    ) -> None:
        for table in tables_to_keep:
            self.create(config, table)
        self.teardown(config, tables_to_delete, entities_to_delete)

    def teardown(self, config: RepoConfig, tables: Sequence[FeatureView], entities: Sequence[Entity]) -> None:
        for table in tables:
            name = store_of(config, table)
            try:
                self.connect(config).drop_store(name)
            except fondaco.NoStore:
                pass
            for known in [key for key in self._schemas if key[0] == name]:
                del self._schemas[known]

    def plan(self, config: RepoConfig, desired_registry_proto: RegistryProto) -> list[InfraObject]:
        views: list[FeatureView] = [FeatureView.from_proto(view) for view in desired_registry_proto.feature_views]
        views += [StreamFeatureView.from_proto(view) for view in desired_registry_proto.stream_feature_views]
        return [
            FondacoStore(store_of(config, view), kind_of(config, view), config.online_store)
            for view in views
            if view.online
        ]

    def create(self, config: RepoConfig, table: FeatureView) -> None:
        """Creates the store of a feature view, unless it is there."""
        FondacoStore(store_of(config, table), kind_of(config, table), config.online_store).create(self.connect(config))

    # --- Refused ---

    def retrieve_online_documents(self, config: RepoConfig, table: FeatureView, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f'retrieve_online_documents of "{table.name}": fondaco finds rows by their entity keys and has no index of vectors; '
            "keep this view in an online store that has one"
        )

    def retrieve_online_documents_v2(self, config: RepoConfig, table: FeatureView, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f'retrieve_online_documents_v2 of "{table.name}": fondaco finds rows by their entity keys and has no index of '
            "vectors or words; keep this view in an online store that has one"
        )


class FondacoStore(InfraObject):
    """The store of a feature view, as an object of Feast's infrastructure."""

    def __init__(self, name: str, kind: str, settings: FondacoOnlineStoreConfig) -> None:
        super().__init__(name)
        self.kind = kind
        self.settings = settings

    def create(self, client: Any) -> None:
        """Creates the store, or checks that the one that is there has the kind that the feature view asks for."""
        existing = {store["name"]: store["kind"] for store in client.stores()}
        kind = existing.get(self.name)
        if kind is None:
            try:
                client.create_store(self.name, kind=self.kind, **self.settings.store)
            except fondaco.AlreadyExists:
                # Another process created it meanwhile: look at its kind.
                return self.create(client)
            self._await_known(client)
        elif kind != self.kind:
            raise ValueError(
                f'store "{self.name}" exists and is a {kind} store, but the feature view asks for a {self.kind} store: '
                f"change kind, or drop the store: fondaco store drop {self.name}"
            )

    def _await_known(self, client: Any) -> None:
        """Waits until this client has heard of the store, which takes up to a second: it asks nodes by itself."""
        end = time.monotonic() + KNOWN_SECONDS_MAX
        while True:
            try:
                client.store(self.name).get(rows.schema_key(b""))
                return
            except fondaco.NoVersion:
                return
            except fondaco.NoStore:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def update(self) -> None:
        with self._connect() as client:
            self.create(client)

    def teardown(self) -> None:
        with self._connect() as client:
            try:
                client.drop_store(self.name)
            except fondaco.NoStore:
                pass

    def _connect(self) -> Any:
        return fondaco.connect(*_seeds(self.settings), http=self.settings.http, **self.settings.connection)

    def to_infra_object_proto(self) -> InfraObjectProto:
        return InfraObjectProto(
            infra_object_class_type=f"{type(self).__module__}.{type(self).__qualname__}", custom_infra=self.to_proto()
        )

    def to_proto(self) -> Any:
        # A registry is no place for credentials: they are those of the process that uses the object.
        content = {"name": self.name, "kind": self.kind, "settings": self.settings.model_dump(exclude={"connection"})}
        return InfraObjectProto.CustomInfra(field=json.dumps(content).encode())

    @staticmethod
    def from_infra_object_proto(infra_object_proto: InfraObjectProto) -> FondacoStore:
        return FondacoStore.from_proto(infra_object_proto.custom_infra)

    @staticmethod
    def from_proto(infra_object_proto: Any) -> FondacoStore:
        content = json.loads(infra_object_proto.field)
        return FondacoStore(content["name"], content["kind"], FondacoOnlineStoreConfig(**content["settings"]))


def kind_of(config: RepoConfig, table: FeatureView) -> str:
    """The kind of the store of a feature view: its tag, or that of the configuration."""
    kind = (getattr(table, "tags", None) or {}).get("fondaco.kind", config.online_store.kind)
    if kind not in ("versioned", "batch"):
        raise ValueError(f'tag fondaco.kind of feature view "{table.name}" is "{kind}": use versioned or batch')
    return str(kind)


def encode_rows(
    config: RepoConfig, data: Sequence[InputRow]
) -> tuple[dict[bytes, rows.Names], dict[bytes, bytes], dict[bytes, int]]:
    """The schemas of rows of Feast, and the newest row of each key with its event time."""
    schemas: dict[bytes, rows.Names] = {}
    digests: dict[rows.Names, bytes] = {}
    items: dict[bytes, bytes] = {}
    micros: dict[bytes, int] = {}
    keys = serialize((row[0] for row in data), config.entity_key_serialization_version)
    for key, (_entity, features, event, _created) in zip(keys, data):
        event_micros = rows.micros_of(event)
        if key in micros and event_micros < micros[key]:
            continue
        names = tuple(features)
        if names not in digests:
            digest = rows.digest_of(names)
            digests[names] = digest
            schemas[digest] = names
        items[key] = rows.encode(features, event_micros, digests[names])
        micros[key] = event_micros
    return schemas, items, micros


def _seeds(settings: FondacoOnlineStoreConfig) -> list[str]:
    return settings.resp.split(",")


def store_of(config: RepoConfig, table: FeatureView) -> str:
    """The name of the store of a feature view."""
    versioning = config.registry.enable_online_feature_view_versioning
    return store_name(config.project, compute_versioned_name(table, versioning))


def _put(store: Any, ttl_ms: int | None, items: list[tuple[bytes, bytes]], contexts: Sequence[bytes]) -> Any:
    return store.put_many(items, contexts=contexts, ttl_ms=ttl_ms)


def _pieces(
    config: RepoConfig, table: FeatureView, data: Sequence[InputRow]
) -> Iterator[tuple[dict[bytes, rows.Names], dict[bytes, bytes], int | None, int]]:
    """Some thousand rows at a time: their schemas, the newest of each key, how long they live, and the number of rows of
    Feast that they are."""
    for start in range(0, len(data), WRITE_ROWS_MAX):
        piece = data[start : start + WRITE_ROWS_MAX]
        schemas, items, micros = encode_rows(config, piece)
        oldest = _oldest_micros(config, table)
        items = {key: value for key, value in items.items() if micros[key] >= oldest}
        yield schemas, items, _ttl_ms(config, table, max(micros.values(), default=0)), len(piece)


def _view_ttl_micros(config: RepoConfig, table: FeatureView) -> int | None:
    ttl = getattr(table, "ttl", None)
    # Feast's zero is for ever.
    return int(ttl.total_seconds() * 1e6) if config.online_store.expire_by_view_ttl and ttl else None


def _oldest_micros(config: RepoConfig, table: FeatureView) -> float:
    ttl = _view_ttl_micros(config, table)
    return -math.inf if ttl is None else time.time() * 1e6 - ttl


def _ttl_ms(config: RepoConfig, table: FeatureView, newest_micros: int) -> int | None:
    """How long rows live from now on, if the newest of them has this event time. Reads still check each."""
    limits = []
    if config.online_store.key_ttl_seconds:
        limits.append(config.online_store.key_ttl_seconds * 1000)
    ttl = _view_ttl_micros(config, table)
    if ttl is not None:
        limits.append(max(1, math.ceil((newest_micros + ttl) / 1000 - time.time() * 1000)))
    return min(limits, default=None)
