"""The embedded reader: a version in a directory, and a store that is followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fondaco
import pytest
from conftest import Cluster

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def version(client: fondaco.Client, batch_name: str, tmp_path: Path) -> Path:
    """A version of a thousand rows in a directory."""
    rows = pa.table({"id": range(1000), "name": [f"name {n}" for n in range(1000)], "n": range(1000)})
    client.create_store(batch_name)
    client.store(batch_name).push(rows, key="id", deploy=False, output=f"file://{tmp_path}/version")
    return tmp_path / "version"


def test_a_version_is_read_without_a_server(version: Path, batch_name: str) -> None:
    with fondaco.open(version) as reader:
        assert (len(reader), reader.store, reader.version) == (1000, batch_name, None)
        assert reader.schema.column_names == ["id", "name", "n"]
        assert reader.get(7) == b'{"name":"name 7","n":7}'
        assert reader.get("none") is None
        assert reader.row(7) == {"name": "name 7", "n": 7}
        values = reader.get_many([1, "none", 999])
        assert values.rows() == [{"name": "name 1", "n": 1}, None, {"name": "name 999", "n": 999}]
        table = pa.table(reader.get_many(range(1000)).to_arrow())
        assert table.column("id").to_pylist() == list(range(1000))
        assert table.schema.field("n").type == pa.int64()
        scanned = pa.table(reader.scan().to_arrow()).sort_by("id")
        assert scanned.column("n").to_pylist() == list(range(1000))
        reader.warm()
    with pytest.raises(fondaco.BadInput, match="closed"):
        reader.get(1)


def test_what_is_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fondaco.FondacoError, match="manifest"):
        fondaco.open(tmp_path)
    with pytest.raises(fondaco.BadInput, match="follow=True"):
        fondaco.open(tmp_path, http="127.0.0.1:6580")
    with pytest.raises(fondaco.BadInput, match="directory"):
        fondaco.open("store", follow=True)


def test_a_damaged_version_is_never_data(version: Path) -> None:
    [data, *_] = sorted(version.glob("*.data"), key=lambda file: -file.stat().st_size)
    with data.open("r+b") as file:
        file.seek(data.stat().st_size // 2)
        file.write(b"\xff" * 16)
    with fondaco.open(version) as reader:
        with pytest.raises(fondaco.Corrupt):
            reader.get_many(range(1000))


def test_a_version_is_scanned_and_exported_by_its_place(version: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert len(fondaco.scan(version).to_arrow()) == 1000
    assert fondaco.export(version, tmp_path / "rows.parquet")["records"] == 1000
    assert parquet.read_table(tmp_path / "rows.parquet").num_rows == 1000


def test_a_store_is_followed_through_its_swaps(
    cluster: Cluster, client: fondaco.Client, batch_name: str, tmp_path: Path
) -> None:
    store = client.store(batch_name)
    store.push(pa.table({"k": ["a"], "v": ["1"]}), key="k", value="v", create=True)
    with fondaco.open(batch_name, follow=True, http=cluster.http, directory=tmp_path / "d", poll_ms=50) as reader:
        assert (reader.get("a"), reader.version) == (b"1", 1)
        store.push(pa.table({"k": ["a"], "v": ["2"]}), key="k", value="v")
        reader.wait_for(2)
        assert reader.get("a") == b"2"
        assert reader.status() == ("current", 2, 2, None, None)
        store.rollback()
        reader.wait_for(1)
        assert reader.get("a") == b"1"
        with pytest.raises(fondaco.Conflict, match="in use"):
            fondaco.open(batch_name, follow=True, http=cluster.http, directory=tmp_path / "d")
        with pytest.raises(fondaco.Timeout):
            reader.wait_for(9, timeout_ms=10)


def test_the_cluster_answers_before_the_first_version_is_here(
    cluster: Cluster, client: fondaco.Client, batch_name: str, tmp_path: Path
) -> None:
    store = client.store(batch_name)
    rows = pa.table({"k": [str(n) for n in range(5000)], "v": [f"{n:0>100}" for n in range(5000)]})
    store.push(rows, key="k", value="v", create=True)
    slow: dict[str, Any] = {"rate_limit_bytes_per_second": 20_000, "first_version_ms": 0}
    with fondaco.open(batch_name, follow=True, http=cluster.http, directory=tmp_path / "a", **slow) as reader:
        assert reader.version is None
        assert (reader.get("7"), reader.get("none"), reader.store) == (b"7".rjust(100, b"0"), None, batch_name)
        assert list(reader.get_many(["1", "none"])) == [b"1".rjust(100, b"0"), None]
        with pytest.raises(fondaco.NoVersion):
            reader.scan()
    with fondaco.open(
        batch_name, follow=True, http=cluster.http, directory=tmp_path / "b", fallback=False, **slow
    ) as reader:
        with pytest.raises(fondaco.NoVersion):
            reader.get("7")


def test_a_hybrid_store_of_a_log_is_refused(
    cluster: Cluster, client: fondaco.Client, batch_name: str, tmp_path: Path
) -> None:
    client.create_store(batch_name, kind="hybrid", stream={"source": "log"})
    client.store(batch_name).push(pa.table({"k": ["a"], "v": ["1"]}), key="k", value="v")
    with pytest.raises(fondaco.WrongType, match="kafka://"):
        fondaco.open(batch_name, follow=True, http=cluster.http, directory=tmp_path)


def test_versioned_stores_are_not_followed(cluster: Cluster, versioned: fondaco.Store, tmp_path: Path) -> None:
    with pytest.raises(fondaco.WrongType, match="versioned"):
        fondaco.open(versioned.name, follow=True, http=cluster.http, directory=tmp_path)
    with pytest.raises(fondaco.NoStore):
        fondaco.open("none", follow=True, http=cluster.http, directory=tmp_path / "other")
