"""The way of data through the connector: written, served, read back. Runs on each Spark that the jar supports."""

import os

import pytest
import servers
from pyspark.sql import functions as F


@pytest.fixture
def people(spark):
    return spark.range(1000).select(F.col("id").cast("string").alias("id"), (F.col("id") * 2).alias("age"), F.lit("x").alias("name"))


def test_a_written_frame_is_served_and_read_back(spark, cluster, people, push):
    push(people, key="id")
    assert cluster.get(push.store, 7) == {"age": 14, "name": "x"}
    read = spark.read.format("fondaco").option("store", push.store).load()
    assert sorted(read.select("id", "age", "name").collect()) == sorted(people.collect())


def test_a_version_is_read_by_its_location_with_its_schema(spark, people, build):
    read = spark.read.format("fondaco").load(str(build(people)))
    assert {field.name: field.dataType for field in read.schema} == {field.name: field.dataType for field in people.schema}
    assert read.select("age").where("id = '7'").collect() == [(14,)]
    assert read.count() == 1000


def test_a_version_is_read_by_as_many_tasks_as_it_has_partitions_or_as_wanted(spark, people, build):
    version = str(build(people, partitions=4))
    for options, tasks in [({}, 4), ({"tasks": 2}, 2)]:
        read = spark.read.format("fondaco").options(**options).load(version)
        assert read.rdd.getNumPartitions() == tasks
        assert read.count() == 1000


def test_a_version_equals_that_of_the_local_builder(people, build, built_locally):
    assert servers.checksum(build(people)) == servers.checksum(built_locally(people))


def test_tables_of_sql_are_written_and_read(spark, cluster, store, output):
    spark.sql(f"CREATE TABLE features (id STRING, score DOUBLE) USING fondaco OPTIONS (store '{store}', key 'id', output '{output}')")
    spark.sql("INSERT OVERWRITE features SELECT cast(id AS STRING), id / 2 FROM range(100)")
    assert spark.sql("SELECT count(*), sum(score) FROM features").collect() == [(100, 2475.0)]
    spark.sql("INSERT INTO features VALUES ('7', 0.5D), ('new', 1.5D)")
    assert spark.sql("SELECT score FROM features WHERE id IN ('7', 'new', '8') ORDER BY id").collect() == [(0.5,), (4.0,), (1.5,)]
    spark.sql("DROP TABLE features")
    assert cluster.current(store)["records"] == 101


def test_append_changes_and_deletes_by_a_column(spark, cluster, people, push):
    push(people, key="id")
    first = cluster.current(push.store)
    difference = people.where("id IN ('1', '2', '3')").withColumn("age", F.lit(0).cast("long")).withColumn("gone", F.col("id") == "3")
    push(difference, mode="append", key="id", delete="gone")
    second = cluster.current(push.store)
    assert (first["version"], second["version"], second["records"]) == (1, 2, 999)
    read = spark.read.format("fondaco").option("store", push.store).load()
    assert sorted(read.where("id IN ('1', '2', '3', '4')").select("id", "age").collect()) == [("1", 0), ("2", 0), ("4", 8)]


def test_one_column_is_the_value(cluster, people, push):
    push(people, key="id", value="age")
    assert str(cluster.get(push.store, 7)).strip() == "14"


def test_lists_of_numbers_become_sets_of_ids(spark, cluster, output):
    cluster.run("store", "create", "followers", "--value-type", "ids", "--json")
    frame = spark.sql("SELECT 'a' AS id, array(5L, 1L, 9L, 5L) AS ids")
    frame.write.format("fondaco").options(store="followers", key="id", value="ids", output=output).mode("overwrite").save()
    assert cluster.current("followers")["records"] == 1


def test_without_a_mode_only_a_store_without_a_version_is_written(people, push):
    push(people, mode="error", key="id")
    with pytest.raises(Exception, match="has a version"):
        push(people, mode="error", key="id")


def test_a_run_is_built_and_deployed_once(cluster, people, push, output):
    for _ in range(2):
        push(people, key="id", run="nightly-1")
    assert cluster.current(push.store)["version"] == 1
    assert os.listdir(output) == [f"{push.store}-nightly-1"]


def test_duplicates_are_resolved_by_the_column_that_orders(spark, build):
    rows = spark.createDataFrame([(str(i % 10), i) for i in range(100)], "id string, at long")
    read = spark.read.format("fondaco").load(str(build(rows, onDuplicate="last", orderBy="at")))
    assert sorted(row["at"] for row in read.collect()) == list(range(90, 100))


def test_a_frame_without_rows_is_a_version_if_allowed(people, build, built_locally):
    empty = people.where("id = 'none'")
    version = build(empty, allowEmpty="true")
    assert servers.fondaco("inspect", version, "--json")["manifest"]["records"] == 0


def test_only_files_of_the_version_are_in_its_directory(people, build):
    version = build(people)
    manifest = servers.fondaco("inspect", version, "--json")["manifest"]
    expected = {chunk[part]["name"] for chunk in manifest["chunks"] for part in ("data", "index")}
    assert set(os.listdir(version)) == expected | {"manifest.json"}
