"""Look-ups and writes of a blocking client."""

from __future__ import annotations

import threading

import fondaco
import pytest


def test_a_written_value_is_read(versioned: fondaco.Store) -> None:
    versioned.put("a", "text")
    versioned.put(b"b", b"\x00bytes")
    versioned.put(3, bytearray(b"number"))
    assert versioned.get("a") == b"text"
    assert versioned.get(b"a") == b"text"
    assert versioned.get("3") == b"number"
    assert versioned.get("none") is None
    assert list(versioned.get_many(["a", b"b", 3, "none"])) == [b"text", b"\x00bytes", b"number", None]


def test_values_are_a_sequence(versioned: fondaco.Store) -> None:
    versioned.put_many([(i, str(i)) for i in range(5)])
    values = versioned.get_many(range(5))
    assert len(values) == 5
    assert values[-1] == b"4"
    assert values[1:4] == [b"1", b"2", b"3"]
    assert values[::-2] == [b"4", b"2", b"0"]
    assert list(values) == [b"0", b"1", b"2", b"3", b"4"]
    assert values == versioned.get_many(range(5)), "they are compared like lists"
    assert b"3" in values
    with pytest.raises(IndexError, match="5 values"):
        values[5]


def test_keys_may_be_arrays(versioned: fondaco.Store) -> None:
    np = pytest.importorskip("numpy")
    pa = pytest.importorskip("pyarrow")
    pl = pytest.importorskip("polars")
    pd = pytest.importorskip("pandas")
    versioned.put_many({"1": "one", "2": "two"})
    expected = [b"two", b"one", None]
    for keys in (
        np.array([2, 1, 3]),
        np.array(["2", "1", "3"]),
        [np.int64(2), np.uint8(1), 3],
        pa.array([2, 1, 3], pa.uint16()),
        pa.array(["2", "1", "3"], pa.large_string()),
        pa.array(["2", "1", "3"], pa.string_view()),
        pa.array([b"2", b"1", b"3"]),
        pa.chunked_array([["2"], ["1", "3"]]),
        pl.Series([2, 1, 3]),
        pl.Series(["2", "1", "3"]),
        pd.Series([2, 1, 3]),
        (key for key in ["2", "1", "3"]),
    ):
        assert list(versioned.get_many(keys)) == expected, keys


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a", None], "key 1 is null"),
        (["a", 1.5], "key 1 is a float"),
        ([True], "key 0 is a bool"),
        ("text", "as a list"),
        (["a", ""], "key 1"),
    ],
)
def test_a_bad_key_is_named(versioned: fondaco.Store, keys: object, message: str) -> None:
    with pytest.raises(fondaco.BadInput, match=message):
        versioned.get_many(keys)


def test_a_null_in_an_array_of_keys_is_named(versioned: fondaco.Store) -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(fondaco.BadInput, match="key 2 is null"):
        versioned.get_many(pa.array([1, 2, None]))
    with pytest.raises(fondaco.BadInput, match="array of Float64"):
        versioned.get_many(pa.array([1.5]))


def test_one_request_reads_several_stores(client: fondaco.Client, versioned: fondaco.Store) -> None:
    other = f"{versioned.name}-other"
    client.create_store(other, kind="versioned")
    versioned.put("k", "1")
    client.store(other).put("k", "2")
    assert list(client.mget([f"{versioned.name}:k", f"{other}:k", f"{other}:none"])) == [b"1", b"2", None]


def test_a_context_replaces_only_what_was_read(versioned: fondaco.Store) -> None:
    versioned.put("k", "old")
    values, context = versioned.get_context("k")
    assert values == [b"old"]
    versioned.put("k", "meanwhile")
    versioned.put("k", "new", context=context)
    values, context = versioned.get_context("k")
    assert sorted(values) == [b"meanwhile", b"new"]
    versioned.put("k", "merged", context=context)
    assert versioned.get_contexts(["k", "none"])[0][0] == [b"merged"]
    assert versioned.get_contexts(["none"])[0][0] == []


def test_many_keys_are_written_with_their_contexts(versioned: fondaco.Store) -> None:
    contexts = versioned.put_many({"a": "1", "b": "2"})
    versioned.put_many([("a", "3"), ("b", "4")], contexts=contexts)
    assert list(versioned.get_many(["a", "b"])) == [b"3", b"4"]
    versioned.delete_many(["a", "b"])
    assert list(versioned.get_many(["a", "b"])) == [None, None]
    with pytest.raises(fondaco.BadInput, match="1 keys, 1 values and 2 contexts"):
        versioned.put_many({"a": "1"}, contexts=contexts)
    with pytest.raises(fondaco.BadInput, match="context is not one"):
        versioned.put("a", "1", context=b"nonsense")


def test_a_value_expires(versioned: fondaco.Store) -> None:
    from conftest import await_that

    versioned.put("k", "v", ttl_ms=300)
    assert versioned.get("k") == b"v"
    await_that("the value expires", lambda: versioned.get("k") is None)


def test_updates_change_fields(client: fondaco.Client, versioned: fondaco.Store) -> None:
    assert versioned.update("user", {"set": {"name": "Ada"}, "increment": {"views": 2}}) == {"name": "Ada", "views": 2}
    assert versioned.update("user", {"set": {"name": None}, "add": {"tags": ["a"]}}) == {"views": 2, "tags": ["a"]}
    assert versioned.update("none", {"remove": {"tags": ["a"]}}) is None
    with pytest.raises(ValueError, match='field "tags"'):
        versioned.update("user", {"increment": {"tags": 1}})
    with pytest.raises(ValueError, match="unknown operation"):
        versioned.update("user", {"put": {"a": 1}})
    assert versioned.update("user", {"set": {"n": 1}}) == {"views": 2, "tags": ["a"], "n": 1}


def test_increments_add_up(client: fondaco.Client, versioned: fondaco.Store) -> None:
    assert versioned.increment("n") == 1
    assert versioned.increment("n", -3) == -2
    versioned.put("text", "abc")
    with pytest.raises(fondaco.BadInput, match="not an integer"):
        versioned.increment("text")
    assert versioned.get("text") == b"abc"
    name = f"{versioned.name}-counters"
    client.create_store(name, kind="versioned", versioned={"resolution": "counter"})
    counters = client.store(name)

    def count() -> None:
        for _ in range(25):
            counters.increment("n", 2)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.get("n") == b"200"


def test_sets_of_ids_are_computed(client: fondaco.Client, versioned: fondaco.Store) -> None:
    name = f"{versioned.name}-ids"
    client.create_store(name, kind="versioned", value_type="ids")
    sets = client.store(name)
    sets.put_ids("a", [3, 1, 2])
    sets.put_ids("b", [2, 3, 4])
    assert sets.ids("a") == [1, 2, 3]
    assert sets.union(["a", "b"]) == [1, 2, 3, 4]
    assert sets.intersection(["a", "b"]) == [2, 3]
    assert sets.difference(["a", "b"]) == [1]
    assert sets.intersects(["a", "b"]) is True
    assert sets.counts(["a", "b", "none"]) == [3, 3, 0]
    assert sets.top(["a", "b"], 2) == [(2, 2), (3, 2)]
    assert sets.contains(["a", "b"], [1, 2]) == [[True, True], [False, True]]
    with pytest.raises(fondaco.WrongType):
        versioned.union(["a"])


def knows(client: fondaco.Client, store: str) -> bool:
    """Whether the client has heard of a store."""
    try:
        client.store(store).get("k")
    except fondaco.FondacoError as error:
        return error.code != "NOSTORE"
    return True


def test_a_graph_is_queried(cluster: object, client: fondaco.Client, tmp_path: object, batch_name: str) -> None:
    from pathlib import Path

    from conftest import Cluster, await_that

    assert isinstance(cluster, Cluster) and isinstance(tmp_path, Path)
    edges = tmp_path / "edges.csv"
    edges.write_text("a,b\nAnna,Bob\nBob,Carl\n")
    cluster.run("push", batch_name, str(edges), "--edges", "a,b", "--type", "KNOWS", "--unknown-vertices", "add", "--create")
    graph = client.store(batch_name)
    await_that("the client knows the store that another program has made", lambda: knows(client, batch_name))
    answer = graph.query("MATCH (a {name: $name})-[:KNOWS]->(b) RETURN b.name", {"name": "Anna"})
    assert answer == {"columns": ["b.name"], "rows": [["Bob"]], "incomplete": None}
    with pytest.raises(fondaco.FondacoError) as caught:
        graph.query("MATCH nonsense")
    assert caught.value.code == "ERR"


def test_options_choose_replicas_and_limits(three_nodes: object) -> None:
    from conftest import Cluster

    assert isinstance(three_nodes, Cluster)
    with three_nodes.connect() as client:
        client.create_store("options", kind="versioned")
        store = client.store("options")
        store.put_many({i: str(i) for i in range(50)}, deadline_ms=10_000)
        for strategy in ("sticky", "nearest", "preferred", "round-robin", "set-cover", "cluster"):
            options = fondaco.ReadOptions(strategy=strategy, fan_out=1, deadline_ms=10_000, hedge=False)
            assert store.get_many(range(50), options)[7] == b"7"
        with pytest.raises(fondaco.BadInput, match="sticky"):
            store.get("1", fondaco.ReadOptions(strategy="nonsense"))
        with pytest.raises(fondaco.BadInput, match="no time limit"):
            store.get("1", fondaco.ReadOptions(deadline_ms=0))


def test_many_threads_share_a_client(versioned: fondaco.Store) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                versioned.put(f"{number}:{turn}", str(turn))
                assert versioned.get(f"{number}:{turn}") == str(turn).encode()
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
