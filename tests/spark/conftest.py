"""Sparks and servers for the tests. Those that are slow to start live as long as the session."""

import os
import shutil
from types import SimpleNamespace

import pytest
import servers
from pyspark.sql import SparkSession

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    cluster = servers.Cluster(tmp_path_factory.mktemp("fondaco"))
    yield cluster
    cluster.kill()


@pytest.fixture(scope="session")
def spark(tmp_path_factory, cluster):
    jars = [os.environ["FONDACO_SPARK_JAR"]]
    if os.environ["SPARK_HOME"].find("/v4/") > 0:
        jars += map(str, sorted(servers.Path(os.environ["FONDACO_KAFKA_JARS"]).glob("*.jar")))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
    for name, value in LOCAL.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.fondaco.binary", servers.FONDACO).config("spark.fondaco.http", cluster.http)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def store(cluster, request):
    name = request.node.name.split("[")[0].removeprefix("test_").replace("_", "-")[:40]
    cluster.run("store", "create", name, "--json")
    return name


@pytest.fixture
def output(tmp_path):
    return tmp_path / "versions"


@pytest.fixture
def push(output, store):
    """Writes a DataFrame to the test's store."""

    def push(frame, mode="overwrite", **options):
        writer = frame.write.format("fondaco").option("store", store).option("output", str(output)).mode(mode)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()

    push.store = store
    return push


@pytest.fixture
def build(output):
    """Builds a version without a cluster; returns its directory."""

    def build(frame, mode="overwrite", partitions=8, store="s", **options):
        writer = frame.write.format("fondaco").option("store", store).option("output", str(output)).mode(mode)
        options = {"partitions": partitions, "deploy": "false", "key": "id", **options}
        before = set(os.listdir(output)) if output.exists() else set()
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()
        (directory,) = set(os.listdir(output)) - before
        return output / directory

    return build


@pytest.fixture
def built_locally(tmp_path):
    """The version that `fondaco build` makes of the same rows, from Parquet."""

    def built(frame, *arguments, store="s", partitions=8, key="id"):
        parquet, version = tmp_path / "local.parquet", tmp_path / "local-version"
        shutil.rmtree(version, ignore_errors=True)
        frame.write.mode("overwrite").parquet(str(parquet))
        servers.fondaco("build", store, parquet, "--key", key, "--output", version, "--partitions", partitions, "--json", *arguments)
        return version

    return built
