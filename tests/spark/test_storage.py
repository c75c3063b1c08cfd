"""Versions on HDFS and S3."""

import pytest
import servers
from pyspark.sql import functions as F


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory):
    server = servers.Hdfs(tmp_path_factory.mktemp("hdfs"))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    server = servers.S3(tmp_path_factory.mktemp("s3"))
    yield server
    server.kill()


@pytest.fixture
def rows(spark):
    return spark.range(5000).select(F.col("id").cast("string").alias("id"), F.sha2(F.col("id").cast("string"), 256).alias("text"))


def files_of(manifest):
    return {chunk[part]["name"] for chunk in manifest["chunks"] for part in ("data", "index")} | {"manifest.json"}


def test_a_version_on_hdfs_is_served_and_equals_the_local_one(spark, cluster, hdfs, rows, store, built_locally):
    output = hdfs.url() + "/versions"
    rows.write.format("fondaco").options(store=store, key="id", output=output, run="one").mode("overwrite").save()
    current = cluster.current(store)
    local = servers.fondaco("inspect", built_locally(rows, store=store), "--json")
    assert current["checksum"] == local["checksum"]
    assert set(hdfs.files(f"/versions/{store}-one")) == files_of(local["manifest"])
    read = spark.read.format("fondaco").load(f"{output}/{store}-one")
    assert read.count() == 5000


def test_a_failed_job_leaves_nothing_on_hdfs(hdfs, rows):
    bad = rows.union(rows.where("id = '7'"))
    with pytest.raises(Exception, match="7"):
        bad.write.format("fondaco").options(store="s", key="id", partitions=8, deploy="false", output=hdfs.url() + "/failed").mode("overwrite").save()
    assert hdfs.files("/failed") == []


def test_a_graph_is_staged_on_hdfs_and_only_its_version_stays(spark, tmp_path, cluster, hdfs):
    cluster.run("store", "create", "graph-on-hdfs", "--value-type", "graph", "--json")
    edges = spark.range(100).selectExpr("concat('p', id) AS from", "concat('p', (id + 1) % 100) AS to")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    write = lambda frame: frame.write.format("fondaco").options(
        store="graph-on-hdfs", edges="from,to", unknownVertices="add", output=hdfs.url() + "/graphs", run="one", temporary=temporary).mode("overwrite").save()
    with pytest.raises(Exception, match="null"):
        write(edges.selectExpr("`from`", "if(`from` = 'p7', NULL, `to`) AS to"))
    assert hdfs.files("/graphs") == [] and list(temporary.iterdir()) == []

    write(edges)
    assert cluster.run("graph", "query", "graph-on-hdfs", "MATCH (a {name: 'p7'})-->(b) RETURN b.name", "--json")["rows"] == [["p8"]]
    parquet, version = tmp_path / "edges.parquet", tmp_path / "local-version"
    edges.write.parquet(str(parquet))
    servers.fondaco("build", "graph-on-hdfs", f"EDGE={parquet}", "--edges", "from,to", "--unknown-vertices", "add", "--partitions", 8,
                    "--output", version, "--json")
    local = servers.fondaco("inspect", version, "--json")
    assert cluster.current("graph-on-hdfs")["checksum"] == local["checksum"]
    assert set(hdfs.files("/graphs")) == files_of(local["manifest"]) and list(temporary.iterdir()) == []


def test_a_version_on_s3_equals_the_local_one(spark, tmp_path, s3, rows, built_locally):
    # The environment of executors has the keys; here they are the driver, which runs already.
    program = tmp_path / "fondaco-with-keys"
    exports = "".join(f"export {name}={value}\n" for name, value in s3.environment.items())
    program.write_text(f'#!/bin/sh\n{exports}exec {servers.FONDACO} "$@"\n')
    program.chmod(0o755)
    options = {"store": "s", "key": "id", "partitions": 8, "deploy": "false", "binary": str(program)}
    rows.write.format("fondaco").options(output=s3.url() + "/versions", run="one", **options).mode("overwrite").save()
    local = servers.fondaco("inspect", built_locally(rows), "--json")
    assert set(s3.files("versions/s-one")) == files_of(local["manifest"])
    read = spark.read.format("fondaco").option("binary", str(program)).load(s3.url() + "/versions/s-one")
    assert sorted(read.select("id", "text").collect()) == sorted(rows.collect())

    with pytest.raises(Exception, match="7"):
        rows.union(rows.where("id = '7'")).write.format("fondaco").options(output=s3.url() + "/failed", **options).mode("overwrite").save()
    assert s3.files("failed") == []
