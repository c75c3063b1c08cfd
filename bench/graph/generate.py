"""Generates the power-law graph of the benchmark, and the inputs of its queries.

Degrees follow a truncated power law (exponent 2.1, at most 10 000), joined by the configuration model: a vertex has as many
stubs as its degree, the stubs are shuffled and paired. Self-loops and duplicate edges are dropped, and more pairs are drawn
until the number of distinct edges is exact. Vertex 0 is the hub: it takes no part in the pairing and has exactly `hub` edges.

Files in the directory:

| file | content |
|---|---|
| `edges-NN.parquet` | columns `from`, `to`: names; each symmetric edge once |
| `vertices.parquet` | columns `name` (`v123`), `id` (123) |
| `edges.bin` | the same edges as pairs of little-endian 32-bit ids, for `csr` |
| `queries.txt` | one query a line: `network CLASS ID`, `badges SOURCE TARGET…`, `common A B` |
| `manifest.json` | the parameters, and figures of the graph |
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EXPONENT = 2.1
DEGREE_MAX = 10_000
EDGES_PER_FILE = 5_000_000
VERTICES_PER_CLASS = 20
BADGE_QUERIES = 200
BADGE_TARGETS = 25
COMMON_QUERIES = 200


def power_law(rng, vertices, mean, degree_max):
    """Degrees with the given mean: the smallest degree is found by bisection."""
    quantiles = rng.random(vertices)
    power = EXPONENT - 1

    def degrees(smallest):
        # The inverse of the distribution function, truncated at degree_max.
        cut = 1 - (smallest / degree_max) ** power
        return smallest * (1 - quantiles * cut) ** (-1 / power)

    low, high = 1.0, float(degree_max - 1)
    for _ in range(60):
        middle = (low + high) / 2
        if degrees(middle).mean() < mean:
            low = middle
        else:
            high = middle
    return np.maximum(1, np.rint(degrees(low))).astype(np.int64)


def distinct_edges(rng, stubs, vertices, edges):
    """Pairs of stubs as `smaller * vertices + larger`, sorted, exactly `edges` of them."""

    def encode(pairs):
        pairs = pairs[: len(pairs) // 2 * 2].reshape(-1, 2)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        return pairs.min(axis=1).astype(np.int64) * vertices + pairs.max(axis=1)

    rng.shuffle(stubs)
    keys = np.unique(encode(stubs))
    while len(keys) < edges:
        missing = edges - len(keys)
        keys = np.union1d(keys, encode(rng.choice(stubs, size=3 * missing + 64)))
    if len(keys) > edges:
        keep = np.ones(len(keys), dtype=bool)
        keep[rng.choice(len(keys), size=len(keys) - edges, replace=False)] = False
        keys = keys[keep]
    return keys


class Adjacency:
    """Sorted neighbours of each vertex, both directions."""

    def __init__(self, smaller, larger, vertices):
        keys = np.concatenate([smaller.astype(np.int64) * vertices + larger, larger.astype(np.int64) * vertices + smaller])
        keys.sort()
        self.targets = (keys % vertices).astype(np.int32)
        self.degrees = np.bincount(smaller, minlength=vertices) + np.bincount(larger, minlength=vertices)
        self.offsets = np.concatenate([[0], np.cumsum(self.degrees)])

    def of(self, vertex):
        return self.targets[self.offsets[vertex] : self.offsets[vertex + 1]]


def network_queries(rng, adjacency, classes):
    for degree in classes:
        off = np.abs(adjacency.degrees - degree)
        nearest = np.argsort(off, kind="stable")[: VERTICES_PER_CLASS * 5]
        for vertex in rng.choice(nearest, size=VERTICES_PER_CLASS, replace=False):
            yield f"network {degree} {vertex}"


def badge_queries(rng, adjacency, vertices):
    """Targets as a page of search results has them: some neighbours, many of degree 2, some anywhere."""
    sources = rng.choice(np.flatnonzero((adjacency.degrees >= 20) & (adjacency.degrees <= 2000)), size=BADGE_QUERIES)
    for source in sources:
        targets = set(rng.choice(adjacency.of(source), size=5, replace=False).tolist())
        while len(targets) < 15:
            targets.add(int(rng.choice(adjacency.of(rng.choice(adjacency.of(source))))))
            targets.discard(int(source))
        while len(targets) < BADGE_TARGETS:
            targets.add(int(rng.integers(vertices)))
            targets.discard(int(source))
        shuffled = rng.permutation(sorted(targets))
        yield " ".join(map(str, ["badges", source, *shuffled]))


def common_queries(rng, adjacency, classes):
    """Half anywhere, a quarter with a neighbour in common, a quarter with two long lists, some of them the hub's."""
    usual = np.flatnonzero(adjacency.degrees >= 50)
    large = np.argsort(adjacency.degrees, kind="stable")[-max(200, len(adjacency.degrees) // 1000) :]
    for number in range(COMMON_QUERIES):
        kind = number % 4
        if kind < 2:
            a, b = rng.choice(usual, size=2, replace=False)
        elif kind == 2:
            middle = rng.choice(usual)
            a, b = rng.choice(adjacency.of(middle), size=2, replace=False)
        else:
            a, b = rng.choice(large, size=2, replace=False)
            if number % 20 == 3 and b != 0:
                a = 0
        yield f"common {a} {b}"


def write_parquet(directory, smaller, larger, vertices):
    names = pa.array([f"v{number}" for number in range(vertices)])
    pq.write_table(pa.table({"name": names, "id": np.arange(vertices, dtype=np.int64)}), directory / "vertices.parquet")
    for number, start in enumerate(range(0, len(smaller), EDGES_PER_FILE)):
        part = slice(start, start + EDGES_PER_FILE)
        table = pa.table({"from": names.take(pa.array(smaller[part])), "to": names.take(pa.array(larger[part]))})
        pq.write_table(table, directory / f"edges-{number:02}.parquet", compression="snappy", use_dictionary=False)


def generate(directory, vertices, edges, seed):
    started = time.monotonic()
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    hub_edges = min(30_000, vertices // 10)
    classes = [100, 500, min(5000, vertices // 20)]
    degree_max = min(DEGREE_MAX, vertices // 10)
    rest = edges - hub_edges

    degrees = power_law(rng, vertices, 2 * rest / vertices, degree_max)
    degrees[0] = 0
    stubs = np.repeat(np.arange(vertices, dtype=np.int32), degrees)
    keys = distinct_edges(rng, stubs, vertices, rest)
    del stubs
    # The hub's edges are `0 * vertices + neighbour`.
    keys = np.concatenate([rng.choice(np.arange(1, vertices), size=hub_edges, replace=False), keys])
    rng.shuffle(keys)
    smaller, larger = (keys // vertices).astype(np.int32), (keys % vertices).astype(np.int32)
    del keys

    np.stack([smaller, larger], axis=1).astype("<u4").tofile(directory / "edges.bin")
    write_parquet(directory, smaller, larger, vertices)
    adjacency = Adjacency(smaller, larger, vertices)
    with open(directory / "queries.txt", "w") as file:
        for queries in (
            network_queries(rng, adjacency, classes),
            badge_queries(rng, adjacency, vertices),
            common_queries(rng, adjacency, classes),
        ):
            file.writelines(query + "\n" for query in queries)
    manifest = {
        "vertices": vertices,
        "edges": edges,
        "stored_neighbours": 2 * edges,
        "seed": seed,
        "classes": classes,
        "hub_edges": int(adjacency.degrees[0]),
        "degree_median": int(np.median(adjacency.degrees)),
        "degree_max_without_hub": int(adjacency.degrees[1:].max()),
        "vertices_without_edges": int((adjacency.degrees == 0).sum()),
        "generated_in_s": round(time.monotonic() - started, 1),
    }
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=50_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(generate(**vars(arguments))))
