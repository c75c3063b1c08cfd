"""Look-ups from Python: `get_many` of 100 keys beside redis-py with hiredis, at the same node, and keys a second into Arrow.

    cargo build --release --bin fondaco && pip install ./python redis hiredis pyarrow numpy
    python python/bench/get_many.py target/release/fondaco

Both clients get the same random keys, one request at a time, and end with a list of bytes. Rounds alternate; the median counts.
Requests by a bare socket, whose replies nobody parses, are the limit.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import fondaco
import numpy as np
import pyarrow as pa
import redis

ROUNDS = 9
REQUESTS = 2000
KEYS = 100
VALUE_BYTES = 100


def start(program: str, directory: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """A node with all rows."""
    out = Path(directory) / "addresses.json"
    with out.open("wb") as file:
        process = subprocess.Popen(
            [program, "dev", "--data", f"{directory}/data", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"],
            stdout=file,
        )
    while not (text := out.read_text()).rstrip().endswith("}"):
        time.sleep(0.05)
    return process, json.loads(text)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--rows", type=int, default=1_000_000)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        process, addresses = start(given.program, directory)
        try:
            measure(addresses, given.rows)
        finally:
            process.kill()
            process.wait()


def resp(words: list[bytes]) -> bytes:
    """A request."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def round_trip(host: str, port: int, requests: list[bytes], reply_bytes: int) -> float:
    """The time for each request without a client: the limit for one that sends one request at a time. Replies are not parsed."""
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        for request in requests:
            connection.sendall(request)
            received = 0
            while received < reply_bytes:
                received += len(connection.recv(1 << 16))
        return (time.perf_counter() - began) / len(requests)


def measure(addresses: dict[str, str], rows: int) -> None:
    client = fondaco.connect(addresses["resp"], http=addresses["http"], deadline_ms=60_000)
    store = client.store("bench")
    values = pa.array([b"x" * VALUE_BYTES] * rows)
    store.push(pa.table({"k": pa.array(range(rows)), "v": values}), key="k", value="v", create=True)
    host, port = addresses["resp"].split(":")
    other = redis.Redis(host, int(port))
    random = np.random.default_rng(7)
    requests = [[str(key) for key in random.integers(0, rows, KEYS)] for _ in range(REQUESTS)]
    named = [[f"bench:{key}" for key in keys] for keys in requests]
    assert list(store.get_many(requests[0])) == other.mget(named[0])
    ours, theirs = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for keys in requests:
            list(store.get_many(keys))
        ours.append((time.perf_counter() - began) / REQUESTS)
        began = time.perf_counter()
        for keys in named:
            other.mget(keys)
        theirs.append((time.perf_counter() - began) / REQUESTS)
    us, them = statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6
    print(f"get_many of {KEYS} keys: {us:.0f} µs; redis-py with hiredis: {them:.0f} µs; {them / us:.2f} times as fast")
    for name, request, reply_bytes in (("PING", [b"PING"], len(b"+PONG\r\n")), ("MGET of 100 keys", None, KEYS * 108 + 6)):
        texts = [resp(request or [b"MGET", *map(str.encode, keys)]) for keys in named]
        print(f"a bare socket, {name}: {round_trip(host, int(port), texts, reply_bytes) * 1e6:.0f} µs")
    ids = random.integers(0, rows, min(rows, 1_000_000))
    rates = []
    for _ in range(5):
        began = time.perf_counter()
        table = store.get_many(pa.array(ids)).to_arrow()
        rates.append(len(table) / (time.perf_counter() - began))
    print(f"get_many of {len(ids)} keys into Arrow: {statistics.median(rates):,.0f} keys a second")


main()
