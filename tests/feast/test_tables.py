"""Tables of Iceberg and Delta Lake and files of ORC, read by their Python readers and pushed as streams: the code blocks of
docs/python.md, run as they stand there."""

import itertools
import re
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT, await_that

pytest.importorskip("pyiceberg", reason="pyiceberg, deltalake and pyarrow are not installed in this environment")

import deltalake  # noqa: E402
import fondaco  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.orc  # noqa: E402
from pyiceberg.catalog.sql import SqlCatalog  # noqa: E402
from pyiceberg.expressions import EqualTo  # noqa: E402
from pyiceberg.types import DoubleType  # noqa: E402


def documented(heading):
    """The code block below a heading of docs/python.md."""
    text = (ROOT / "docs/python.md").read_text()
    section = text.split(f"### {heading}\n", 1)[1]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


numbers = itertools.count()


@pytest.fixture
def store(node):
    """A batch store, and a client."""
    name = f"tables-{next(numbers)}"
    with fondaco.connect(node.resp, http=node.http) as client:
        client.create_store(name, kind="batch")
        yield client.store(name)
        client.drop_store(name)


@pytest.fixture
def catalog(tmp_path):
    """A catalogue of Iceberg in a file."""
    return SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")


def contents(store, keys):
    """The values of these keys, once the client has heard of the version."""

    def values():
        try:
            return list(store.get_many(keys))
        except (fondaco.NoVersion, fondaco.NoStore):
            return None

    return [value and value.decode() for value in await_that(values, "the version is known")]


def rows(ids, **columns):
    return pa.table({"id": pa.array(ids, pa.int64()), **columns})


def test_an_iceberg_table_gives_its_current_rows_and_not_those_of_its_files(store, catalog):
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.items", rows([1], price=[1.0]).schema)
    table.append(rows([1, 2, 3], price=[1.0, 2.0, 3.0]))
    table.append(rows([4], price=[4.0]))
    table.delete(EqualTo("id", 2))
    table.overwrite(rows([3], price=[33.0]), overwrite_filter=EqualTo("id", 3))
    assert len(list(table.snapshots())) >= 4

    exec(documented("Iceberg"), {"store": store, "catalog": catalog})

    assert contents(store, ["1", "2", "3", "4"]) == ['{"price":1.0}', None, '{"price":33.0}', '{"price":4.0}']


def test_a_column_that_an_iceberg_table_got_later_is_null_in_older_rows(store, catalog):
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.items", rows([1], price=[1.0]).schema)
    table.append(rows([1], price=[1.0]))
    with table.update_schema() as update:
        update.add_column("weight", DoubleType())
        update.rename_column("price", "cost")
    table.append(rows([2], cost=[2.0], weight=[0.5]))

    exec(documented("Iceberg"), {"store": store, "catalog": catalog})

    assert contents(store, ["1", "2"]) == ['{"cost":1.0,"weight":null}', '{"cost":2.0,"weight":0.5}']


def test_a_partitioned_delta_table_gives_the_rows_of_its_current_version(store, tmp_path):
    path = str(tmp_path / "items")
    days = ["2026-11-27", "2026-11-28"]
    deltalake.write_deltalake(
        path, rows([1, 2, 3], day=[days[0], days[1], days[1]], price=[1.0, 2.0, 3.0]), partition_by=["day"]
    )
    table = deltalake.DeltaTable(path)
    table.delete("id = 2")
    table.update(updates={"price": "33.0"}, predicate="id = 3")
    deltalake.write_deltalake(path, rows([4], day=days[:1], price=[4.0]), mode="append")

    exec(documented("Delta Lake"), {"store": store, "path": path})

    assert contents(store, ["1", "2", "3", "4"]) == [
        '{"day":"2026-11-27","price":1.0}',
        None,
        '{"day":"2026-11-28","price":33.0}',
        '{"day":"2026-11-27","price":4.0}',
    ]


def test_an_earlier_version_of_a_delta_table_can_be_pushed(store, tmp_path):
    path = str(tmp_path / "items")
    deltalake.write_deltalake(path, rows([1], price=[1.0]))
    deltalake.write_deltalake(path, rows([1], price=[2.0]), mode="overwrite")
    before = documented("Delta Lake").replace("DeltaTable(path)", "DeltaTable(path, version=0)")
    exec(before, {"store": store, "path": path})
    assert contents(store, ["1"]) == ['{"price":1.0}']


def test_a_file_of_orc_is_pushed_by_stripes(store, tmp_path):
    path = str(tmp_path / "items.orc")
    pyarrow.orc.write_table(rows([1, 2], price=[1.0, None]), path)
    exec(documented("ORC"), {"store": store, "path": path})
    assert contents(store, ["1", "2"]) == ['{"price":1.0}', '{"price":null}']


def test_a_row_twice_in_a_table_is_refused_and_nothing_is_pushed(store, tmp_path):
    path = str(tmp_path / "items")
    deltalake.write_deltalake(path, rows([1, 1], price=[1.0, 2.0]))
    with pytest.raises(fondaco.FondacoError, match="1"):
        exec(documented("Delta Lake"), {"store": store, "path": path})
    assert not store.versions()


MIB = 1 << 20


@pytest.mark.parametrize("heading", ["Iceberg", "Delta Lake", "ORC"])
def test_a_table_is_streamed_and_never_in_memory_as_a_whole(heading, catalog, tmp_path):
    path = str(tmp_path / "big")
    setup = f"path = {path!r}"
    piece = 8 * MIB
    count = 24

    def pieces():
        for number in range(count):
            ids = pa.array(range(number * 1024, (number + 1) * 1024), pa.int64())
            texts = pc.cast(pc.random(1024 * piece // 8192), pa.string())
            joined = [b"".join(one.as_py().encode() for one in texts[at * 8 : at * 8 + 8]) for at in range(1024)]
            yield pa.table({"id": ids, "text": pa.array([(text * 64)[: piece // 1024] for text in joined])})

    if heading == "Iceberg":
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.items", next(pieces()).schema)
        for one in pieces():
            table.append(one)
        setup = (
            "from pyiceberg.catalog.sql import SqlCatalog\n"
            f"catalog = SqlCatalog('local', uri='sqlite:///{tmp_path}/catalog.db', warehouse='file://{tmp_path}')"
        )
    elif heading == "Delta Lake":
        for one in pieces():
            deltalake.write_deltalake(path, one, mode="append")
    else:
        with pyarrow.orc.ORCWriter(path, stripe_size=8 * MIB) as writer:
            for one in pieces():
                writer.write(one)

    # The memory of a process of its own: the stream is read to its end, as a push reads it.
    program = f"""
import resource
{setup}
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
class Store:
    def push(self, stream, **options):
        import pyarrow
        before = peak()
        rows = sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(stream))
        print(rows, peak() - before)
store = Store()
{documented(heading)}
"""
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    read, grown = map(int, finished.stdout.split())
    assert read == count * 1024
    assert grown < count * piece * 0.6, f"{grown / MIB:.0f} MiB of {count * piece / MIB:.0f} MiB"
