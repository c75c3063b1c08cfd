"""A real cluster for the tests, and the names that examples in docstrings use."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fondaco
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("FONDACO_BINARY", str(ROOT / "target/debug/fondaco"))
START_SECONDS_MAX = 60.0


def await_that(what: str, condition: Callable[[], Any], seconds_max: float = 30.0) -> Any:
    """Waits until a condition is true, and returns its value."""
    end = time.monotonic() + seconds_max
    while not (value := condition()):
        assert time.monotonic() < end, f"timeout: {what}"
        time.sleep(0.02)
    return value


class Cluster:
    """A `fondaco dev` in a directory of its own; with a configuration, a `fondaco server`."""

    def __init__(self, directory: Path, *arguments: str, configuration: str | None = None) -> None:
        addresses = directory / "addresses.json"
        command = ["dev", "--data", str(directory / "data"), "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        if configuration is not None:
            own = f'data = "{directory}/data"\nresp = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\n'
            (directory / "fondaco.toml").write_text(own + configuration)
            command = ["server", "--config", str(directory / "fondaco.toml")]
        command = [PROGRAM, *command, "--json", "--log", "error", *arguments]
        with addresses.open("w") as out, (directory / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log)
        try:
            text = await_that(
                "the node serves",
                lambda: (text := addresses.read_text()).rstrip().endswith("}") and text,
                START_SECONDS_MAX,
            )
        except AssertionError:
            self.stop()
            raise AssertionError((directory / "log").read_text()) from None
        found: dict[str, Any] = json.loads(text)
        self.resp: str = found["resp"]
        self.http: str = found["http"]
        self.members: list[dict[str, Any]] = found.get("members", [])

    def connect(self, **options: Any) -> fondaco.Client:
        return fondaco.connect(self.resp, http=self.http, **options)

    def run(self, *arguments: str) -> str:
        """Runs a command of the program `fondaco` against the cluster."""
        environment = {**os.environ, "FONDACO_HTTP": self.http}
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node that is a whole cluster."""
    cluster = Cluster(tmp_path_factory.mktemp("node"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, a router and two controllers."""
    cluster = Cluster(tmp_path_factory.mktemp("three"), "--nodes", "3")
    yield cluster
    cluster.stop()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[fondaco.Client]:
    with cluster.connect(deadline_ms=10_000) as client:
        yield client


#: The number of the next store, so that each test has its own.
_numbers = iter(range(1, 1_000_000))


@pytest.fixture
def versioned(client: fondaco.Client) -> fondaco.Store:
    """A new versioned store."""
    name = f"versioned-{next(_numbers)}"
    client.create_store(name, kind="versioned")
    return client.store(name)


@pytest.fixture
def batch_name() -> str:
    """A name that no store has."""
    return f"batch-{next(_numbers)}"


def make_people(client: fondaco.Client, name: str) -> None:
    """A batch store of people, whose values have a schema."""
    pyarrow = pytest.importorskip("pyarrow")
    schema = """{"type": "record", "name": "Person", "fields": [
        {"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"], "default": null},
        {"name": "tastes", "type": {"type": "array", "items": "float"}}]}"""
    client.create_store(name, value_type="avro")
    client._native.control("POST", f"/v1/stores/{name}/schemas", json.dumps({"schema": schema}))
    tastes = pyarrow.array([[1.0, 2.0], [3.0, 1.0]], pyarrow.list_(pyarrow.float32()))
    rows = pyarrow.table({"id": [1, 2], "name": ["Ann", "Bea"], "age": [37, 41], "tastes": tastes})
    client.store(name).push(rows, key="id", values=["name", "age", "tastes"])


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names in examples: a client of a node with a batch store of cities, and an empty versioned store of
    carts and a graph of people."""
    pyarrow = pytest.importorskip("pyarrow")
    directory = tmp_path_factory.mktemp("examples")
    cluster = Cluster(directory)
    client = cluster.connect(deadline_ms=10_000)
    client.create_store("carts", kind="versioned")
    rows = pyarrow.table({"id": [1, 2], "city": ["Pisa", "Lucca"], "population": [90036, 89046]})
    client.store("cities").push(rows, key="id", create=True)
    knows = pyarrow.table({"from": ["ann"], "to": ["bob"]})
    people = pyarrow.table({"name": ["ann", "bob"], "age": [37, 41]})
    client.store("social").push_graph({"KNOWS": knows}, {"Person": people}, symmetric=True, create=True)
    make_people(client, "people")
    version = directory / "cities-1"
    client.store("cities").push(rows, key="id", deploy=False, output=version.as_uri())
    reader = fondaco.open(version)
    yield {
        "client": client,
        "store": client.store("cities"),
        "carts": client.store("carts"),
        "people": client.store("people"),
        "cluster": cluster,
        "fondaco": fondaco,
        "asyncio": asyncio,
        "reader": reader,
        "version_directory": version,
        **vars(fondaco.errors),
    }
    cluster.stop()


@pytest.fixture(autouse=True)
def _names_in_examples(request: pytest.FixtureRequest) -> None:
    """Examples connect to 127.0.0.1:6500: here that is the node of the examples."""
    if not isinstance(request.node, pytest.DoctestItem):
        return
    examples = request.getfixturevalue("examples")
    patch = request.getfixturevalue("monkeypatch")
    connect = fondaco.client._connect

    def to_example(seeds: tuple[str, ...], http: str | None, *others: Any, **named: Any) -> Any:
        return connect((examples["cluster"].resp,), examples["cluster"].http, *others, **named)

    patch.setattr(fondaco.client, "_connect", to_example)
    for name, value in examples.items():
        request.getfixturevalue("doctest_namespace").setdefault(name, value)
