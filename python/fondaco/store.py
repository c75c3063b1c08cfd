"""A store of a cluster: look-ups, writes, versions."""

from __future__ import annotations

import base64
import json
import os
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union, cast
from urllib.parse import quote

from . import _native
from ._native import Scan, Values
from .graph import QueryResult
from .options import ReadOptions, with_limits
from .progress import Progress, chosen

#: A key: text is UTF-8, an integer is its decimal digits, a tuple is a key of several parts.
Key = Union[str, bytes, int, tuple[Union[str, bytes, int], ...]]

#: Keys: any iterable of them, or an array of Arrow, numpy, pandas or Polars. (``Any``: arrays have no common type.)
Keys = Any

#: A condition on a field: ``("price", "<", 10)``; ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
Condition = tuple[str, str, Union[str, int, float, bool]]

#: A value to write.
Value = Union[bytes, bytearray, memoryview, str]


class Store:
    """A store of a cluster."""

    #: Its name.
    name: str

    def __init__(self, native: _native.Client, name: str) -> None:
        self._native = native
        self.name = name

    # Look-ups

    def get(self, key: Key, options: ReadOptions | None = None) -> bytes | None:
        """The value of a key, or ``None``.

        >>> store.get("1")
        b'{"city":"Pisa","population":90036}'
        """
        return cast("bytes | None", self._native.get(self.name, key, options))

    def get_many(
        self,
        keys: Keys,
        options: ReadOptions | None = None,
        *,
        deadline_ms: float | None = None,
        partial: bool | None = None,
    ) -> Values:
        """The values of many keys, in their order, all of one version. Keys may be an array of Arrow or numpy.

        ``deadline_ms`` and ``partial`` are those of the options. With ``partial``, the call returns at the deadline with the
        values that came in time, and ``late`` has the positions of the other keys.

        >>> values = store.get_many([1, 99], deadline_ms=5000, partial=True)
        >>> values[0]
        b'{"city":"Pisa","population":90036}'
        >>> values[1] is None
        True
        >>> values.late
        []
        """
        options = with_limits(options, deadline_ms, partial)
        return cast(Values, self._native.get_many(self.name, keys, options))

    def fields(
        self,
        keys: Keys,
        names: Sequence[str],
        *,
        where: Sequence[Condition] = (),
        schema: int | None = None,
        raw: bool = False,
        options: ReadOptions | None = None,
    ) -> Values:
        """Some fields of the values of many keys, as the newest schema of the store has them, or the one with this id. The nodes
        read them, so that no other bytes travel. A value for which a condition does not hold counts as missing.

        ``to_arrow()`` has a typed column for each field, ``rows()`` dictionaries, or the value of the only field; an element is a
        JSON object or, with ``raw``, an encoded record of just these fields.

        >>> people.fields([1, 2], ["name", "age"], where=[("age", ">", 40)]).rows()
        [None, {'name': 'Bea', 'age': 41}]
        """
        words = ["FIELDS", str(len(names)), *names, "AS", "RAW" if raw else "JSON"]
        return cast(Values, self._native.fields(self.name, keys, _query(words, schema, where), None, options))

    def scores(
        self,
        keys: Keys,
        field: str,
        vector: Iterable[float] | None = None,
        operation: str = "dot",
        *,
        where: Sequence[Condition] = (),
        schema: int | None = None,
        top: int | None = None,
        options: ReadOptions | None = None,
    ) -> Values:
        """A score over a field of the values of many keys, computed by the nodes: ``dot``, ``cosine`` or ``hadamard`` of a vector
        of 32-bit floats with ``vector``; ``count`` of the items of a list, a map or a vector. With ``top``, those keys that have
        the highest scores, the highest first.

        >>> people.scores([1, 2], "tastes", [1.0, 0.5]).to_arrow().to_pandas()["score"].tolist()
        [2.0, 3.5]
        >>> people.scores([1, 2], "tastes", operation="count", top=1).rows()
        [2]
        """
        words: list[str | bytes] = [operation.upper(), field]
        if vector is not None:
            words += ["VECTOR", _floats(vector)]
        return cast(Values, self._native.fields(self.name, keys, _query(words, schema, where), top, options))

    def row(self, key: Key, options: ReadOptions | None = None) -> Any:
        """The row of a key, with the types of the pushed rows: a dictionary of its columns, the value if there is one
        column, or ``None``.

        >>> store.row("1")
        {'city': 'Pisa', 'population': 90036}
        """
        return self._native.row(self.name, key, options)

    def scan(self, *, raw: bool = False) -> Scan:
        """All rows: of a batch store those of its current version, in the order of (partition, hash of the key).

        >>> for batch in store.scan().to_batches():
        ...     print(len(batch), batch.column_names)
        2 ['id', 'city', 'population']
        >>> len(store.scan().to_arrow())
        2
        """
        return cast(Scan, self._native.scan(self.name, raw))

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        format: str = "parquet",
        raw: bool = False,
        progress: bool | Progress | None = None,
    ) -> dict[str, Any]:
        """Writes all rows to a file: ``parquet``, or a stream of Arrow IPC with ``arrow``.

        >>> store.export(f"{version_directory}.arrow", format="arrow")["records"]
        2
        """
        return cast("dict[str, Any]", self._native.export(self.name, path, format, raw, chosen(progress)))

    # Pushes

    def push(
        self,
        rows: Any,
        key: str | Sequence[str],
        *,
        value: str | None = None,
        values: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        on_duplicate: str = "fail",
        numbers: str = "number",
        non_finite: str = "fail",
        value_type: str | None = None,
        key_type: str | None = None,
        schema: str | bytes | None = None,
        message: str | None = None,
        schema_id: int | None = None,
        compression: str = "none",
        create: bool = False,
        incremental: bool = False,
        deploy: bool = True,
        output: str | None = None,
        upload: bool = False,
        run: str | None = None,
        again: bool = False,
        allow_empty: bool = False,
        bad_rows_max: int = 0,
        memory_bytes: int | None = None,
        threads: int | None = None,
        temporary: str | os.PathLike[str] | None = None,
        as_of_unix_ms: int | None = None,
        progress: bool | Progress | None = None,
    ) -> dict[str, Any]:
        """Builds a version of rows, and makes the cluster serve it.

        ``rows`` are a DataFrame of pandas or Polars, a table or a ``RecordBatchReader`` of pyarrow, or any object with
        ``__arrow_c_stream__``; they are read once, in batches. ``key`` names the column of the key, or several. The value
        is a JSON object of all other columns, of those in ``values``, or the column ``value`` as it is.

        The store's ``value_type`` and ``key_type`` say how values and keys are encoded; of Avro and Protobuf the value is a
        record of the newest schema of the store, or of ``schema_id``. With ``create``, ``schema`` (Avro's JSON, or a
        serialized ``FileDescriptorSet`` and the full name ``message``) is registered. Several columns of ``key`` are the
        parts of a tuple such as ``(string,integer)``, which look-ups take as a tuple of Python.

        With ``incremental`` the rows are a difference to the current version. ``run`` is an id, for instance a
        scheduler's: another try with the same id joins the first one, or repeats its answer. ``deploy=False`` only
        builds, at ``output``. ``progress`` shows a line, or is a function to call; by default a line is shown in a
        terminal and in a notebook. Ctrl-C cancels the push, and nothing is left of it.

        >>> import pyarrow
        >>> towns = pyarrow.table({"id": [1, 2], "name": ["Bari", "Como"]})
        >>> pushed = client.store("towns").push(towns, key="id", create=True)
        >>> pushed["version"], pushed["records"]
        (1, 2)
        >>> client.store("towns").row(2)
        'Como'
        """
        options = {
            "key": [key] if isinstance(key, str) else list(key),
            "value": value,
            "values": None if values is None else list(values),
            "exclude": list(exclude),
            "on_duplicate": on_duplicate,
            "numbers": numbers,
            "non_finite": non_finite,
            "value_type": value_type,
            "key_type": key_type,
            "schema": base64.b64encode(schema).decode() if isinstance(schema, bytes) else schema,
            "message": message,
            "schema_id": schema_id,
            "compression": compression,
            "create": create,
            "incremental": incremental,
            "deploy": deploy,
            "output": output,
            "upload": upload,
            "run": run,
            "again": again,
            "allow_empty": allow_empty,
            "bad_rows_max": bad_rows_max,
            "memory_bytes": memory_bytes,
            "threads": threads,
            "temporary": None if temporary is None else os.fspath(temporary),
            "as_of_unix_ms": as_of_unix_ms,
        }
        return cast("dict[str, Any]", self._native.push(self.name, rows, json.dumps(options), chosen(progress)))

    def push_graph(
        self,
        edges: Any,
        vertices: Any = None,
        *,
        columns: tuple[str, str] = ("from", "to"),
        values: Sequence[str] = (),
        vertex_name: str = "name",
        symmetric: bool | Sequence[str] = False,
        index: bool | Sequence[str] = False,
        unknown_vertices: str = "fail",
        exclude: Sequence[str] = (),
        on_duplicate: str = "fail",
        numbers: str = "number",
        non_finite: str = "fail",
        compression: str = "none",
        create: bool = False,
        upload: bool = False,
        run: str | None = None,
        again: bool = False,
        allow_empty: bool = False,
        bad_rows_max: int = 0,
        memory_bytes: int | None = None,
        threads: int | None = None,
        temporary: str | os.PathLike[str] | None = None,
        progress: bool | Progress | None = None,
    ) -> dict[str, Any]:
        """Builds a version of a graph, and makes the cluster serve it: ``fondaco push --edges`` of tables in memory.

        ``edges`` are tables by edge type, ``vertices`` tables by label; a table alone has edges of the type ``EDGE``, or
        vertices without a label. Tables are as for :meth:`push`. ``columns`` name the vertices at both ends of an edge,
        ``values`` its properties; ``vertex_name`` names a vertex, and its other columns are its properties. Edges of the types
        in ``symmetric`` lead both ways, and those in ``index`` get an index; ``True`` means all. Edges to a vertex that no
        table has ``fail``, ``add`` it, or are left out: ``skip``. Without ``vertices`` all names in edges are vertices.

        >>> import pyarrow
        >>> knows = pyarrow.table({"from": ["ann"], "to": ["bob"], "since": [2019]})
        >>> people = pyarrow.table({"name": ["ann", "bob"], "age": [37, 41]})
        >>> social = client.store("friends")
        >>> pushed = social.push_graph({"KNOWS": knows}, {"Person": people}, values=["since"], create=True)
        >>> pushed["build"]["graph"]["edges"]
        1
        >>> social.query("MATCH (a:Person)-[k:KNOWS]->(b) RETURN a.name, b.age, k.since")["rows"]
        [['ann', 41, 2019]]
        """
        graph = {
            "symmetric": _types(symmetric),
            "index": _types(index),
            "vertex_name": vertex_name,
            "unknown_vertices": unknown_vertices,
        }
        options = {
            "key": list(columns),
            "values": list(values),
            "exclude": list(exclude),
            "on_duplicate": on_duplicate,
            "numbers": numbers,
            "non_finite": non_finite,
            "compression": compression,
            "create": create,
            "incremental": False,
            "deploy": True,
            "upload": upload,
            "run": run,
            "again": again,
            "allow_empty": allow_empty,
            "bad_rows_max": bad_rows_max,
            "memory_bytes": memory_bytes,
            "threads": threads,
            "temporary": None if temporary is None else os.fspath(temporary),
        }
        texts = (json.dumps(graph), json.dumps(options))
        tables = (_by_name(edges), [] if vertices is None else _by_name(vertices))
        return cast("dict[str, Any]", self._native.push_graph(self.name, *tables, *texts, chosen(progress)))

    def deploy(
        self,
        source: str | os.PathLike[str],
        *,
        upload: bool = False,
        run: str | None = None,
        again: bool = False,
        progress: bool | Progress | None = None,
    ) -> dict[str, Any]:
        """Makes the cluster serve a built version, at a path or URL that its nodes can read; with ``upload`` at a path
        that only this process can read."""
        options = {"source": os.fspath(source), "upload": upload, "run": run, "again": again}
        return cast("dict[str, Any]", self._native.deploy(self.name, json.dumps(options), chosen(progress)))

    # Writes to versioned stores

    def put(
        self,
        key: Key,
        value: Value,
        *,
        context: bytes | None = None,
        ttl_ms: int | None = None,
        deadline_ms: float | None = None,
    ) -> bytes:
        """Writes a key of a versioned store, and returns the context for the next write.

        Without a context it replaces all values that were acknowledged before; with one, those that the context covers.

        >>> context = carts.put("7", "a book")
        >>> context = carts.put("7", "two books", context=context)
        >>> carts.get("7")
        b'two books'
        """
        return cast(bytes, self._native.put(self.name, key, value, context, ttl_ms, deadline_ms))

    def put_many(
        self,
        items: Mapping[Any, Value] | Iterable[tuple[Key, Value]],
        *,
        contexts: Sequence[bytes | None] | None = None,
        ttl_ms: int | None = None,
        deadline_ms: float | None = None,
    ) -> list[bytes]:
        """Writes many keys of a versioned store, many at a time. It is no transaction: an error says how many failed.

        >>> len(carts.put_many({"8": "a pen", "9": "ink"}))
        2
        """
        pairs = list(items.items() if isinstance(items, Mapping) else items)
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        return cast("list[bytes]", self._native.put_many(self.name, keys, values, contexts, ttl_ms, deadline_ms))

    def delete(self, key: Key, *, context: bytes | None = None, deadline_ms: float | None = None) -> bytes:
        """Deletes a key of a versioned store, and returns the context.

        >>> context = carts.delete("9")
        >>> carts.get("9") is None
        True
        """
        return cast(bytes, self._native.delete(self.name, key, context, deadline_ms))

    def delete_many(
        self,
        keys: Keys,
        *,
        contexts: Sequence[bytes | None] | None = None,
        deadline_ms: float | None = None,
    ) -> list[bytes]:
        """Deletes many keys of a versioned store, many at a time.

        >>> len(carts.delete_many(["8", "9"]))
        2
        """
        return cast("list[bytes]", self._native.delete_many(self.name, keys, contexts, deadline_ms))

    def get_context(self, key: Key, options: ReadOptions | None = None) -> tuple[list[bytes], bytes]:
        """All concurrent values of a key of a versioned store, the latest first, and the context to replace them.

        >>> context = carts.put("7", "two books")
        >>> values, context = carts.get_context("7")
        >>> values
        [b'two books']
        """
        return cast("tuple[list[bytes], bytes]", self._native.get_context(self.name, key, options))

    def get_contexts(self, keys: Keys, options: ReadOptions | None = None) -> list[tuple[list[bytes], bytes]]:
        """The same for many keys, in one request.

        >>> context = carts.put("7", "two books")
        >>> [len(values) for values, context in carts.get_contexts(["7", "none"])]
        [1, 0]
        """
        return cast("list[tuple[list[bytes], bytes]]", self._native.get_contexts(self.name, keys, options))

    def increment(self, key: Key, by: int = 1, *, deadline_ms: float | None = None) -> int:
        """Adds to an integer of a versioned store, and returns the sum. In stores of counters
        (``versioned={"resolution": "counter"}``) additions never conflict.

        >>> carts.increment("visits", 5)
        5
        """
        return cast(int, self._native.increment(self.name, key, by, deadline_ms))

    def update(self, key: Key, update: Mapping[str, Any]) -> Any:
        """Changes fields of a value of a versioned store, and returns the new value: of a JSON object, a MessagePack map, or
        a number. The operations are ``set``, ``remove``, ``add``, ``append`` and ``increment``. In stores with
        ``versioned={"resolution": "fields"}`` concurrent changes of other fields stay.

        >>> carts.update("basket", {"set": {"owner": "Ada"}, "append": {"books": ["Dune"]}})
        {'books': ['Dune'], 'owner': 'Ada'}
        """
        return self._native.update(self.name, key, json.dumps(update))

    # Sets of ids

    def ids(self, key: Key, options: ReadOptions | None = None) -> list[int]:
        """The ids of the set of a key, ascending; none if the key does not exist."""
        return cast("list[int]", self._sets([key], "union", (), None, options))

    def union(self, keys: Keys, *, ids_max: int | None = None, options: ReadOptions | None = None) -> list[int]:
        """The ids that are in any of these sets, computed by the nodes."""
        return cast("list[int]", self._sets(keys, "union", (), ids_max, options))

    def intersection(self, keys: Keys, *, ids_max: int | None = None, options: ReadOptions | None = None) -> list[int]:
        """The ids that are in all of these sets."""
        return cast("list[int]", self._sets(keys, "intersection", (), ids_max, options))

    def difference(self, keys: Keys, *, ids_max: int | None = None, options: ReadOptions | None = None) -> list[int]:
        """The ids of the first set that are in no other one."""
        return cast("list[int]", self._sets(keys, "difference", (), ids_max, options))

    def intersects(self, keys: Keys, options: ReadOptions | None = None) -> bool:
        """Whether an id is in all of these sets."""
        return cast(bool, self._sets(keys, "intersects", (), None, options))

    def counts(self, keys: Keys, options: ReadOptions | None = None) -> list[int]:
        """The number of ids of each set."""
        return cast("list[int]", self._sets(keys, "counts", (), None, options))

    def top(self, keys: Keys, number: int, options: ReadOptions | None = None) -> list[tuple[int, int]]:
        """The ids that are in the most sets, and in how many each is."""
        return cast("list[tuple[int, int]]", self._sets(keys, "top", (number,), None, options))

    def contains(self, keys: Keys, ids: Sequence[int], options: ReadOptions | None = None) -> list[list[bool]]:
        """For each set, which of these ids are in it."""
        return cast("list[list[bool]]", self._sets(keys, "contains", ids, None, options))

    def put_ids(self, key: Key, ids: Iterable[int], *, context: bytes | None = None) -> bytes:
        """Writes a set of ids to a versioned store with ``value_type="ids"``."""
        return self.put(key, _native.encode_ids(list(ids)), context=context)

    # Graphs

    def query(
        self,
        text: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout_ms: float | None = None,
        rows_max: int | None = None,
        partial: bool = False,
    ) -> QueryResult:
        """Answers a query of a graph, in the subset of openCypher of docs/graph.md: a dictionary with ``columns``, ``rows``,
        and ``incomplete``, which says why there may be more rows, or is ``None``.

        >>> social = client.store("social")
        >>> found = social.query("MATCH (a {name: $name})-[:KNOWS]-(b) RETURN b.name AS friend", {"name": "ann"})
        >>> found.to_pandas()["friend"].tolist()
        ['bob']
        """
        given = json.dumps(dict(parameters or {}))
        return cast(QueryResult, self._native.query(self.name, text, given, timeout_ms, rows_max, partial))

    # Control

    def show(self) -> dict[str, Any]:
        """The store: its options, its versions, and the last push.

        >>> store.show()["kind"]
        'batch'
        """
        return cast("dict[str, Any]", self._control("GET", ""))

    def versions(self) -> list[dict[str, Any]]:
        """The kept versions, the current one first.

        >>> [version["version"] for version in store.versions()]
        [1]
        """
        return cast("list[dict[str, Any]]", self._control("GET", "/versions", member="versions"))

    def rollback(self, to: int | None = None) -> dict[str, Any]:
        """Returns to the version before, or to an earlier one, at once."""
        return cast("dict[str, Any]", self._control("POST", "/rollback", {"to": to}))

    def swap(self, to: int) -> dict[str, Any]:
        """Makes a kept version the current one, at once."""
        return cast("dict[str, Any]", self._control("POST", "/swap", {"version": to}))

    def cancel_push(self) -> dict[str, Any]:
        """Cancels the push under way. The nodes delete what they have fetched of it."""
        return cast("dict[str, Any]", self._control("DELETE", "/push"))

    def _sets(self, keys: Keys, query: str, argument: Sequence[int], ids_max: int | None, options: object) -> Any:
        return self._native.sets(self.name, keys, query, list(argument), ids_max, options)

    def _control(self, method: str, path: str, body: object = None, member: str | None = None) -> Any:
        path = f"/v1/stores/{quote(self.name, safe='')}{path}"
        return self._native.control(method, path, None if body is None else json.dumps(body), member)

    def __repr__(self) -> str:
        return f"<fondaco store {self.name!r}>"


def _query(words: Sequence[str | bytes], schema: int | None, where: Sequence[Condition]) -> list[bytes]:
    """A query over fields as the commands have it."""
    words = list(words)
    if schema is not None:
        words += ["SCHEMA", str(schema)]
    for place, (field, comparison, literal) in enumerate(where):
        text = str(literal).lower() if isinstance(literal, bool) else str(literal)
        words += ["AND" if place else "WHERE", field, comparison, text]
    return [word.encode() if isinstance(word, str) else word for word in words]


def _floats(vector: Iterable[float]) -> bytes:
    """A vector as nodes have it: 32-bit floats, little-endian."""
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()


def _types(types: bool | Sequence[str]) -> list[str] | None:
    """Edge types as the native part takes them: an empty list is all of them."""
    if isinstance(types, bool):
        return [] if types else None
    return list(types) or None


def _by_name(tables: Any) -> list[tuple[str | None, Any]]:
    """Tables with their names; a table alone has none."""
    return list(tables.items()) if isinstance(tables, Mapping) else [(None, tables)]
