"""falkordb-py, unmodified: queries of a graph, with every kind of value."""

import os

import redis
from falkordb import FalkorDB

host, port = os.environ["FONDACO_RESP"].rsplit(":", 1)
database = FalkorDB(host=host, port=int(port))
assert database.list_graphs() == ["social"], database.list_graphs()
graph = database.select_graph("social")

query = """MATCH p = (a:Person {name: $name})-[r:KNOWS]-(b) WHERE b.age > $least
           RETURN a, r, b, p, b.age, 1.5, true, null, [1, 'x'], {k: 1}"""
(row,) = graph.query(query, {"name": "ann", "least": 39}, timeout=5000).result_set
person, edge, other, path, age, *values = row
assert (person.labels, person.properties) == (["Person"], {"name": "ann", "age": 30}), person
assert (edge.relation, edge.src_node, edge.dest_node) == ("KNOWS", person.id, other.id), edge
assert edge.properties == {"since": 2001}, edge.properties
assert [node.properties["name"] for node in path.nodes()] == ["ann", "bob"], path
assert (age, values) == (40, [1.5, True, None, [1, "x"], {"k": 1}]), row

near = "MATCH (a {name: 'ann'})-[:KNOWS*1..2]-(b) RETURN b.name ORDER BY b.name"
assert graph.ro_query(near).result_set == [["bob"], ["cid"], ["eve"]]
assert graph.ro_query(near).run_time_ms > 0
assert graph.call_procedure("db.relationshipTypes").result_set == [["KNOWS"]]
assert graph.explain(near).structured_plan.name == "Results"
profile = graph.profile(near)
assert profile.structured_plan.children[0].records_produced == 3, str(profile)
try:
    graph.query("MATCH (a) SET a.age = 1")
    raise AssertionError("a graph was written")
except redis.ResponseError as error:
    assert "SET" in str(error) and "1:11" in str(error), error
