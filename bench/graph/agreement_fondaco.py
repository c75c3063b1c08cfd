#!/usr/bin/env python3
"""Compares fondaco's answers to random queries with Kùzu's: `agreement.py --generate DIR` makes graph, queries and answers.

    bench/graph/agreement_fondaco.py DIR [--fondaco target/release/fondaco] [--versioned]

Starts a cluster of four nodes in two groups, pushes the graph, and asks the router all queries; then applies the changes, pushes
again, and asks again. With --versioned the graph is one of a versioned store, whose edges are added and removed one by one. Prints each answer that differs, and ends with 1 if there is one. Needs PyPI's `falkordb`.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from falkordb import FalkorDB

from peers.processes import free_port, start, stop, wait_until

TYPES = ["KNOWS", "FOLLOWS", "WORKS_AT"]


def read_edges(directory):
    edges = {}
    for name in TYPES:
        with open(directory / f"{name}.csv") as file:
            edges[name] = {(row["from"], row["to"]) for row in csv.DictReader(file)}
    return edges


def change(edges, changes):
    for line in changes:
        one = json.loads(line)
        pair = (one["from"], one["to"])
        of = edges[one["type"]]
        (of.add if one["change"] == "add" else of.discard)(pair)


def push(program, http, resp, source, edges, work):
    files = []
    for name, pairs in edges.items():
        path = work / f"{name}.csv"
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["from", "to"])
            writer.writerows(sorted(pairs))
        files.append(f"{name}={path}")
    vertices = []
    for label in ["Person", "Company"]:
        vertices += ["--vertices", f"{label}={source / f'{label}.csv'}"]
    command = [program, "push", "social", *files, "--edges", "from,to", "--symmetric=KNOWS", *vertices, "--create"]
    subprocess.run([*command, "--http", http, "--resp", resp], check=True, capture_output=True)


def create_versioned(program, http, client):
    command = [program, "store", "create", "social", "--kind", "versioned", "--value-type", "graph", "--http", http]
    subprocess.run(command, check=True, capture_output=True)
    declare = ["FONDACO.EDGE", "DECLARE", "social"]
    wait_until(lambda: client.execute_command(*declare, "KNOWS", "SYMMETRIC"), "the store")
    for name in ["FOLLOWS", "WORKS_AT"]:
        client.execute_command(*declare, name)


def write_all(client, source, edges):
    for label, column in [("Person", "age"), ("Company", "size")]:
        with open(source / f"{label}.csv") as file:
            for row in csv.DictReader(file):
                properties = json.dumps({column: int(row[column])})
                put = ["FONDACO.VERTEX", "PUT", "LABEL", label, "PROPERTIES", properties, "social", row["name"]]
                client.execute_command(*put)
    for name, pairs in edges.items():
        client.execute_command("FONDACO.EDGE", "ADD", "social", name, *[end for pair in sorted(pairs) for end in pair])


def write_changes(client, changes):
    for line in changes:
        one = json.loads(line)
        operation = {"add": "ADD", "remove": "REMOVE"}[one["change"]]
        client.execute_command("FONDACO.EDGE", operation, "social", one["type"], one["from"], one["to"])


def normal(value):
    if isinstance(value, list):
        return [normal(element) for element in value]
    return round(value, 6) if isinstance(value, float) else value


def compare(graph, queries, state):
    wrong = 0
    for number, line in enumerate(queries):
        query = json.loads(line)
        expected = [normal(row) for row in query[state]]
        try:
            found = [normal(row) for row in graph.ro_query(query["query"]).result_set]
        except Exception as error:
            found = [str(error)]
        if not query["ordered"]:
            found.sort(key=json.dumps)
            expected.sort(key=json.dumps)
        if found != expected:
            wrong += 1
            print(f"{state} {number}: {query['query']}\n  Kùzu    {expected[:8]}\n  fondaco {found[:8]}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fondaco", default="target/release/fondaco")
    parser.add_argument("--versioned", action="store_true")
    arguments = parser.parse_args()
    source = arguments.directory
    edges = read_edges(source)
    queries = (source / "queries.jsonl").read_text().splitlines()
    resp, http = free_port(), free_port()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        command = [arguments.fondaco, "dev", "--nodes", "4", "--groups", "2", "--data", str(work / "data")]
        command += ["--resp", f"127.0.0.1:{resp}", "--http", f"127.0.0.1:{http}"]
        process = start(command, work / "log")
        try:
            connect = lambda: FalkorDB(host="127.0.0.1", port=resp)
            client = wait_until(connect, "fondaco")
            graph = client.select_graph("social")
            addresses = f"127.0.0.1:{http}", f"127.0.0.1:{resp}"
            changes = (source / "changes.jsonl").read_text().splitlines()
            if arguments.versioned:
                wait_until(lambda: create_versioned(arguments.fondaco, addresses[0], client.connection), "the cluster")
                write_all(client.connection, source, edges)
                wrong = compare(graph, queries, "before")
                write_changes(client.connection, changes)
            else:
                wait_until(lambda: push(arguments.fondaco, *addresses, source, edges, work), "the cluster")
                wrong = compare(graph, queries, "before")
                change(edges, changes)
                push(arguments.fondaco, *addresses, source, edges, work)
                # The router hears of the swap a moment after the push.
                time.sleep(1)
            wrong += compare(graph, queries, "after")
        finally:
            stop(process)
    print(f"{2 * len(queries)} answers, {wrong} of them differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
