#!/usr/bin/env python3
"""Generates a small graph, 200 random read-only openCypher queries and Kùzu's answers to them, for comparing fondaco with.

    bench/graph/agreement.py --generate DIR [--seed 1] [--queries 200]

Needs PyPI's `kuzu`. The same seed gives the same files:

| file | content |
|---|---|
| `Person.csv`, `Company.csv` | vertices: `name`, and `age` or `size` |
| `KNOWS.csv` | `from`, `to`: a symmetric type, each edge once; with self-loops |
| `FOLLOWS.csv`, `WORKS_AT.csv` | `from`, `to`: directed types; FOLLOWS has self-loops and 2-cycles |
| `changes.jsonl` | 1000 changes: `{"change": "remove" or "add", "type", "from", "to"}`, the removals first |
| `queries.jsonl` | `query` in openCypher, `kuzu`, `columns`, `ordered`, and `before` and `after` the changes: the rows |

Rows are sorted unless the query orders them all (`ordered`); rows of a query with ORDER BY always are in a total order.

Kùzu differs from openCypher as follows, so that each query is a pair of texts:

- In a MATCH, openCypher binds each relationship to one place only. Kùzu does not compare relationships of fixed length: its
  text has `id(e1) <> id(e2)` for each two steps that could bind the same one.
- A variable length means walks in Kùzu, trails in openCypher: its text has `* TRAIL 1..3`.
- An undirected step matches a self-loop twice in Kùzu, once in openCypher: its text has `WITH DISTINCT` of the bound vertices
  and the ids of relationships; undirected steps of variable length only return distinct rows.
- `shortestPath((a)-[:T*1..3]-(b))` is `(a)-[e:T* SHORTEST 1..3]-(b)` in Kùzu.
"""

import argparse
import csv
import json
import random
import tempfile
from itertools import combinations
from pathlib import Path

import kuzu

PERSONS, COMPANIES = 220, 80
TYPES = {"KNOWS": ("Person", "Person"), "FOLLOWS": ("Person", "Person"), "WORKS_AT": ("Person", "Company")}
EDGES = {"KNOWS": 900, "FOLLOWS": 1000, "WORKS_AT": 350}
SELF_LOOPS, TWO_CYCLES = 10, 60
CHANGES = 500
PROPERTY = {"Person": "age", "Company": "size"}


def random_edge(rng, edge_type):
    """A pair of names. Some persons are drawn more often, so that degrees differ."""
    source, target = (f"p{min(rng.randrange(PERSONS), rng.randrange(PERSONS))}" for _ in range(2))
    if edge_type == "WORKS_AT":
        target = f"c{rng.randrange(COMPANIES)}"
    if edge_type == "KNOWS" and target < source:
        source, target = target, source
    return source, target


def random_graph(rng):
    vertices = {
        "Person": [(f"p{number}", rng.randrange(18, 90)) for number in range(PERSONS)],
        "Company": [(f"c{number}", rng.randrange(1, 1000)) for number in range(COMPANIES)],
    }
    edges = {edge_type: set() for edge_type in TYPES}
    for edge_type in ("KNOWS", "FOLLOWS"):
        for number in rng.sample(range(PERSONS), SELF_LOOPS):
            edges[edge_type].add((f"p{number}", f"p{number}"))
    while len(edges["FOLLOWS"]) < SELF_LOOPS + 2 * TWO_CYCLES:
        source, target = random_edge(rng, "FOLLOWS")
        if source != target:
            edges["FOLLOWS"] |= {(source, target), (target, source)}
    for edge_type, count in EDGES.items():
        while len(edges[edge_type]) < count:
            edges[edge_type].add(random_edge(rng, edge_type))
    return vertices, edges


def random_changes(rng, edges):
    """Removes and adds edges; the second result is the graph's edges then."""
    present = [(edge_type, *edge) for edge_type in TYPES for edge in sorted(edges[edge_type])]
    removed = rng.sample(present, CHANGES)
    kept, taken, added = set(present) - set(removed), set(present), []
    while len(added) < CHANGES:
        edge_type = rng.choices(list(TYPES), weights=EDGES.values())[0]
        edge = (edge_type, *random_edge(rng, edge_type))
        # What was removed is not added again, so that the changes may be applied in any order.
        if edge not in taken:
            taken.add(edge)
            added.append(edge)
    after = {edge_type: set() for edge_type in TYPES}
    for edge_type, source, target in kept | set(added):
        after[edge_type].add((source, target))
    changes = [{"change": "remove", "type": t, "from": s, "to": e} for t, s, e in removed]
    changes += [{"change": "add", "type": t, "from": s, "to": e} for t, s, e in added]
    return changes, after


class Query:
    """A chain of vertices and steps, what is demanded of them, and what is returned."""

    def __init__(self, rng):
        self.rng = rng
        self.labels, self.names, self.steps, self.conditions = ["Person"], {}, [], []

    def walk(self, hops, types=tuple(TYPES), directions=("-", ">", "<")):
        for _ in range(hops):
            here = self.labels[-1]
            possible = [t for t in types if here in TYPES[t]]
            edge_type = self.rng.choice(possible or list(types))
            source, target = TYPES[edge_type]
            if edge_type == "KNOWS":
                direction, there = "-", "Person"
            elif source == target:
                direction, there = self.rng.choice(directions), source
            elif here == source:
                direction, there = self.rng.choice([d for d in directions if d != "<"] or ["-"]), target
            else:
                direction, there = self.rng.choice([d for d in directions if d != ">"] or ["-"]), source
            self.steps.append((edge_type, direction))
            self.labels.append(there)
        return self

    def variable(self, vertex):
        return "abcd"[vertex]

    def start_at(self, vertex=0, share=0.5):
        """Gives a vertex its name; a small share of them has those with most edges."""
        person = self.labels[vertex] == "Person"
        number = self.rng.randrange(int((PERSONS if person else COMPANIES) * share))
        self.names[vertex] = f"{'p' if person else 'c'}{number}"
        return self

    def demand(self, vertex):
        """A condition on a vertex's name or integer property."""
        variable, label = self.variable(vertex), self.labels[vertex]
        field, prefix = f"{variable}.{PROPERTY[label]}", label[0].lower().replace("C", "c")
        low, high = (25, 80) if label == "Person" else (100, 900)
        number, other = sorted(self.rng.sample(range(low, high), 2))
        names = ", ".join(f"'{prefix}{n}'" for n in sorted(self.rng.sample(range(80), 12)))
        self.conditions.append(
            self.rng.choice(
                [
                    f"{field} > {number}",
                    f"{field} <= {other}",
                    f"{field} >= {number} AND {field} < {other}",
                    f"({field} < {number} OR {field} > {other})",
                    f"{field} <> {number}",
                    f"NOT {field} > {other}",
                    f"{variable}.name STARTS WITH '{prefix}{self.rng.randrange(1, 10)}'",
                    f"{variable}.name <> '{prefix}{self.rng.randrange(80)}'",
                    f"{variable}.name IN [{names}]",
                    f"NOT {variable}.name IN [{names}]",
                ]
            )
        )
        return self

    def demand_unequal(self):
        if len(self.labels) > 2 and self.labels[0] == self.labels[-1]:
            self.conditions.append(f"{self.variable(0)}.name <> {self.variable(len(self.labels) - 1)}.name")
        return self

    def vertex(self, number):
        name = f" {{name: '{self.names[number]}'}}" if number in self.names else ""
        return f"({self.variable(number)}:{self.labels[number]}{name})"

    def chain(self, relationship):
        text = self.vertex(0)
        for number, (edge_type, direction) in enumerate(self.steps):
            left, right = "<-" if direction == "<" else "-", "->" if direction == ">" else "-"
            text += f"{left}[{relationship(number, edge_type)}]{right}{self.vertex(number + 1)}"
        return text

    def texts(self, returned):
        """The pair of texts of a chain of fixed length."""
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        query = f"MATCH {self.chain(lambda number, edge_type: f':{edge_type}')}{where} RETURN {returned}"
        unequal = [
            f"id(e{one}) <> id(e{other})"
            for one, other in combinations(range(len(self.steps)), 2)
            if self.steps[one][0] == self.steps[other][0]
        ]
        conditions = self.conditions + unequal
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        bound = [self.variable(number) for number in range(len(self.labels))] + [f"id(e{n}) AS i{n}" for n in range(len(self.steps))]
        once = f" WITH DISTINCT {', '.join(bound)}" if any(direction == "-" for _, direction in self.steps) else ""
        return query, f"MATCH {self.chain(lambda n, t: f'e{n}:{t}')}{where}{once} RETURN {returned}"

    def variable_texts(self, reach, returned):
        """The pair of texts of one step of variable length."""
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        query = f"MATCH {self.chain(lambda _, t: f':{t}*1..{reach}')}{where} RETURN {returned}"
        return query, f"MATCH {self.chain(lambda _, t: f'e:{t}* TRAIL 1..{reach}')}{where} RETURN {returned}"


def neighbours(rng):
    query = Query(rng).walk(1).start_at().demand(1)
    return *query.texts("b.name"), False


def ordered_neighbours(rng):
    query = Query(rng).walk(1).demand(0).demand(1)
    field = PROPERTY[query.labels[1]]
    skip = f" SKIP {rng.randrange(1, 5)}" if rng.random() < 0.3 else ""
    way = rng.choice(["", " DESC"])
    returned = f"DISTINCT b.name, b.{field} ORDER BY b.{field}{way}, b.name{skip} LIMIT {rng.randrange(1, 20)}"
    return *query.texts(returned), True


def hops(rng):
    query = Query(rng).walk(rng.choice([2, 2, 3])).start_at().demand(rng.choice([1, 2]))
    if rng.random() < 0.5:
        query.demand_unequal()
    last = query.variable(len(query.steps))
    returned = rng.choice([f"{last}.name", f"DISTINCT {last}.name", f"b.name, {last}.name", "count(*)", f"count(DISTINCT {last}.name)"])
    return *query.texts(returned), False


def hops_to_both_ends(rng):
    query = Query(rng).walk(rng.choice([2, 3])).start_at(0, 0.25)
    query.start_at(len(query.steps), 0.25)
    return *query.texts("b.name" if len(query.steps) == 2 else "b.name, c.name"), False


def all_pairs(rng):
    query = Query(rng).walk(rng.choice([1, 2])).demand(0).demand(1)
    last = query.variable(len(query.steps))
    return *query.texts(rng.choice(["count(*)", f"count(DISTINCT {last}.name)", f"DISTINCT {last}.name"])), False


def ranking(rng):
    query = Query(rng).walk(rng.choice([1, 2])).demand(0)
    last = query.variable(len(query.steps))
    counted = rng.choice(["count(*)", "count(DISTINCT a.name)"])
    way = rng.choice([" DESC", ""])
    returned = f"{last}.name AS name, {counted} AS n ORDER BY n{way}, name LIMIT {rng.randrange(1, 15)}"
    return *query.texts(returned), True


def common_neighbours(rng):
    edge_type = rng.choice(["KNOWS", "FOLLOWS", "FOLLOWS", "WORKS_AT"])
    query = Query(rng).walk(1, [edge_type], (">", "-"))
    query.steps.append((edge_type, {">": "<", "-": "-"}[query.steps[0][1]]))
    query.labels.append("Person")
    query.start_at(0, 0.15).start_at(2, 0.15)
    return *query.texts(rng.choice(["DISTINCT b.name", "b.name", "count(DISTINCT b.name)"])), False


def reachable(rng):
    query = Query(rng).walk(1, ["KNOWS", "FOLLOWS"]).start_at().demand(1)
    if rng.random() < 0.5:
        query.conditions.append("b.name <> a.name")
    if rng.random() < 0.3:
        return *query.variable_texts(rng.choice([2, 3]), f"DISTINCT b.name, b.age ORDER BY b.age, b.name LIMIT {rng.randrange(5, 40)}"), True
    return *query.variable_texts(rng.choice([2, 3]), rng.choice(["DISTINCT b.name", "count(DISTINCT b.name)"])), False


def trails(rng):
    query = Query(rng).walk(1, ["FOLLOWS"], (">", "<")).start_at()
    if rng.random() < 0.5:
        query.demand(1)
    if rng.random() < 0.5:
        return *query.variable_texts(rng.choice([2, 3]), "count(*)"), False
    returned = "b.name AS name, count(*) AS n ORDER BY n DESC, name LIMIT 20"
    return *query.variable_texts(rng.choice([2, 3]), returned), True


def shortest_path(rng):
    query = Query(rng).walk(1, ["KNOWS", "FOLLOWS"]).start_at().start_at(1)
    while query.names[0] == query.names[1]:
        query.start_at(1)
    reach = rng.choice([2, 3, 3])
    (edge_type, direction), ends = query.steps[0], f"{query.vertex(0)}, {query.vertex(1)}"
    left, right = "<-" if direction == "<" else "-", "->" if direction == ">" else "-"
    text = f"MATCH {ends} MATCH p = shortestPath((a){left}[:{edge_type}*1..{reach}]{right}(b)) RETURN length(p)"
    chain = query.chain(lambda _, t: f"e:{t}* SHORTEST 1..{reach}")
    return text, f"MATCH {chain} RETURN length(e)", False


TEMPLATES = {
    neighbours: 3,
    ordered_neighbours: 3,
    hops: 6,
    hops_to_both_ends: 2,
    all_pairs: 2,
    ranking: 3,
    common_neighbours: 3,
    reachable: 4,
    trails: 2,
    shortest_path: 4,
}


def write_csv(path, header, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def write_graph(directory, vertices, edges):
    directory.mkdir(parents=True, exist_ok=True)
    for label, rows in vertices.items():
        write_csv(directory / f"{label}.csv", ["name", PROPERTY[label]], rows)
    for edge_type, pairs in edges.items():
        write_csv(directory / f"{edge_type}.csv", ["from", "to"], sorted(pairs))


class Loaded:
    """A graph in Kùzu."""

    def __init__(self, directory, vertices, edges):
        write_graph(directory, vertices, edges)
        self.database = kuzu.Database(str(directory / "graph.kuzu"), buffer_pool_size=256 << 20)
        self.connection = kuzu.Connection(self.database)
        for label in vertices:
            self.connection.execute(f"CREATE NODE TABLE {label}(name STRING, {PROPERTY[label]} INT64, PRIMARY KEY(name))")
            self.connection.execute(f"COPY {label} FROM '{directory}/{label}.csv' (HEADER=true)")
        for edge_type, (source, target) in TYPES.items():
            self.connection.execute(f"CREATE REL TABLE {edge_type}(FROM {source} TO {target})")
            self.connection.execute(f"COPY {edge_type} FROM '{directory}/{edge_type}.csv' (HEADER=true)")

    def rows(self, text, ordered):
        result = self.connection.execute(text)
        rows = result.get_all()
        return rows if ordered else sorted(rows)


def columns_of(query):
    """The names of the columns, as openCypher has them: the alias, or the text."""
    returned = query.split(" RETURN ")[1].removeprefix("DISTINCT ").split(" ORDER BY ")[0]
    return [column.split(" AS ")[-1] for column in returned.split(", ")]


def generate(directory, seed, count):
    rng = random.Random(seed)
    vertices, edges = random_graph(rng)
    changes, edges_after = random_changes(rng, edges)
    write_graph(directory, vertices, edges)
    with open(directory / "changes.jsonl", "w") as file:
        file.writelines(json.dumps(change) + "\n" for change in changes)
    with tempfile.TemporaryDirectory() as temporary, open(directory / "queries.jsonl", "w") as file:
        before = Loaded(Path(temporary) / "before", vertices, edges)
        after = Loaded(Path(temporary) / "after", vertices, edges_after)
        seen = set()
        while len(seen) < count:
            template = rng.choices(list(TEMPLATES), weights=TEMPLATES.values())[0]
            query, text, ordered = template(rng)
            if query in seen:
                continue
            seen.add(query)
            line = {"template": template.__name__, "query": query, "kuzu": text, "columns": columns_of(query), "ordered": ordered}
            line |= {"before": before.rows(text, ordered), "after": after.rows(text, ordered)}
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generate", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    generate(arguments.generate, arguments.seed, arguments.queries)
