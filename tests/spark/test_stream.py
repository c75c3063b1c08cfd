"""Structured Streaming into hybrid stores."""

import time

import pytest
import servers


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    server = servers.Kafka(tmp_path_factory.mktemp("kafka"))
    yield server
    server.kill()


@pytest.fixture
def hybrid(cluster, tmp_path):
    """Makes a hybrid store with a version without records."""

    def make(name, stream, *options):
        cluster.run("store", "create", name, "--kind", "hybrid", "--stream", stream, *options, "--json")
        (tmp_path / "none.csv").write_text("id,count\n")
        cluster.run("push", name, tmp_path / "none.csv", "--key", "id", "--value", "count", "--allow-empty", "--as-of", "2020-01-01T00:00:00Z",
                    "--output", tmp_path / f"{name}-empty", "--json")
        return name

    return make


@pytest.fixture
def run(spark, tmp_path):
    """Streams the rows of an expression of SQL, all that are there, and ends."""

    def run(rows, **options):
        source = tmp_path / "source"
        spark.sql(rows).write.mode("append").parquet(str(source))
        stream = spark.readStream.schema(spark.read.parquet(str(source)).schema).parquet(str(source))
        query = (stream.writeStream.format("fondaco").options(**options).option("checkpointLocation", str(tmp_path / "checkpoint"))
                 .trigger(availableNow=True).start())
        query.awaitTermination()
        return query

    return run


# A minute ago: events that are logged long after they happened do not count.
TIME = int(time.time() * 1000) - 60_000
CLICKS = f"SELECT concat('item-', id) AS id, id * 10 AS count, timestamp_millis({TIME} + id) AS at, id = 3 AS gone FROM range(1, 6)"


def has(cluster, store, key, value):
    servers.wait_until(f"{key} to be {value}", lambda: str(cluster.get(store, key)).strip() == value, 30)


def test_events_go_to_the_topic_of_the_store(cluster, kafka, hybrid, run):
    kafka.create("clicks", 3)
    store = hybrid("clicks", f"kafka://127.0.0.1:{kafka.port}/clicks")
    run(CLICKS, store=store, key="id", value="count", eventTime="at", delete="gone")
    has(cluster, store, "item-5", "50")
    has(cluster, store, "item-3", "")
    # Earlier in time, though later in the topic: it does not count.
    run(f"SELECT 'item-5' AS id, 7L AS count, timestamp_millis({TIME}) AS at, false AS gone"
        f" UNION ALL SELECT 'item-4', 8L, timestamp_millis({TIME} + 1000), false", store=store, key="id", value="count", eventTime="at", delete="gone")
    has(cluster, store, "item-4", "8")
    has(cluster, store, "item-5", "50")


def test_events_go_to_the_partitions_that_the_store_expects(cluster, kafka, hybrid, run):
    kafka.create("partitioned", 4)
    store = hybrid("partitioned", f"kafka://127.0.0.1:{kafka.port}/partitioned", "--partitioner", "store")
    run(CLICKS, store=store, key="id", value="count", eventTime="at", topicPartitions=4)
    for number in range(1, 6):
        has(cluster, store, f"item-{number}", str(number * 10))


def test_events_go_to_the_log_of_a_development_cluster(cluster, hybrid, run):
    store = hybrid("logged", "log")
    run(CLICKS, store=store, key="id", eventTime="at", exclude="gone")
    servers.wait_until("item-2", lambda: cluster.get(store, "item-2") == {"count": 20}, 30)


def test_a_store_without_a_stream_is_refused(cluster, store, run):
    with pytest.raises(Exception, match="takes no events"):
        run(CLICKS, store=store, key="id")
