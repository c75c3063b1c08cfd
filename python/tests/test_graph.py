"""Graphs of tables in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fondaco
import pytest

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

PEOPLE = {"name": [f"p{i}" for i in range(50)], "age": list(range(20, 70))}
FOLLOWS = {"from": PEOPLE["name"], "to": [f"p{(i + 3) % 50}" for i in range(50)], "since": [2000 + i for i in range(50)]}
KNOWS = {"from": ["p0"], "to": ["p1"], "since": [1990]}


def test_a_graph_of_frames_is_pushed_and_its_answers_become_tables(client: fondaco.Client, batch_name: str) -> None:
    store = client.store(batch_name)
    edges = {"FOLLOWS": pd.DataFrame(FOLLOWS), "KNOWS": pa.table(KNOWS)}
    pushed = store.push_graph(edges, {"Person": pa.table(PEOPLE)}, values=["since"], symmetric=["KNOWS"], create=True)
    assert pushed["build"]["graph"]["vertices"] == 50
    query = "MATCH (a:Person {name: 'p7'})-[r:FOLLOWS]->(b) RETURN b.name, b.age, r.since, b"
    table = store.query(query).to_arrow()
    assert table.column_names == ["b.name", "b.age", "r.since", "b"]
    assert table.slice(0, 1).to_pydict()["r.since"] == [2007]
    assert pa.types.is_integer(table.schema.field("b.age").type) and pa.types.is_struct(table.schema.field("b").type)
    both = store.query("MATCH (a {name: 'p1'})-[:KNOWS]->(b) RETURN b.name").to_pandas()
    assert both["b.name"].tolist() == ["p0"]
    assert store.query("MATCH (a {name: 'p9'})-[:KNOWS]->(b) RETURN b.name").to_arrow().num_rows == 0


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"edges": {"KNOWS": pa.table({"from": ["p0"], "target": ["p1"]})}}, ["to", "\"from\", \"target\""]),
    ({"edges": {"KNOWS": pa.table({"from": ["p0"], "to": pa.array([None], pa.string())})}}, ["to", "null"]),
    ({"edges": {"KNOWS": pa.table({"from": ["p0"], "to": ["stranger"]})}}, ["stranger"]),
    ({"edges": {"a-b": pa.table(KNOWS)}}, ["a-b", "letters"]),
    ({"vertices": {"Person": pa.table({"id": ["p0"]})}}, ["name", "id"]),
    ({"columns": ("from",)}, ["columns="]),
    ({"symmetric": ["LIKES"]}, ["LIKES"]),
    ({"unknown_vertices": "keep"}, ["unknown_vertices", "keep"]),
]


@pytest.mark.parametrize(("wrong", "words"), BAD)
def test_bad_input_is_named_and_leaves_nothing(
    client: fondaco.Client, batch_name: str, tmp_path: Path, wrong: dict[str, Any], words: list[str]
) -> None:
    options: dict[str, Any] = {"edges": {"KNOWS": pa.table(KNOWS)}, "vertices": {"Person": pa.table(PEOPLE)}, **wrong}
    with pytest.raises(fondaco.FondacoError) as caught:
        client.store(batch_name).push_graph(**options, create=True, temporary=tmp_path)
    for word in words:
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert all(found["name"] != batch_name or not found.get("versions") for found in client.stores())
