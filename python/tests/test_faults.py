"""What happens when a store, a node, a process or a version of Python is not as expected."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import subprocess
import time
from pathlib import Path

import fondaco
import pytest
from conftest import Cluster, await_that


def closed_port() -> str:
    """An address at which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_cluster_that_cannot_be_reached_is_named() -> None:
    address = closed_port()
    with pytest.raises(fondaco.ConnectionError, match=address) as caught:
        fondaco.connect(address, connect_ms=200)
    assert caught.value.code == "UNAVAILABLE"
    assert caught.value.remedy
    assert isinstance(caught.value, ConnectionError)


def test_a_control_port_that_cannot_be_reached_is_named(cluster: Cluster) -> None:
    with fondaco.connect(cluster.resp, http=closed_port()) as client:
        with pytest.raises(fondaco.ConnectionError) as caught:
            client.stores()
        assert caught.value.code == "unreachable"


def test_an_unknown_store_is_named(client: fondaco.Client) -> None:
    with pytest.raises(fondaco.NoStore, match='"none"') as caught:
        client.store("none").get("k")
    assert caught.value.code == "NOSTORE"
    assert "create_store" in caught.value.remedy
    with pytest.raises(fondaco.BadInput, match="name"):
        client.store("not a name").get("k")


def test_a_store_that_is_dropped_meanwhile_is_gone(client: fondaco.Client, versioned: fondaco.Store) -> None:
    versioned.put("k", "v")
    client.drop_store(versioned.name, now=True)
    with pytest.raises(fondaco.NoStore):
        versioned.get("k")
    client.create_store(versioned.name, kind="versioned")
    assert versioned.get("k") is None


def test_a_batch_store_takes_no_single_keys(client: fondaco.Client, batch_name: str) -> None:
    client.create_store(batch_name)
    store = client.store(batch_name)
    with pytest.raises(fondaco.ReadOnly):
        store.put("k", "v")
    with pytest.raises(fondaco.NoVersion):
        store.get("k")
    with pytest.raises(fondaco.AlreadyExists):
        client.create_store(batch_name)


def test_a_node_that_is_gone_is_a_timeout_or_a_replaced_replica(three_nodes: Cluster) -> None:
    with three_nodes.connect(deadline_ms=10_000) as client:
        client.create_store("survives", kind="versioned", replicas=2, versioned={"reads": 1, "writes": 1, "sloppy": True})
        store = client.store("survives")
        store.put_many({n: str(n) for n in range(100)})
        victim = next(member["name"] for member in three_nodes.members if member["role"] == "node")
        client.control("POST", f"/v1/dev/members/{victim}/stop", {})
        try:
            assert store.get_many(range(100)).to_list().count(None) < 100
        finally:
            client.control("POST", f"/v1/dev/members/{victim}/start", {})


def test_keys_that_cannot_be_read_have_their_own_errors(client: fondaco.Client, versioned: fondaco.Store) -> None:
    versioned.put("k", "v")
    values = client.mget([f"{versioned.name}:k", "none:k"], fondaco.ReadOptions(partial=True))
    assert values[0] == b"v"
    assert list(values.errors()) == [1]
    with pytest.raises(fondaco.NoStore):
        values[1]


def test_keys_of_a_node_that_is_gone_are_late_and_not_absent(three_nodes: Cluster, batch_name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    numbers = list(range(100))
    with three_nodes.connect(deadline_ms=10_000) as client:
        client.create_store(batch_name, replicas=1)
        store = client.store(batch_name)
        store.push(pa.table({"id": numbers, "square": [n * n for n in numbers]}), key="id")
        keys = [*numbers, 1000]

        def read() -> fondaco.Values:
            return store.get_many(keys, deadline_ms=300, partial=True)

        all_there = read()
        assert (all_there.late, all_there.rows(late=True)[-1]) == ([], None)
        victim = next(member["name"] for member in three_nodes.members if member["role"] == "node")
        client.control("POST", f"/v1/dev/members/{victim}/stop", {})
        try:
            begun = time.monotonic()
            values = read()
            assert time.monotonic() - begun < 5
            late = values.late
            assert 0 < len(late) < len(numbers)
            assert list(values.errors()) == late
            rows = values.rows(late=True)
            for at, key in enumerate(keys):
                assert rows[at] == (None if at in late or key == 1000 else key * key)
            assert values.to_list(late=True)[keys.index(1000)] is None
            for read_all in (values.to_list, values.rows, values.to_arrow, lambda: values[late[0]]):
                with pytest.raises(fondaco.FondacoError):
                    read_all()
            table = pa.table(values.to_arrow(late="late"))
            assert table.column_names == ["id", "square", "late"]
            assert table["square"].to_pylist() == rows
            assert [at for at, is_late in enumerate(table["late"].to_pylist()) if is_late] == late
            with pytest.raises(fondaco.BadInput, match="square"):
                values.to_arrow(late="square")
            with pytest.raises(fondaco.FondacoError):
                store.get_many(keys, deadline_ms=300)
        finally:
            client.control("POST", f"/v1/dev/members/{victim}/start", {})
        # Another test may stop it, too.
        await_that("all keys can be read", lambda: read().late == [])


def test_a_deadline_is_kept(cluster: Cluster, versioned: fondaco.Store) -> None:
    with pytest.raises(fondaco.FondacoError) as caught:
        versioned.put("k", "v", deadline_ms=0.001)
    assert caught.value.code in ("TIMEOUT", "NOQUORUM")


def test_a_closed_client_says_so(cluster: Cluster) -> None:
    client = cluster.connect()
    client.close()
    client.close()
    with pytest.raises(fondaco.FondacoError, match="closed") as caught:
        client.stores()
    assert caught.value.code == "CLOSED"


def test_errors_can_be_pickled() -> None:
    error = fondaco.errors.of_code("NOSTORE", "no store")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code, again.remedy) == (fondaco.NoStore, "no store", "NOSTORE", error.remedy)


def in_child(resp: str, http: str, client: fondaco.Client, store: str) -> str:
    """What happens in a child after a fork."""
    try:
        client.store(store).get("k")
    except fondaco.Forked as error:
        refused = error.code
    else:
        refused = "not refused"
    with fondaco.connect(resp, http=http) as own:
        value = own.store(store).get("k")
    return f"{refused} {value!r}"


def test_a_client_is_refused_after_a_fork_and_a_new_one_works(cluster: Cluster, versioned: fondaco.Store) -> None:
    versioned.put("k", "v")
    with cluster.connect() as client:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                text = in_child(cluster.resp, cluster.http, client, versioned.name)
            except BaseException as error:  # noqa: BLE001
                text = repr(error)
            os.write(writer, text.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert pipe.read() == "FORKED b'v'"
        os.waitpid(child, 0)
        assert client.store(versioned.name).get("k") == b"v"


def get_in_process(resp: str, store: str) -> bytes | None:
    """A look-up in a process of its own."""
    with fondaco.connect(resp) as client:
        return client.store(store).get("k")


def test_spawned_processes_connect_themselves(cluster: Cluster, versioned: fondaco.Store) -> None:
    versioned.put("k", "v")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.starmap(get_in_process, [(cluster.resp, versioned.name)] * 4) == [b"v"] * 4


def test_an_old_python_is_refused_with_a_reason() -> None:
    old = sorted(Path.home().glob(".pyenv/versions/3.[6-9].*/bin/python"))
    if not old:
        pytest.skip("no Python before 3.10 is here")
    package = Path(fondaco.__file__).parents[1]
    done = subprocess.run([old[-1], "-c", "import fondaco"], cwd=package, capture_output=True, text=True)
    assert done.returncode == 1
    assert "fondaco needs Python 3.10 or later, and this is Python 3." in done.stderr
