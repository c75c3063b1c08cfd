"""Bad input and faults: each is a clear error, and nothing is left behind."""

import os
import subprocess
import threading

import pytest
import servers
from pyspark.sql import functions as F


@pytest.fixture
def rows(spark):
    return spark.range(1000).select(F.col("id").cast("string").alias("id"), F.col("id").alias("n"))


def left_in(output):
    return sorted(os.listdir(output)) if output.exists() else []


def refused(build, output, frame, words, **options):
    with pytest.raises(Exception) as error:
        build(frame, **options)
    message = str(error.value)
    for word in words:
        assert word in message, message[:1500]
    assert left_in(output) == []


def test_a_null_key_names_column_and_executor(rows, build, output):
    refused(build, output, rows.withColumn("id", F.when(F.col("n") != 500, F.col("id"))), ["\"id\"", "null", "executor driver"])


def test_a_duplicate_names_its_key(rows, build, output):
    refused(build, output, rows.union(rows.where("n = 77")), ["77"])


def test_a_type_without_a_form_names_its_column(rows, build, output):
    refused(build, output, rows.withColumn("id", F.array("id")), ["id", "List"])


def test_nan_names_its_column(rows, build, output):
    refused(build, output, rows.withColumn("score", F.expr("double('NaN')")), ["score", "NaN"])


def test_a_missing_column_lists_those_that_exist(rows, build, output):
    refused(build, output, rows, ["\"member\"", "id"], key="member")


def test_an_unknown_option_lists_those_that_exist(rows, build, output):
    refused(build, output, rows, ["unknown option", "onDuplicate"], onDuplicates="first")


def test_options_that_are_missing_are_named(spark, rows, build, output):
    for missing, options in {"store": {}, "output": {"store": "s", "key": "id", "deploy": "false", "partitions": 8},
                             "key": {"store": "s", "output": output, "deploy": "false", "partitions": 8}}.items():
        with pytest.raises(Exception, match=f'option "{missing}" is missing'):
            rows.write.format("fondaco").options(**options).mode("overwrite").save()


def test_a_cluster_that_cannot_be_reached_is_named(rows, build, output):
    address = f"127.0.0.1:{servers.free_port()}"
    refused(build, output, rows, [address], http=address, deploy="true")


def test_a_store_that_does_not_exist_is_named_before_rows_are_read(cluster, rows, build, output):
    refused(build, output, rows, ["no store \"absent\""], store="absent", deploy="true")


def test_a_location_in_use_is_refused(rows, build, output):
    version = build(rows)
    with pytest.raises(Exception, match="not empty"):
        rows.write.format("fondaco").options(store="s", key="id", partitions=8, deploy="false", path=version).mode("overwrite").save()
    assert servers.fondaco("inspect", version, "--json")["manifest"]["records"] == 1000


def test_a_full_target_is_named(rows, build, output):
    output.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", output], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        refused(build, output, rows.withColumn("long", F.expr("repeat(sha2(id, 256), 20)")), ["o space left", str(output)])
    finally:
        subprocess.run(["umount", output], check=True)


def test_a_program_that_is_missing_is_named(rows, build, output):
    refused(build, output, rows, ["/no/fondaco", "binary"], binary="/no/fondaco")


def test_a_cancelled_job_leaves_nothing(spark, build, output):
    slow = spark.range(0, 1000, 1, 2).selectExpr("cast(id AS STRING) AS id", "reflect('java.lang.Thread', 'sleep', 20L) AS slept")
    failure = []

    def write():
        try:
            build(slow)
        except Exception as error:
            failure.append(str(error))

    writer = threading.Thread(target=write)
    writer.start()
    servers.wait_until("the output", lambda: left_in(output))
    tracker = spark.sparkContext.statusTracker()
    servers.wait_until("tasks to run", lambda: any(
        (info := tracker.getStageInfo(stage)) and info.numActiveTasks > 0 for stage in tracker.getActiveStageIds()))
    spark.sparkContext.cancelAllJobs()
    writer.join(60)
    assert failure and "ancel" in failure[0]
    assert left_in(output) == []


def test_a_schema_that_changed_is_refused_by_append(spark, cluster, rows, push):
    push(rows, key="id")
    with pytest.raises(Exception, match="other"):
        push(rows.withColumnRenamed("n", "other"), mode="append", key="id")
    assert cluster.current(push.store)["version"] == 1


def test_a_scan_of_a_missing_version_is_refused(spark, tmp_path):
    with pytest.raises(Exception, match="missing-version"):
        spark.read.format("fondaco").load(str(tmp_path / "missing-version"))
