"""Feast on fondaco beside Feast on Redis: latency of reads, and bytes.

    tests/feast/run --bench

Each round asks every store the same question, one after the other, so that a busy moment of the machine meets all of them.
The online store by itself is measured (`online_read`), and the whole of `get_online_features`, most of which is Feast's own
work. Redis has one process and fondaco one node; the client shares the machine with them.
"""

import argparse
import gc
import os
import pathlib
import random
import socket
import statistics
import subprocess
import tempfile
import time
from datetime import datetime, timedelta, timezone

import pandas as pd
from conftest import await_that, started
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Float64, Int64, String
from fondaco.feast.keys import serialize

FEATURES = {
    **{f"rate_{n}": Float64 for n in range(5)},
    **{f"count_{n}": Int64 for n in range(3)},
    "city": String,
    "car": String,
}
NOW = datetime.now(timezone.utc).replace(microsecond=0)
BATCHES = {1: 3000, 10: 1500, 100: 400}


def make_rows(count):
    pick = random.Random(1)
    columns = {"driver": range(count), "event_timestamp": [NOW] * count}
    for name, dtype in FEATURES.items():
        make = {
            Float64: pick.random,
            Int64: lambda: pick.randrange(10**6),
            String: lambda: f"{name}-{pick.randrange(1000)}",
        }[dtype]
        columns[name] = [make() for _ in range(count)]
    return pd.DataFrame(columns)


def feature_store(directory, name, online, path, engine="local"):
    config = RepoConfig(
        project=name, registry=str(directory / f"{name}.db"), provider="local", entity_key_serialization_version=3,
        offline_store={"type": "file"}, online_store=online, batch_engine=engine,
    )  # fmt: skip
    store = FeatureStore(config=config)
    driver = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)
    view = FeatureView(
        name="drivers", entities=[driver], schema=[Field(name=n, dtype=d) for n, d in FEATURES.items()],
        source=FileSource(path=path, timestamp_field="event_timestamp"), ttl=timedelta(0),
    )  # fmt: skip
    store.apply([driver, view])
    begin = time.perf_counter()
    store.materialize(NOW - timedelta(days=1), NOW + timedelta(hours=1))
    print(f"{name}: materialised in {time.perf_counter() - begin:.1f} s", flush=True)
    return store, view


def percentile(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def measure(stores, ask, size, rounds, count):
    # A full collection of Feast's objects takes 100 ms, whatever the store.
    gc.collect()
    gc.freeze()
    times = {name: [] for name in stores}
    pick = random.Random(size)
    for number in range(rounds + rounds // 10):
        drivers = [pick.randrange(count) for _ in range(size)]
        for name, (store, view) in stores.items():
            question = ask(store, view, drivers)
            begin = time.perf_counter_ns()
            question()
            if number >= rounds // 10:
                times[name].append((time.perf_counter_ns() - begin) / 1000)
    return times


def key_of(driver):
    return EntityKey(join_keys=["driver"], entity_values=[Value(int64_val=driver)])


def ask_online_store(store, view, drivers):
    online, config = store._get_provider().online_store, store.config
    keys = [key_of(driver) for driver in drivers]
    return lambda: online.online_read(config, view, keys, list(FEATURES))


def ask_feast(store, view, drivers):
    names, rows = [f"drivers:{name}" for name in FEATURES], [{"driver": driver} for driver in drivers]
    return lambda: store.get_online_features(names, rows)


def redis_memory(port):
    lines = subprocess.run(["redis-cli", "-p", str(port), "info", "memory"], capture_output=True, text=True, check=True)
    return int(next(line for line in lines.stdout.splitlines() if line.startswith("used_memory:")).split(":")[1])


def row_bytes(store):
    """The bytes of a key and its value, of a hundred rows."""
    online, config = store._get_provider().online_store, store.config
    keys = serialize([key_of(driver) for driver in range(100)], 3)
    values = online.connect(config).store("versioned.drivers").get_many(keys)
    return sum(map(len, [*keys, *values])) / len(keys)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--share", type=float, default=1.0, help="this share of the rounds")
    options = parser.parse_args()
    count = options.rows
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        path = str(directory / "drivers.parquet")
        make_rows(count).to_parquet(path)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        redis = subprocess.Popen(
            ["redis-server", "--port", str(port), "--save", "", "--dir", temporary], stdout=subprocess.DEVNULL
        )
        try:
            await_that(
                lambda: not subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).returncode,
                "Redis",
            )
            empty = redis_memory(port)
            with started(directory) as node:
                online = {"type": "fondaco.feast.FondacoOnlineStore", "resp": node.resp, "http": node.http}
                stores = {
                    "redis": feature_store(
                        directory, "redis", {"type": "redis", "connection_string": f"127.0.0.1:{port}"}, path
                    )
                }
                redis_bytes = (redis_memory(port) - empty) / count
                stores["versioned"] = feature_store(directory, "versioned", online, path)
                engine = {"type": "fondaco.feast.FondacoComputeEngine"}
                stores["batch"] = feature_store(directory, "batch", {**online, "kind": "batch"}, path, engine)
                print(f"\n{count} rows of {len(FEATURES)} features; {os.environ.get('FONDACO_BINARY', 'target/debug')}")
                version = node.json("versions", "batch.drivers")["versions"][0]
                print(
                    f"bytes a row: redis {redis_bytes:.0f} in memory; fondaco {row_bytes(stores['versioned'][0]):.0f} of key and "
                    f"value, {version['bytes'] / count:.0f} in a version on disk with its index\n"
                )
                print("| | entities | store | median µs | p99 µs | redis / it, median | p99 |")
                print("|---|---|---|---|---|---|---|")
                for title, ask in [("online_read", ask_online_store), ("get_online_features", ask_feast)]:
                    for size, rounds in BATCHES.items():
                        times = measure(stores, ask, size, max(20, int(rounds * options.share)), count)
                        redis_times = times["redis"]
                        for name, of in times.items():
                            median, p99 = statistics.median(of), percentile(of, 0.99)
                            ratios = statistics.median(redis_times) / median, percentile(redis_times, 0.99) / p99
                            print(
                                f"| {title} | {size} | {name} | {median:.0f} | {p99:.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} |"
                            )
        finally:
            redis.terminate()
            redis.wait()


if __name__ == "__main__":
    main()
