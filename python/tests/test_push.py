"""Pushes of rows in memory: what a build makes of them, and what it refuses."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fondaco
import pytest
from conftest import Cluster, await_that

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


def test_rows_of_every_library_make_equal_versions(client: fondaco.Client, batch_name: str) -> None:
    rows = {"id": [1, 2, 3], "name": ["a", "b", None], "score": [0.5, 1.5, 2.5]}
    table = pa.table(rows)
    checksums = set()
    for number, source in enumerate(
        (
            table,
            table.to_batches()[0],
            pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
            pl.DataFrame(rows),
            pd.DataFrame({**rows, "name": pd.array(rows["name"], dtype="string")}),
        )
    ):
        store = client.store(f"{batch_name}-{number}")
        pushed = store.push(source, key="id", create=True, progress=False)
        assert (pushed["version"], pushed["records"]) == (1, 3)
        assert list(store.get_many([1, 3, 4])) == [b'{"name":"a","score":0.5}', b'{"name":null,"score":2.5}', None]
        checksums.add(store.versions()[0]["bytes"])
    assert len(checksums) == 1


def test_a_pushed_version_is_read_at_once_and_rolled_back(client: fondaco.Client, batch_name: str) -> None:
    store = client.store(batch_name)
    for number in (1, 2, 3):
        pushed = store.push(pa.table({"k": ["a"], "v": [str(number)]}), key="k", value="v", create=True)
        assert pushed["version"] == number
        assert store.get("a") == str(number).encode()
        assert store.get_many(["a"]).versions == {batch_name: number}
    assert store.rollback()["current_version"] == 2
    assert store.get("a") == b"2"
    assert store.swap(3)["current_version"] == 3
    assert store.get("a") == b"3"
    assert [version["version"] for version in store.versions()][:1] == [3]


def test_binary_keys_and_values_are_pushed_as_they_are(client: fondaco.Client, batch_name: str) -> None:
    rows = pa.table({"k": [b"\x00\xff", b"b:c"], "v": [b"\xfe\x00", b""]})
    store = client.store(batch_name)
    store.push(rows, key="k", value="v", create=True)
    assert list(store.get_many([b"\x00\xff", "b:c"])) == [b"\xfe\x00", b""]


def test_a_key_may_have_several_columns(client: fondaco.Client, batch_name: str) -> None:
    store = client.store(batch_name)
    store.push(pa.table({"a": ["x"], "b": [7], "v": ["one"]}), key=["a", "b"], value="v", create=True)
    assert store.get("x:7") == b"one"


TYPES: dict[str, Any] = {
    "boolean": pa.array([True, None]),
    "int8": pa.array([-128, None], pa.int8()),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "float32": pa.array([0.1, None], pa.float32()),
    "float64": pa.array([1e300, None]),
    "text": pa.array(["ü\n\"", None]),
    "large_text": pa.array(["x" * 1000, None], pa.large_string()),
    "category": pa.array(["a", None]).dictionary_encode(),
    "date": pa.array([datetime.date(1969, 7, 20), None]),
    "micros": pa.array([datetime.datetime(2026, 1, 31, 23, 59, 59, 999_999), None], pa.timestamp("us")),
    "zoned": pa.array([datetime.datetime(2026, 1, 31, tzinfo=datetime.timezone.utc), None], pa.timestamp("ms", "UTC")),
    "time": pa.array([datetime.time(23, 59, 59, 1), None], pa.time64("us")),
    "decimal": pa.array([decimal.Decimal("-12345.67890"), None], pa.decimal128(20, 5)),
    "list": pa.array([[1, None, 3], None]),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None]),
    "structs": pa.array([[{"d": datetime.date(2026, 1, 1)}], None]),
    "vector": pa.array([[0.5, 0.25], None], pa.list_(pa.float32(), 2)),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
}


def test_every_value_comes_back_with_its_type(client: fondaco.Client, batch_name: str) -> None:
    rows = pa.table({"id": [1, 2], **TYPES})
    store = client.store(batch_name)
    store.push(rows, key="id", create=True)
    read = pa.table(store.get_many([1, 2]).to_arrow())
    expected = {name: column.to_pylist() for name, column in zip(rows.column_names, rows.columns)}
    found = {name: column.to_pylist() for name, column in zip(read.column_names, read.columns)}
    assert found == expected
    objects = store.get_many([1, 2, 3]).rows()
    assert objects[2] is None
    for name, values in expected.items():
        if name != "id":
            assert [row[name] for row in objects[:2]] == values, name


def test_a_scan_has_every_row_once_with_its_types(client: fondaco.Client, batch_name: str) -> None:
    rows = pa.table({"id": pa.array(range(10_000), pa.int32()), "n": [number / 4 for number in range(10_000)]})
    store = client.store(batch_name)
    store.push(rows, key="id", create=True)
    batches = list(store.scan().to_batches())
    assert sum(map(len, batches)) == 10_000
    scanned = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    assert scanned.sort_by("id").cast(rows.schema).equals(rows)
    assert pl.DataFrame(store.scan().to_arrow()).sort("id").equals(pl.DataFrame(rows))
    assert store.scan(raw=True).schema.column_names == ["key", "value"]


def test_an_export_is_read_by_pyarrow(client: fondaco.Client, batch_name: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = pa.table({"id": [1, 2], "day": [datetime.date(2026, 1, 1), None]})
    store = client.store(batch_name)
    store.push(rows, key="id", create=True)
    report = store.export(tmp_path / "rows.parquet")
    assert report["records"] == 2
    assert parquet.read_table(tmp_path / "rows.parquet").sort_by("id").cast(rows.schema).equals(rows)
    store.export(tmp_path / "rows.arrow", format="arrow")
    with pa.ipc.open_stream((tmp_path / "rows.arrow").open("rb")) as stream:
        assert stream.read_all().sort_by("id").cast(rows.schema).equals(rows)
    with pytest.raises(fondaco.BadInput, match="parquet"):
        store.export(tmp_path / "rows.orc", format="orc")


def test_an_incremental_push_changes_and_keeps(client: fondaco.Client, batch_name: str) -> None:
    store = client.store(batch_name)
    store.push(pa.table({"k": ["a", "b"], "v": ["1", "2"]}), key="k", value="v", create=True)
    store.push(pa.table({"k": ["b", "c"], "v": ["3", "4"]}), key="k", value="v", incremental=True)
    assert list(store.get_many(["a", "b", "c"])) == [b"1", b"3", b"4"]


def test_a_run_is_pushed_once(client: fondaco.Client, batch_name: str) -> None:
    store = client.store(batch_name)
    first = store.push(pa.table({"k": ["a"], "v": ["1"]}), key="k", value="v", create=True, run="day-1")
    again = store.push(pa.table({"k": ["a"], "v": ["other"]}), key="k", value="v", run="day-1")
    assert (first["version"], again["version"], again["run"]) == (1, 1, "day-1")
    assert store.get("a") == b"1"


def test_a_version_is_built_without_a_deploy_and_deployed_later(
    client: fondaco.Client, batch_name: str, tmp_path: Path
) -> None:
    client.create_store(batch_name)
    store = client.store(batch_name)
    built = store.push(pa.table({"k": ["a"], "v": ["1"]}), key="k", value="v", deploy=False, output=f"file://{tmp_path}/v")
    assert (built["version"], built["records"]) == (None, 1)
    with pytest.raises(fondaco.NoVersion):
        store.get("a")
    assert store.deploy(tmp_path / "v", run="r")["version"] == 1
    assert store.get("a") == b"1"
    with fondaco.open(tmp_path / "v") as reader:
        assert reader.get("a") == b"1"


def test_progress_is_reported_and_may_stop_a_push(client: fondaco.Client, batch_name: str) -> None:
    steps: list[str] = []
    rows = pa.table({"k": ["a"], "v": ["1"]})
    client.store(batch_name).push(
        rows, key="k", create=True, progress=lambda step, fraction, details: steps.append(step)
    )
    assert "note" in steps

    def fail(step: str, fraction: float | None, details: str) -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        client.store(batch_name).push(rows, key="k", progress=fail)
    assert len(client.store(batch_name).versions()) == 1


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (pa.table({"k": ["a", None], "v": ["1", "2"]}), {}, "null"),
        (pa.table({"k": ["a", "b", "a"], "v": ["1", "2", "3"]}), {}, '"a" occurs twice'),
        (pa.table({"k": ["a"], "v": ["1"]}), {"key": "none"}, '"none"'),
        (pa.table({"k": ["a"], "v": [float("nan")]}), {}, "NaN"),
        (pa.table({"k": ["a"], "v": ["1"]}), {"on_duplicate": "maybe"}, "on_duplicate"),
        (pa.table({"k": ["a"], "v": ["1"]}), {"value": "v", "values": ["v"]}, "not both"),
        (pa.table({"k": pa.array([], pa.string()), "v": pa.array([], pa.string())}), {}, "no rows"),
        (pa.table({"k": [[1, 2]], "v": ["1"]}), {}, "k"),
        ([{"k": "a"}], {}, "no Arrow stream"),
    ],
)
def test_bad_rows_are_named_and_nothing_is_pushed(
    client: fondaco.Client, batch_name: str, rows: object, options: dict[str, Any], message: str
) -> None:
    client.create_store(batch_name)
    store = client.store(batch_name)
    with pytest.raises(fondaco.BadInput, match=message):
        store.push(rows, **{"key": "k", **options})
    assert store.versions() == []


def test_a_null_key_is_named_by_its_row(client: fondaco.Client, batch_name: str) -> None:
    rows = pa.table({"k": ["a"] * 0 + [str(n) for n in range(6)] + [None], "v": list(range(7))})
    with pytest.raises(fondaco.BadInput, match="row 7"):
        client.store(batch_name).push(rows, key="k", create=True)


def test_a_changed_schema_is_refused_by_an_incremental_push(client: fondaco.Client, batch_name: str) -> None:
    store = client.store(batch_name)
    store.push(pa.table({"k": ["a"], "n": [1]}), key="k", create=True)
    with pytest.raises(fondaco.BadInput, match='"other" \\(Utf8\\) is new, "n" \\(Int64\\) is gone'):
        store.push(pa.table({"k": ["b"], "other": ["x"]}), key="k", incremental=True)
    with pytest.raises(fondaco.BadInput, match='"n" was Int64 and is Utf8'):
        store.push(pa.table({"k": ["b"], "n": ["x"]}), key="k", incremental=True)
    assert store.get("a") == b'{"n":1}'
    assert [version["version"] for version in store.versions()] == [1]


def test_a_missing_directory_is_named_and_creates_no_store(client: fondaco.Client, batch_name: str, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(fondaco.FondacoError) as caught:
        client.store(batch_name).push(pa.table({"k": ["a"], "v": ["1"]}), key="k", create=True, temporary=missing)
    assert str(missing) in str(caught.value)
    assert batch_name not in [store["name"] for store in client.stores()]


def test_a_failing_source_fails_the_push(client: fondaco.Client, batch_name: str) -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.string()})

    def batches() -> Iterator[Any]:
        yield pa.record_batch({"k": ["a"], "v": ["1"]}, schema)
        raise ValueError("the source broke")

    client.create_store(batch_name)
    with pytest.raises(fondaco.BadInput, match="the source broke"):
        client.store(batch_name).push(pa.RecordBatchReader.from_batches(schema, batches()), key="k")
    assert client.store(batch_name).versions() == []


def test_ctrl_c_cancels_a_push_and_leaves_nothing(cluster: Cluster, batch_name: str, tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, fondaco, pyarrow as pa
        schema = pa.schema({"k": pa.int64(), "v": pa.string()})
        def batches():
            start = 0
            while True:
                yield pa.record_batch({"k": range(start, start + 1000), "v": ["x" * 100] * 1000}, schema)
                start += 1000
        rows = pa.RecordBatchReader.from_batches(schema, batches())
        def report(step, fraction, details):
            print(step, flush=True)
        client = fondaco.connect(sys.argv[1], http=sys.argv[2])
        client.store(sys.argv[3]).push(rows, key="k", create=True, temporary=sys.argv[4], progress=report)
        """
    )
    work = tmp_path / "work"
    work.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", program, cluster.resp, cluster.http, batch_name, str(work)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "reading"
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in error, error
    assert os.listdir(work) == []
    with cluster.connect() as client:
        assert batch_name not in [store["name"] for store in client.stores()]


def test_ctrl_c_interrupts_a_waiting_call(tmp_path: Path) -> None:
    program = "import fondaco\nprint('begun', flush=True)\nfondaco.connect('127.0.0.1:1', connect_ms=60_000)"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "begun"
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in error, error
    assert time.monotonic() - began < 30


def test_a_push_to_a_dropped_store_fails(client: fondaco.Client, batch_name: str) -> None:
    with pytest.raises(fondaco.NoStore) as caught:
        client.store(batch_name).push(pa.table({"k": ["a"], "v": ["1"]}), key="k")
    assert caught.value.code == "store_not_found"
    assert json.dumps(caught.value.remedy)
    await_that("nothing is made", lambda: batch_name not in [store["name"] for store in client.stores()])
