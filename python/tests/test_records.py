"""Records of Avro: pushed from columns, and read by another library; keys of several parts."""

from __future__ import annotations

import io
import json
from typing import Any

import fondaco
import pytest

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "score", "type": "float", "default": 1.5},
    ],
}


def read(payload: bytes) -> Any:
    stream = io.BytesIO(payload)
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(SCHEMA), None)
    assert not stream.read(), "bytes follow the record"
    return record


def test_another_library_reads_the_records_that_a_push_makes(client: fondaco.Client, batch_name: str) -> None:
    rows = pa.table({"shop": ["rome", "rome"], "id": [1, 2], "name": ["Ada", "é"], "age": [36, None], "tags": [["a", "b"], []]})
    store = client.store(batch_name)
    pushed = store.push(
        rows,
        key=["shop", "id"],
        key_type="(string,integer)",
        value_type="avro",
        schema=json.dumps(SCHEMA),
        create=True,
        progress=False,
    )
    assert pushed["records"] == 2
    values = [bytes(value or b"") for value in store.get_many([("rome", 1), ("rome", 2)])]
    assert store.get(("rome", 3)) is None
    assert [value[0] for value in values] == [1, 1]
    assert [read(value[1:]) for value in values] == [
        {"name": "Ada", "age": 36, "tags": ["a", "b"], "score": 1.5},
        {"name": "é", "age": None, "tags": [], "score": 1.5},
    ]
    # Rows have the fields of the schema.
    assert store.row(("rome", 1)) == {"name": "Ada", "age": 36, "tags": ["a", "b"], "score": 1.5}


def test_payloads_of_another_library_are_pushed_and_checked(client: fondaco.Client, batch_name: str) -> None:
    out = io.BytesIO()
    record = {"name": "Bob", "age": 7, "tags": ["x"], "score": 0.25}
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), record)
    store = client.store(batch_name)
    rows = pa.table({"k": ["a"], "v": [out.getvalue()]})
    options: dict[str, Any] = {"key": "k", "value": "v", "progress": False}
    store.push(rows, value_type="avro", schema=json.dumps(SCHEMA), create=True, **options)
    assert store.get("a") == b"\x01" + out.getvalue()
    assert store.row("a") == record
    with pytest.raises(fondaco.BadInput, match="row 1.*invalid value"):
        store.push(pa.table({"k": ["a"], "v": [out.getvalue()[:-1]]}), **options)
    with pytest.raises(fondaco.BadInput, match="is a float"):
        store.get((1.5, "a"))  # type: ignore[arg-type]
