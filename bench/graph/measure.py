"""Measures one peer after the other, each in a process of its own, and compares their answers with those of the CSR walk.

`bench/graph/run` calls it.
"""

import argparse
import importlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from peers import PEERS
from peers.processes import PeakMemory

# A class of queries is cut short at --seconds, after at least so many of them.
QUERIES_MIN = 3
# ROUNDS of csr.rs.
CSR_ROUNDS = 3


def read_queries(path):
    """(class, operations, arguments, number of the line) of each query."""
    for number, line in enumerate(path.read_text().splitlines()):
        kind, *words = line.split()
        if kind == "network":
            degree, source = words
            yield f"network size {degree}", "network_size", [int(source)], number
            yield f"network members {degree}", "network_members", [int(source)], number
        elif kind == "badges":
            source, *targets = map(int, words)
            yield "badges", "badges", [source, targets], number
        else:
            yield "common", "common", [int(word) for word in words], number


def as_text(peer, operation, reply):
    if operation == "badges":
        return " ".join(map(str, reply))
    if operation == "network_size":
        return str(reply)
    ids = peer.ids(reply)
    return f"{len(ids)} {sum(ids)}"


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def summary(latencies):
    return {
        "queries": len(latencies),
        "median_ms": round(statistics.median(latencies) * 1000, 5),
        "p99_ms": round(percentile(latencies, 0.99) * 1000, 5),
    }


def measure_queries(peer, queries, answers, class_seconds_max):
    classes, wrong = {}, []
    by_class = {}
    for query in queries:
        by_class.setdefault(query[0], []).append(query[1:])
    for name, members in by_class.items():
        latencies, end = [], time.monotonic() + class_seconds_max
        call = getattr(peer, members[0][0])
        call(*members[-1][1])  # Plans and caches are warm.
        for operation, arguments, number in members:
            started = time.perf_counter()
            reply = call(*arguments)
            latencies.append(time.perf_counter() - started)
            text = as_text(peer, operation, reply)
            expected = answers[number].split()[0] if operation == "network_size" else answers[number]
            if text != expected:
                wrong.append({"query": name, "line": number + 1, "expected": expected[:200], "found": text[:200]})
            if time.monotonic() > end and len(latencies) >= QUERIES_MIN:
                break
        classes[name] = summary(latencies)
        print(f"  {name}: {classes[name]}", file=sys.stderr, flush=True)
    return classes, wrong


def measure_peer(name, data, work, csr, class_seconds_max):
    manifest = json.loads((data / "manifest.json").read_text())
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    peer = importlib.import_module(f"peers.{name}").PEER(data, manifest, work, csr)
    try:
        peer.start()
        memory = PeakMemory(peer.pids)
        started = time.monotonic()
        peer.load()
        load_s = getattr(peer, "load_seconds", lambda: time.monotonic() - started)()
        print(f"  loaded in {load_s} s", file=sys.stderr, flush=True)
        stored = peer.stored_bytes()
        answers = (data / "answers.txt").read_text().splitlines()
        classes, wrong = measure_queries(peer, read_queries(data / "queries.txt"), answers, class_seconds_max)
        result = {
            "name": peer.name,
            "version": peer.version(),
            "method": peer.method,
            "load_s": load_s and round(load_s, 2),
            "bytes": stored,
            "bytes_per_stored_neighbour": {
                kind: round(count / manifest["stored_neighbours"], 2) for kind, count in stored.items()
            },
            "peak_memory_bytes": memory.stop(),
            "classes": classes,
            "wrong_answers": len(wrong),
            "examples_of_wrong_answers": wrong[:5],
        }
    finally:
        peer.stop()
        shutil.rmtree(work, ignore_errors=True)
    return result


def measure_csr(data, csr):
    vertices = json.loads((data / "manifest.json").read_text())["vertices"]
    command = [csr, "answer", data / "edges.bin", str(vertices), data / "queries.txt", data / "answers.txt"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    classes = {}
    for name, latencies in found["latencies_s"].items():
        kind, *degree = name.split()
        for full in [f"network size {degree[0]}", f"network members {degree[0]}"] if degree else [kind]:
            classes[full] = summary(latencies)
    stored = json.loads((data / "manifest.json").read_text())["stored_neighbours"]
    return {
        "name": "CSR walk in memory",
        "version": subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip(),
        "method": {"load": "edges.bin, sorted per vertex", "network": "one array of marks; the members are collected"},
        "load_s": round(found["load_s"], 2),
        "bytes": {"memory": found["bytes"]},
        "bytes_per_stored_neighbour": {"memory": round(found["bytes"] / stored, 2)},
        "peak_memory_bytes": found["peak_rss_kib"] * 1024,
        "classes": classes,
        "wrong_answers": 0,
    }


def machine():
    cpu = next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_bytes": memory, "kernel": platform.release()}


def in_table(name):
    """Networks by the number of edges first, then the others."""
    *kind, last = name.split()
    return (not kind, kind, int(last) if kind else 0)


def markdown(results):
    lines = [
        "# Graph queries: the peers",
        "",
        "Written by `bench/graph/run`. One client, one query at a time. A cell is the median / p99 in milliseconds, with the",
        "number of queries if the time of the class was over before all were sent. The figures of the CSR walk for the size of",
        "a network include its members. p99 of fewer than 100 queries is the slowest one.",
    ]
    for graph in results["graphs"]:
        manifest, peers = graph["graph"], graph["peers"]
        lines += ["", f"## {manifest['vertices']:_} vertices, {manifest['edges']:_} symmetric edges".replace("_", " "), ""]
        lines += ["| | " + " | ".join(peer["name"] for peer in peers) + " |", "|---" * (len(peers) + 1) + "|"]
        # The CSR walk answers all queries, in several rounds.
        counts = {name: found["queries"] // CSR_ROUNDS for name, found in peers[0]["classes"].items()}
        for name in sorted(counts, key=in_table):
            cells = []
            for peer in peers:
                found = peer["classes"][name]
                few = f" ({found['queries']} queries)" if found["queries"] < counts[name] else ""
                cells.append(f"{found['median_ms']:.4g} / {found['p99_ms']:.4g}{few}")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        for title, cell in [
            ("loading, s", lambda peer: str(peer["load_s"])),
            ("bytes per stored neighbour", lambda peer: ", ".join(f"{v} ({k})" for k, v in peer["bytes_per_stored_neighbour"].items())),
            ("peak memory, MiB", lambda peer: str(peer["peak_memory_bytes"] >> 20)),
            ("wrong answers", lambda peer: str(peer["wrong_answers"])),
            ("version", lambda peer: peer["version"]),
        ]:
            lines.append(f"| {title} | " + " | ".join(map(cell, peers)) + " |")
        lines += ["", "How each answers:", ""]
        for peer in peers:
            method = "; ".join(f"{kind}: {text}" for kind, text in peer["method"].items())
            lines.append(f"- **{peer['name']}** (`{peer['command']}`): {method}")
    found = results["machine"]
    lines += ["", f"Machine: {found['cpu']}, {found['cores']} cores, {found['memory_bytes'] >> 30} GiB, Linux {found['kernel']}."]
    return "\n".join(lines) + "\n"


def keep(output, manifest, peers, command):
    """Replaces the results of these peers on this graph, and writes JSON and Markdown."""
    path = output / "graph-peers.json"
    results = json.loads(path.read_text()) if path.exists() else {"graphs": []}
    results["machine"] = machine()
    for peer in peers:
        peer["command"] = command
    size = (manifest["vertices"], manifest["edges"], manifest["seed"])
    same = lambda graph: (graph["graph"]["vertices"], graph["graph"]["edges"], graph["graph"]["seed"]) == size
    graph = next(filter(same, results["graphs"]), None)
    if graph is None:
        graph = {"graph": manifest, "peers": []}
        results["graphs"].append(graph)
    names = {peer["name"] for peer in peers}
    others = [peer for peer in graph["peers"] if peer["name"] not in names]
    graph["peers"] = sorted(others + peers, key=lambda peer: (not peer["name"].startswith("CSR"), peer["name"]))
    results["graphs"].sort(key=lambda graph: -graph["graph"]["edges"])
    output.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    (output / "graph-peers.md").write_text(markdown(results))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--csr", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--peers", default="kuzu,falkordb,redis,postgres")
    parser.add_argument("--command", default="bench/graph/run")
    parser.add_argument("--seconds", type=int, default=60, help="of each class of queries, at most")
    parser.add_argument("--only", choices=PEERS, help="measure this peer in this process, print JSON")
    arguments = parser.parse_args()
    data, csr = arguments.data.resolve(), arguments.csr.resolve()
    if arguments.only:
        print(json.dumps(measure_peer(arguments.only, data, data.parent / f"work-{arguments.only}", csr, arguments.seconds)))
        return
    manifest = json.loads((data / "manifest.json").read_text())
    print("CSR walk", file=sys.stderr, flush=True)
    found = [measure_csr(data, csr)]
    keep(arguments.output, manifest, found, arguments.command)
    failed = []
    for name in filter(None, arguments.peers.split(",")):
        print(name, file=sys.stderr, flush=True)
        command = [sys.executable, __file__, data, "--csr", csr, "--output", arguments.output, "--only", name]
        command += ["--seconds", str(arguments.seconds)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if run.returncode != 0:
            failed.append(name)
            continue
        found = json.loads(run.stdout.splitlines()[-1])
        keep(arguments.output, manifest, [found], arguments.command)
        if found["wrong_answers"]:
            failed.append(name)
            print(f"  {found['wrong_answers']} wrong answers: {found['examples_of_wrong_answers']}", file=sys.stderr)
    if failed:
        sys.exit(f"failed, or answered otherwise than the CSR walk: {', '.join(failed)}")


if __name__ == "__main__":
    main()
