"""Some fields of values, and scores over them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import fondaco
import pytest
from conftest import Cluster, await_that, make_people

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture
def people(client: fondaco.Client, batch_name: str) -> fondaco.Store:
    make_people(client, batch_name)
    return client.store(batch_name)


def test_fields_are_columns_of_the_types_of_the_schema(people: fondaco.Store) -> None:
    values = people.fields([1, 2, 3], ["age", "name", "tastes"])
    assert len(values) == 3 and values[2] is None
    table = values.to_arrow().to_pyarrow()
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["age"], types["name"], types["tastes"]) == ("int32", "string", "list<item: float>")
    assert table["age"].to_pylist() == [37, 41, None]
    assert table["tastes"].to_pylist() == [[1.0, 2.0], [3.0, 1.0], None]
    assert people.fields([2], ["name"], raw=True)[0] == b"\x06Bea"
    assert values.versions == {people.name: 1}


def test_values_that_do_not_meet_the_conditions_count_as_missing(people: fondaco.Store) -> None:
    assert people.fields([1, 2], ["name"], where=[("age", ">=", 41), ("name", "!=", "Ann")]).rows() == [None, "Bea"]


def test_scores_are_computed_over_a_vector(people: fondaco.Store) -> None:
    assert people.scores([1, 2, 9], "tastes", [1.0, 0.5]).rows() == [2.0, 3.5, None]
    best = people.scores([1, 2, 9], "tastes", [0.0, 1.0], "cosine", top=1).to_arrow().to_pyarrow()
    assert best.num_rows == 1 and best["score"][0].as_py() == pytest.approx(0.894427, abs=1e-5)
    assert people.scores([1], "tastes", [2.0, 0.1], "hadamard").rows() == [pytest.approx([2.0, 0.2])]
    assert people.scores([1, 2], "tastes", operation="count").rows() == [2, 2]


def test_a_field_that_is_registered_later_is_found(people: fondaco.Store, client: fondaco.Client) -> None:
    with pytest.raises(fondaco.FondacoError, match="no field \"city\".*name, age, tastes"):
        people.fields([1], ["city"])
    schema = {
        "type": "record",
        "name": "Person",
        "fields": [{"name": "name", "type": "string"}, {"name": "city", "type": "string", "default": "Venice"}],
    }
    client._native.control("POST", f"/v1/stores/{people.name}/schemas", json.dumps({"schema": json.dumps(schema)}))

    def found() -> bool:
        try:
            return people.fields([1], ["city", "name"]).rows() == [{"city": "Venice", "name": "Ann"}]
        except fondaco.FondacoError:
            return False

    await_that("the nodes know the schema", found)
    assert people.fields([1], ["age"], schema=1).rows() == [37]


def test_an_asyncio_client_reads_fields_too(people: fondaco.Store, cluster: Cluster) -> None:
    async def read() -> object:
        async with await fondaco.aio.connect(cluster.resp, http=cluster.http, deadline_ms=10_000) as client:
            return (await client.store(people.name).fields([2], ["name"])).rows()

    assert asyncio.run(read()) == ["Bea"]


def test_what_cannot_be_computed_is_refused_by_name(people: fondaco.Store) -> None:
    cases: list[tuple[str, Callable[[], object]]] = [
        ("NaN", lambda: people.scores([1], "tastes", [float("nan")])),
        ("2 floats, the given one 1", lambda: people.scores([1], "tastes", [1.0])),
        ("no array of float", lambda: people.scores([1], "name", [1.0])),
        ("twice", lambda: people.fields([1], ["name", "name"])),
        ("no schema has the id 9", lambda: people.fields([1], ["name"], schema=9)),
    ]
    for match, ask in cases:
        with pytest.raises(fondaco.FondacoError, match=match):
            ask()
