"""The asyncio client: the same results, many event loops, cancelled tasks."""

from __future__ import annotations

import asyncio
import threading

import fondaco
import pytest
from conftest import Cluster


def test_coroutines_have_the_results_of_blocking_calls(cluster: Cluster, versioned: fondaco.Store) -> None:
    async def run() -> None:
        async with await fondaco.aio.connect(cluster.resp, http=cluster.http, deadline_ms=10_000) as client:
            store = client.store(versioned.name)
            context = await store.put("a", "1")
            await store.put("a", "2", context=context)
            assert await store.get("a") == b"2"
            await store.put_many({"b": "3", "c": "4"})
            values = await store.get_many(["a", "b", "none"])
            assert list(values) == [b"2", b"3", None]
            assert await store.increment("n", 5) == 5
            assert (await store.get_context("a"))[0] == [b"2"]
            await store.delete_many(["b", "c"])
            assert list(await client.mget([f"{versioned.name}:b"])) == [None]
            assert versioned.name in [found["name"] for found in await client.stores()]
            assert await store.row("a") == b"2"

    asyncio.run(run())


def test_errors_are_raised_where_they_are_awaited(cluster: Cluster) -> None:
    async def run() -> None:
        async with await fondaco.aio.connect(cluster.resp, http=cluster.http) as client:
            with pytest.raises(fondaco.NoStore):
                await client.store("none").get("k")
        with pytest.raises(fondaco.ConnectionError):
            await fondaco.aio.connect("127.0.0.1:1", connect_ms=100)

    asyncio.run(run())


def test_many_requests_are_under_way_at_a_time(cluster: Cluster, versioned: fondaco.Store) -> None:
    async def run() -> None:
        async with await fondaco.aio.connect(cluster.resp, deadline_ms=30_000) as client:
            store = client.store(versioned.name)
            await asyncio.gather(*(store.put(n, str(n)) for n in range(300)))
            assert await asyncio.gather(*(store.get(n) for n in range(300))) == [str(n).encode() for n in range(300)]

    asyncio.run(run())


def test_a_cancelled_task_stops_its_request(cluster: Cluster, versioned: fondaco.Store) -> None:
    async def run() -> None:
        async with await fondaco.aio.connect(cluster.resp, deadline_ms=10_000) as client:
            store = client.store(versioned.name)
            # A port at which nothing answers: connecting would take a minute.
            connecting = asyncio.ensure_future(fondaco.aio.connect("127.0.0.1:1", connect_ms=60_000))
            await asyncio.sleep(0)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(fondaco.aio.connect("127.0.0.1:1", connect_ms=60_000), 0.05)
            await store.put("k", "v")
            assert await store.get("k") == b"v"

    asyncio.run(run())


def test_event_loops_of_many_threads_share_a_client(cluster: Cluster, versioned: fondaco.Store) -> None:
    async def connect() -> fondaco.aio.Client:
        return await fondaco.aio.connect(cluster.resp, deadline_ms=30_000)

    client = asyncio.run(connect())
    failures: list[BaseException] = []

    async def work(number: int) -> None:
        store = client.store(versioned.name)
        for turn in range(20):
            await store.put(f"{number}:{turn}", "v")
            assert await store.get(f"{number}:{turn}") == b"v"

    def thread(number: int) -> None:
        try:
            asyncio.run(work(number))
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    client.close()
    assert failures == []


def test_a_call_outside_of_a_loop_says_so(cluster: Cluster) -> None:
    async def connect() -> fondaco.aio.Client:
        return await fondaco.aio.connect(cluster.resp)

    client = asyncio.run(connect())
    with pytest.raises(RuntimeError, match="no running event loop"):
        client.store("s").get("k")
    client.close()


def test_pushes_and_scans_are_awaited(cluster: Cluster, batch_name: str) -> None:
    pa = pytest.importorskip("pyarrow")

    async def run() -> None:
        async with await fondaco.aio.connect(cluster.resp, http=cluster.http, deadline_ms=10_000) as client:
            store = client.store(batch_name)
            pushed = await store.push(pa.table({"k": [1, 2], "v": ["a", "b"]}), key="k", create=True)
            assert pushed["version"] == 1
            assert await store.row(2) == "b"
            rows = 0
            async for batch in (await store.scan()).to_batches():
                rows += len(batch)
            assert rows == 2

    asyncio.run(run())
