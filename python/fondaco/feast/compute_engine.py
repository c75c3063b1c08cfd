"""Materialisation into batch stores: one run, one version.

Feast's engines hand rows to `online_write_batch` in pieces and never say which piece is the last. Only the engine knows
where a materialisation begins and ends, so this is the place to make a version: the rows of a run go to a file, and are
pushed when the run has succeeded. A run that fails pushes nothing.

Everything before the output (sources, transformations, aggregations, validation) is Feast's local engine, unchanged. Views
in versioned stores are materialised as by that engine.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import fondaco
import pyarrow as pa
from pydantic import StrictStr

from feast.infra.common.materialization_job import MaterializationJobStatus, MaterializationTask
from feast.infra.compute_engines.dag.context import ExecutionContext
from feast.infra.compute_engines.local.compute import LocalComputeEngine, LocalComputeEngineConfig
from feast.infra.compute_engines.local.job import LocalMaterializationJob
from feast.infra.registry.base_registry import BaseRegistry

from . import row as rows
from .online_store import KNOWN_SECONDS_MAX, FondacoOnlineStore, InputRow, encode_rows, kind_of, store_of

_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])

# Keys that are compared at a time with the current version.
_COMPARE_ROWS = 10_000


class FondacoComputeEngineConfig(LocalComputeEngineConfig):
    """The section ``batch_engine`` of ``feature_store.yaml``."""

    type: StrictStr = "fondaco.feast.FondacoComputeEngine"  # type: ignore[assignment]

    backend: str | None = "pandas"
    """As for Feast's local engine"""

    replace: bool = False
    """Whether a run replaces the content of the store. By default it changes the entities that it has rows of, and only
    those whose event is not older than the one that is served"""

    push: dict[str, Any] = {}
    """Further options of pushes, as for ``Store.push``"""


class FondacoComputeEngine(LocalComputeEngine):
    """Feast's local engine, with pushes in the place of writes for views in batch stores."""

    def __init__(
        self,
        backend: str | None = "pandas",
        replace: bool = False,
        push: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backend=backend or "pandas", **kwargs)
        self._replace = replace
        self._push_options = push or {}

    def _materialize_one(
        self, registry: BaseRegistry, task: MaterializationTask, **kwargs: Any
    ) -> LocalMaterializationJob:
        online = self.online_store
        if not isinstance(online, FondacoOnlineStore):
            raise ValueError(
                "batch_engine fondaco.feast.FondacoComputeEngine needs online_store fondaco.feast.FondacoOnlineStore, "
                f"not {type(online).__name__}"
            )
        if kind_of(self.repo_config, task.feature_view) != "batch":
            return super()._materialize_one(registry, task, **kwargs)
        with tempfile.TemporaryDirectory(prefix="fondaco-feast-") as directory:
            spool = _Spool(os.path.join(directory, "rows.arrow"))
            job = _SpoolingEngine(self, spool)._materialize_one(registry, task, **kwargs)
            if job.status() != MaterializationJobStatus.SUCCEEDED:
                return job
            try:
                self._push(online, task.feature_view, spool)
            except Exception as error:
                return LocalMaterializationJob(job.job_id(), MaterializationJobStatus.ERROR, error)
            return job

    def _push(self, online: FondacoOnlineStore, view: Any, spool: _Spool) -> None:
        online.create(self.repo_config, view)
        store = online.connect(self.repo_config).store(store_of(self.repo_config, view))
        spool.close()
        difference = not self._replace and _served_version(store) is not None
        batches = _changes(store, spool.batches()) if difference else spool.batches()
        first = next(batches, None)
        if first is None:
            return
        pushed = store.push(
            pa.RecordBatchReader.from_batches(_SCHEMA, chain([first], batches)),
            key="key",
            value="value",
            incremental=difference,
            on_duplicate="last",
            **self._push_options,
        )
        _await_served(store, pushed["version"])


class _SpoolingEngine(LocalComputeEngine):
    """The local engine with a file as its online store."""

    def __init__(self, engine: FondacoComputeEngine, spool: _Spool) -> None:
        super().__init__(
            backend=engine.backend_name,
            repo_config=engine.repo_config,
            offline_store=engine.offline_store,
            online_store=engine.online_store,
        )
        self._spool = spool

    def get_execution_context(self, registry: BaseRegistry, task: Any) -> ExecutionContext:
        context = super().get_execution_context(registry, task)
        context.online_store = self._spool  # type: ignore[assignment]
        return context


class _Spool:
    """The rows of a run in a file, in the order in which they came; takes them as an online store does."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer = pa.ipc.new_file(path, _SCHEMA)
        self._schemas: dict[bytes, rows.Names] = {}
        self._micros: dict[bytes, int] = {}

    def online_write_batch(self, config: Any, table: Any, data: list[InputRow], progress: Any) -> None:
        schemas, items, micros = encode_rows(config, data)
        # Without a join key Feast leaves all rows; of the rows with one key, the last one in the file counts.
        items = {key: row for key, row in items.items() if micros[key] >= self._micros.get(key, micros[key])}
        self._micros.update((key, micros[key]) for key in items)
        for digest, names in schemas.items():
            if digest not in self._schemas:
                self._schemas[digest] = names
                items = {rows.schema_key(digest): rows.schema_of(names), **items}
        if items:
            self._writer.write_batch(_batch(items))
        if progress:
            progress(len(data))

    def close(self) -> None:
        self._writer.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._path) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def _changes(store: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that the current version lacks, and whose events are not older than the one that it has."""
    for batch in batches:
        for start in range(0, batch.num_rows, _COMPARE_ROWS):
            piece = batch.slice(start, _COMPARE_ROWS)
            keys, values = piece.column("key").to_pylist(), piece.column("value").to_pylist()
            items = zip(keys, values, store.get_many(keys))
            changed = {key: value for key, value, served in items if served is None or _is_newer(value, served)}
            if changed:
                yield _batch(changed)


def _is_newer(row: bytes, served: bytes) -> bool:
    # The record of a schema never changes, so only rows are compared by their time.
    return row != served and rows.header_of(row)[0] >= rows.header_of(served)[0]


def _served_version(store: Any) -> int | None:
    """The version that this client reads; none before the first push."""
    try:
        version: int | None = store.get_many([rows.schema_key(b"")]).versions.get(store.name)
        return version
    except fondaco.NoVersion:
        return None


def _await_served(store: Any, version: int) -> None:
    """Waits until this client has heard of the version, which takes up to a second: so the process that materialised
    reads what it materialised."""
    end = time.monotonic() + KNOWN_SECONDS_MAX
    while (_served_version(store) or 0) < version and time.monotonic() < end:
        time.sleep(0.01)


def _batch(items: dict[bytes, bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(list(items), pa.binary()), pa.array(list(items.values()), pa.binary())], schema=_SCHEMA
    )
