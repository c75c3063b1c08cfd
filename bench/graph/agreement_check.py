#!/usr/bin/env python3
"""Answers the queries of `agreement.py` by brute force from their openCypher text, and fails if Kùzu answered otherwise.

    bench/graph/agreement_check.py DIR

It reads the texts that `agreement.py` generates, no other openCypher. Relationships are unique in a match, and an undirected
step takes a self-loop once.
"""

import csv
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

TYPES = ("KNOWS", "FOLLOWS", "WORKS_AT")
DIRECTIONS = {("<-", "-"): "<", ("-", "->"): ">", ("-", "-"): "-"}
STEP = r"(<?-)\[:(\w+)(?:\*1\.\.(\d))?\](->?)"
VERTEX = r"\((\w):(\w+)(?: \{name: '(\w+)'\})?\)"
SHORTEST = re.compile(rf"MATCH {VERTEX}, {VERTEX} MATCH p = shortestPath\(\(a\){STEP}\(b\)\) RETURN length\(p\)")
RETURN = re.compile(r"(DISTINCT )?(.*?)(?: ORDER BY (.*?))?(?: SKIP (\d+))?(?: LIMIT (\d+))?$")


class Graph:
    def __init__(self, directory):
        self.vertices, self.edges = {}, set()
        for label, field in (("Person", "age"), ("Company", "size")):
            for row in csv.DictReader(open(directory / f"{label}.csv")):
                self.vertices[row["name"]] = SimpleNamespace(name=row["name"], label=label, **{field: int(row[field])})
        for edge_type in TYPES:
            for row in csv.DictReader(open(directory / f"{edge_type}.csv")):
                self.edges.add((edge_type, row["from"], row["to"]))
        self.connect()

    def change(self, lines):
        for change in map(json.loads, lines):
            edge = (change["type"], change["from"], change["to"])
            assert (edge in self.edges) == (change["change"] == "remove"), change
            self.edges.symmetric_difference_update([edge])
        self.connect()

    def connect(self):
        """(neighbour, edge) of each (vertex, type, direction)."""
        self.adjacent = defaultdict(list)
        for edge in self.edges:
            edge_type, source, target = edge
            self.adjacent[source, edge_type, ">"].append((target, edge))
            self.adjacent[target, edge_type, "<"].append((source, edge))
            self.adjacent[source, edge_type, "-"].append((target, edge))
            if source != target:
                self.adjacent[target, edge_type, "-"].append((source, edge))


def shortest(graph, groups):
    source, target, (left, edge_type, reach, right) = groups[2], groups[5], groups[6:]
    seen, level = {source}, [source]
    for distance in range(1, int(reach) + 1):
        level = {n for vertex in level for n, _ in graph.adjacent[vertex, edge_type, DIRECTIONS[left, right]]} - seen
        seen |= level
        if target in level:
            return [[distance]]
    return []


def matches(graph, pattern):
    """The names that each match binds to the vertices of the pattern."""
    vertices = re.findall(VERTEX, pattern)
    steps = [(t, int(reach or 1), DIRECTIONS[left, right]) for left, t, reach, right in re.findall(STEP, pattern)]

    def fits(number, name):
        _, label, wanted = vertices[number]
        return graph.vertices[name].label == label and wanted in ("", name)

    def extend(bound, used, here, depth):
        if len(bound) > len(steps):
            yield bound
            return
        edge_type, reach, direction = steps[len(bound) - 1]
        for name, edge in graph.adjacent[here, edge_type, direction]:
            if edge in used:
                continue
            if fits(len(bound), name):
                yield from extend([*bound, name], used | {edge}, name, 0)
            if depth + 1 < reach:
                yield from extend(bound, used | {edge}, name, depth + 1)

    for name in graph.vertices:
        if fits(0, name):
            yield from extend([name], frozenset(), name, 0)


def condition(text):
    """A WHERE as a compiled Python expression."""
    text = re.sub(r"(\w\.name) STARTS WITH ('\w+')", r"\1.startswith(\2)", text)
    for cypher, python in ((" <> ", " != "), (" AND ", " and "), (" OR ", " or "), ("NOT ", "not "), (" IN ", " in ")):
        text = text.replace(cypher, python)
    return compile(text, text, "eval")


def value(expression, row):
    variable, field = expression.split(".")
    return getattr(row[variable], field)


def aggregate(columns, rows):
    keys = [column for column in columns if not column.startswith("count(")]
    groups = defaultdict(list) if keys else {(): []}
    for row in rows:
        groups[tuple(value(key, row) for key in keys)].append(row)
    for key, members in groups.items():
        known = dict(zip(keys, key))
        counts = {
            column: len(members) if column == "count(*)" else len({value(column[len("count(DISTINCT ") : -1], row) for row in members})
            for column in columns
            if column not in known
        }
        yield [(known | counts)[column] for column in columns]


def answer(graph, query):
    if match := SHORTEST.fullmatch(query):
        return shortest(graph, match.groups())
    pattern, where, returned = re.fullmatch(r"MATCH (.*?)(?: WHERE (.*))? RETURN (.*)", query).groups()
    rows = ({"abcd"[number]: graph.vertices[name] for number, name in enumerate(bound)} for bound in matches(graph, pattern))
    if where:
        code = condition(where)
        rows = (row for row in rows if eval(code, {}, row))
    distinct, columns, order, skip, limit = RETURN.fullmatch(returned).groups()
    expressions, names = zip(*((column.split(" AS ")[0], column.split(" AS ")[-1]) for column in columns.split(", ")))
    if any(expression.startswith("count(") for expression in expressions):
        found = list(aggregate(expressions, rows))
    else:
        found = [[value(expression, row) for expression in expressions] for row in rows]
    if distinct:
        found = [list(row) for row in set(map(tuple, found))]
    if not order:
        return sorted(found)
    for key in reversed(order.split(", ")):
        column = names.index(key.removesuffix(" DESC"))
        found.sort(key=lambda row: row[column], reverse=key.endswith(" DESC"))
    first = int(skip or 0)
    return found[first : first + int(limit or len(found))]


def main():
    directory = Path(sys.argv[1])
    graph = Graph(directory)
    queries = [json.loads(line) for line in (directory / "queries.jsonl").read_text().splitlines()]
    wrong = 0
    for state in ("before", "after"):
        if state == "after":
            graph.change((directory / "changes.jsonl").read_text().splitlines())
        for query in queries:
            found = answer(graph, query["query"])
            if found != query[state]:
                wrong += 1
                print(f"{state} the changes: {query['query']}\n  by brute force {found[:5]}\n  Kùzu {query[state][:5]}")
    empty = sum(not query["before"] for query in queries)
    print(f"{len(queries)} queries, {empty} without rows, {wrong} answers differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
