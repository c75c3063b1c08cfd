#!/usr/bin/env python3
"""Measures changes of single edges of a versioned graph, beside the same as sets in Redis (SADD and SREM in both directions).

    bench/graph/changes.py [--fondaco PROGRAM] [--output FILE]

fondaco is a development cluster of three nodes and a router, each edge at quorums of two of three; Redis is one process, with an
append-only file synced every second, and no copies. Needs redis-server and the Python client redis. Writes a table.
"""

import argparse
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import redis
from peers.processes import directory_bytes, free_port, start, stop, wait_until

ROOT = Path(__file__).resolve().parents[2]
HUB, SMALL = 30_000, 100
CHANGES, READS, BATCH = 500, 50, 500
VERTICES, LOADED, LOADED_BATCH = 2_000, 200_000, 2_000


class Fondaco:
    name = "fondaco, 3 copies"

    def __init__(self, program, work):
        resp, http = free_port(), free_port()
        arguments = ["--nodes", "3", "--replicas", "3", "--resp", f"127.0.0.1:{resp}", "--http", f"127.0.0.1:{http}"]
        self.data = work / "fondaco"
        self.process = start([program, "dev", "--data", self.data, *arguments], work / "fondaco.log")
        self.client = redis.Redis(port=resp, socket_timeout=60)
        create = ["store", "create", "social", "--kind", "versioned", "--value-type", "graph", "--http", f"127.0.0.1:{http}"]
        wait_until(lambda: self.run(program, create), "the cluster")
        wait_until(lambda: self.client.execute_command("FONDACO.EDGE", "DECLARE", "social", "KNOWS", "SYMMETRIC"), "the store")

    def run(self, program, arguments):
        subprocess.run([program, *arguments], check=True, capture_output=True)

    def add(self, pairs):
        names = [name for pair in pairs for name in pair]
        self.client.execute_command("FONDACO.EDGE", "ADD", "social", "KNOWS", *names)

    def remove(self, pair):
        self.client.execute_command("FONDACO.EDGE", "REMOVE", "social", "KNOWS", *pair)

    def neighbours(self, name):
        id = self.client.get(f"social:id:{name}")
        return len(self.client.execute_command("FONDACO.GRAPH", "NEIGHBOURS", "IDS", "social", "KNOWS", id))


class Redis:
    name = "Redis, 1 copy"

    def __init__(self, work):
        port = free_port()
        self.data = work / "redis"
        self.data.mkdir()
        options = ["--port", str(port), "--dir", self.data, "--save", "", "--appendonly", "yes"]
        self.process = start(["redis-server", *options], work / "redis.log")
        self.client = redis.Redis(port=port)
        wait_until(self.client.ping, "Redis")

    def add(self, pairs):
        pipeline = self.client.pipeline()
        for one, other in pairs:
            pipeline.sadd(one, other)
            pipeline.sadd(other, one)
        pipeline.execute()

    def remove(self, pair):
        pipeline = self.client.pipeline()
        pipeline.srem(*pair)
        pipeline.srem(*reversed(pair))
        pipeline.execute()

    def neighbours(self, name):
        return len(self.client.smembers(name))


def milliseconds(times, work):
    took = []
    for number in range(times):
        began = time.perf_counter()
        work(number)
        took.append((time.perf_counter() - began) * 1e3)
    took.sort()
    return took[len(took) // 2], took[int(len(took) * 0.99)]


def measure(peer):
    rows = {}
    began = time.perf_counter()
    for first in range(0, HUB, BATCH):
        peer.add([("hub", f"v{number}") for number in range(first, first + BATCH)])
    rows[f"{HUB} edges of one vertex, {BATCH} at a time, edges/s"] = (HUB / (time.perf_counter() - began),)
    peer.add([("small", f"v{number}") for number in range(SMALL)])
    for name, known in (("small", SMALL), ("hub", HUB)):
        peer.add([(name, f"new{number}") for number in range(CHANGES)])
        for number in range(CHANGES):
            peer.remove((name, f"new{number}"))
        rows[f"add an edge to a vertex with {known}, ms"] = milliseconds(
            CHANGES, lambda number: peer.add([(name, f"new{number}")])
        )
        rows[f"remove an edge of a vertex with {known}, ms"] = milliseconds(
            CHANGES, lambda number: peer.remove((name, f"new{number}"))
        )
        assert peer.neighbours(name) == known, (peer.name, name, peer.neighbours(name))
        rows[f"read the {known} neighbours, ms"] = milliseconds(READS, lambda _: peer.neighbours(name))
    stop(peer.process)
    rows["bytes on disk for each edge, copies and logs included"] = (directory_bytes(peer.data) / (HUB + SMALL),)
    return rows


def measure_load(peer):
    """Loads random edges between vertices that are there, so that the figures are those of edges alone."""
    names = [f"v{number}" for number in range(VERTICES)]
    peer.add(list(zip(names, names[1:] + names[:1])))
    chosen = random.Random(7)
    edges = set()
    while len(edges) < LOADED:
        edges.add(tuple(sorted(chosen.sample(range(VERTICES), 2))))
    edges = [(names[one], names[other]) for one, other in edges]
    chosen.shuffle(edges)
    began = time.perf_counter()
    for first in range(0, LOADED, LOADED_BATCH):
        peer.add(edges[first : first + LOADED_BATCH])
    loaded = f"{LOADED} random edges of {VERTICES} known vertices"
    rows = {f"{loaded}, {LOADED_BATCH} at a time, edges/s": (LOADED / (time.perf_counter() - began),)}
    stop(peer.process)
    rows[f"{loaded}, bytes on disk for each"] = (directory_bytes(peer.data) / LOADED,)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fondaco", default=str(ROOT / "target/release/fondaco"))
    parser.add_argument("--output", default=str(ROOT / "bench/results/graph-changes.md"))
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="graph-changes-"))
    peers = []
    try:
        measured = []
        for make in (lambda at: Fondaco(options.fondaco, at), Redis):
            rows = {}
            for measuring in (measure, measure_load):
                place = work / measuring.__name__
                place.mkdir(exist_ok=True)
                peers.append(make(place))
                rows |= measuring(peers[-1])
            measured.append(rows)
    finally:
        for peer in peers:
            stop(peer.process)
        shutil.rmtree(work)
    lines = ["| median (p99) | " + " | ".join([Fondaco.name, Redis.name]) + " | ratio |", "|---|---|---|---|"]
    for row in measured[0]:
        ours, theirs = (rows[row] for rows in measured)
        text = [f"{of[0]:.3g}" + (f" ({of[1]:.3g})" if len(of) > 1 else "") for of in (ours, theirs)]
        lines.append(f"| {row} | {text[0]} | {text[1]} | {ours[0] / theirs[0]:.2f} |")
    table = "\n".join(lines) + "\n"
    print(table)
    head = "# Changes of single edges\n\nWritten by `bench/graph/changes.py`; three nodes, a router and the client share the machine.\n\n"
    Path(options.output).write_text(head + table)


if __name__ == "__main__":
    main()
