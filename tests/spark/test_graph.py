"""Graphs of DataFrames with edges and vertices. Runs on each Spark that the jar supports."""

import itertools
import os
import threading

import pytest
import servers

VERTICES = 300
NUMBERS = itertools.count()


@pytest.fixture
def social(spark):
    """The frame with edges of type FOLLOWS, and views with the rest."""
    name = lambda number: f"concat('p', ({number}) % {VERTICES})"
    rows = spark.range(VERTICES)
    rows.selectExpr(f"{name('id')} AS name", "20 + id % 50 AS age").createOrReplaceTempView("people")
    rows.selectExpr(f"{name('id')} AS from", f"{name('id + 1')} AS to", "2000 + id % 20 AS since").createOrReplaceTempView("knows")
    return rows.selectExpr(f"{name('id')} AS from", f"{name('id + 3')} AS to", "1990 + id % 20 AS since")


OPTIONS = {"edges": "from,to", "type": "FOLLOWS", "edges.KNOWS": "knows", "vertices.Person": "people", "values": "since", "symmetric": "KNOWS",
           "index": "FOLLOWS"}
ARGUMENTS = ["--edges", "from,to", "--values", "since", "--symmetric=KNOWS", "--index=FOLLOWS", "--partitions", 8, "--json"]


@pytest.fixture
def write(output):
    """Writes a graph, with options in place of those above; None leaves one out."""

    def write(frame, mode="overwrite", **options):
        options = {"output": str(output), **OPTIONS, **options}
        writer = frame.write.format("fondaco").mode(mode)
        for name, value in options.items():
            writer = writer if value is None else writer.option(name, value)
        writer.save()

    return write


@pytest.fixture
def graph(cluster):
    name = f"graph-{next(NUMBERS)}"
    cluster.run("store", "create", name, "--value-type", "graph", "--json")
    return name


def asked(cluster, store, query):
    return cluster.run("graph", "query", store, query, "--json")["rows"]


def left_in(output):
    return sorted(os.listdir(output)) if output.exists() else []


def test_a_graph_of_frames_equals_that_of_the_command_line_and_is_served(spark, cluster, tmp_path, output, social, graph, write):
    write(social, store=graph)
    current = cluster.current(graph)

    for name, frame in {"follows": social, "knows": spark.table("knows"), "people": spark.table("people")}.items():
        frame.write.parquet(str(tmp_path / name))
    local = tmp_path / "local"
    servers.fondaco("build", graph, f"FOLLOWS={tmp_path / 'follows'}", f"KNOWS={tmp_path / 'knows'}", "--vertices", f"Person={tmp_path / 'people'}",
                    *ARGUMENTS, "--output", local)
    assert current["checksum"] == servers.checksum(local)

    query = "MATCH (a:Person {name: 'p7'})-[r:FOLLOWS]->(b) RETURN b.name, b.age, r.since"
    assert asked(cluster, graph, query) == [["p10", 30, 1997]]
    assert sorted(asked(cluster, graph, "MATCH (a {name: 'p0'})-[:KNOWS]-(b) RETURN b.name")) == [["p1"], ["p299"]]
    # Only the version is left.
    (version,) = left_in(output)
    assert version.startswith(graph) and not version.endswith(".staged")


def test_vertices_keep_their_ids_in_the_next_version(spark, cluster, social, graph, write):
    write(social, store=graph)
    ids = "MATCH (a:Person) RETURN a.name, id(a)"
    before = dict(asked(cluster, graph, ids))
    spark.sql("SELECT concat('new', id) AS name, 1L AS age FROM range(50) UNION ALL SELECT * FROM people").createOrReplaceTempView("more")
    write(social, store=graph, **{"vertices.Person": "more"})
    after = dict(asked(cluster, graph, ids))
    assert len(after) == VERTICES + 50 and {name: after[name] for name in before} == before


def test_a_graph_is_written_by_sql(spark, cluster, output, social, graph):
    social.createOrReplaceTempView("follows")
    spark.sql(f"""CREATE TABLE graph (`from` STRING, `to` STRING) USING fondaco OPTIONS (store '{graph}', output '{output}', edges 'from,to', type 'FOLLOWS',
                  edges.KNOWS 'knows', vertices.Person 'people')""")
    spark.sql("INSERT OVERWRITE graph SELECT `from`, `to` FROM follows")
    spark.sql("DROP TABLE graph")
    assert asked(cluster, graph, "MATCH (a:Person {name: 'p7'})-[:FOLLOWS]->(b)-[:KNOWS]->(c) RETURN c.name") == [["p11"]]


def test_files_are_named_in_place_of_views_and_the_store_is_created(spark, cluster, tmp_path, social, write):
    spark.table("people").withColumnRenamed("name", "id").write.parquet(str(tmp_path / "people"))
    write(social, store="made-by-spark", create="true", vertexName="id", **{"vertices.Person": f"parquet.`{tmp_path}/people`"})
    assert asked(cluster, "made-by-spark", "MATCH (a:Person {name: 'p7'}) RETURN a.age") == [[27]]


def test_a_graph_is_built_without_a_cluster(output, social, write):
    write(social, store="g", deploy="false", partitions=8)
    (version,) = left_in(output)
    assert servers.fondaco("inspect", output / version, "--json")["manifest"]["value_type"] == "graph"


def test_a_run_is_built_once_and_what_a_killed_driver_staged_is_deleted(cluster, output, social, graph, write):
    staged = output / f"{graph}-nightly.staged"
    (staged / "0-FOLLOWS").mkdir(parents=True)
    (staged / "0-FOLLOWS" / "part-0.parquet").write_text("half")
    for _ in range(2):
        write(social, store=graph, run="nightly")
    assert cluster.current(graph)["version"] == 1
    assert left_in(output) == [f"{graph}-nightly"]


BAD = {
    "a column of the edges that is missing": ({"edges": "from,target"}, ["type FOLLOWS", '"target"', "from, to, since"]),
    "a column of other edges that is missing": ({"edges.KNOWS": "people"}, ["edges.KNOWS", '"from"', "name, age"]),
    "a column of the names that is missing": ({"vertexName": "id"}, ["vertices.Person", '"id"', "name, age"]),
    "a view that does not exist": ({"edges.LIKES": "likes"}, ["edges.LIKES", "likes"]),
    "a type that has no edges": ({"symmetric": "LIKES"}, ["LIKES", "FOLLOWS"]),
    "a label that is no name": ({"vertices.a-b": "people"}, ["a-b", "letters"]),
    "an end of an edge that is null": ({"edges.KNOWS": "nulls"}, ['"to"', "null", "KNOWS"]),
    "an edge to an unknown vertex": ({"edges.KNOWS": "strangers"}, ["stranger"]),
    "rows that fail": ({"edges.KNOWS": "failing"}, ["no such luck"]),
    "one column of edges": ({"edges": "from"}, ["name two columns"]),
    "an option of rows with keys": ({"key": "from"}, ['option "key"', "edges"]),
    "a difference": ({"mode": "append"}, ["replaced as a whole"]),
    "a store of other values": ({"store": "no-graph"}, ["no-graph", "bytes", "--value-type graph"]),
    "a store that does not exist": ({"store": "absent"}, ["absent"]),
    "staged files where Spark cannot write": ({"staging": "nowhere://x/y"}, ["nowhere", "staging"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_and_leaves_nothing(spark, cluster, output, social, graph, write, case):
    if not any(store["name"] == "no-graph" for store in cluster.run("status", "--json")["stores"]):
        cluster.run("store", "create", "no-graph", "--json")
    spark.sql("SELECT `from`, if(`from` = 'p7', NULL, `to`) AS to, since FROM knows").createOrReplaceTempView("nulls")
    spark.sql("SELECT `from`, 'stranger' AS to, since FROM knows").createOrReplaceTempView("strangers")
    spark.sql("SELECT `from`, if(`from` = 'p7', raise_error('no such luck'), `to`) AS to, since FROM knows").createOrReplaceTempView("failing")
    options, words = BAD[case]
    with pytest.raises(Exception) as error:
        write(social, **{"store": graph, **options})
    for word in words:
        assert word in str(error.value), str(error.value)[:1500]
    assert left_in(output) == []
    assert cluster.current(graph) is None


def test_a_cancelled_write_leaves_neither_staged_files_nor_a_version(spark, cluster, output, social, graph, write):
    rows = spark.range(0, 1000, 1, 2)
    rows.selectExpr("concat('p', id % 300) AS from", "'p0' AS to",
                    "length(reflect('java.lang.Thread', 'sleep', 20L)) AS since").createOrReplaceTempView("slow")
    failure = []

    def save():
        try:
            write(social, store=graph, **{"edges.KNOWS": "slow"})
        except Exception as error:
            failure.append(str(error))

    writer = threading.Thread(target=save)
    writer.start()
    # The first frame is complete, so the slow one is next.
    servers.wait_until("the first frame", lambda: list(output.glob("*.staged/0-FOLLOWS/_SUCCESS")))
    tracker = spark.sparkContext.statusTracker()
    servers.wait_until("tasks of the second frame", lambda: list(output.glob("*.staged/1-KNOWS/_temporary")) and any(
        (info := tracker.getStageInfo(stage)) and info.numActiveTasks > 0 for stage in tracker.getActiveStageIds()))
    spark.sparkContext.cancelAllJobs()
    writer.join(60)
    assert not writer.is_alive()
    assert failure and "ancel" in failure[0]
    assert left_in(output) == []
    assert cluster.current(graph) is None


def test_edges_are_needed_to_write_a_store_of_graphs(output, social, graph, write):
    with pytest.raises(Exception, match='option "edges"'):
        write(social, store=graph, key="from", **dict.fromkeys(OPTIONS))
    assert left_in(output) == []
