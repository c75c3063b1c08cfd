"""Figures of the connector beside its peers, on local[2]: Spark's own sorted Parquet, the local builder, the same children below PySpark's mapInArrow.

Usage: FONDACO_BINARY=target/release/fondaco tests/spark/run figures ROWS DIRECTORY [parquet] [version] [local] [python]
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

PARTITIONS = 16
FONDACO = os.environ["FONDACO_BINARY"]
SCHEMA = "position long, partition int, key binary, value binary"
OPTIONS = {"store": "s", "key": "id", "value": "value", "partitions": PARTITIONS, "tasks": PARTITIONS, "deploy": "false"}


def session(work):
    builder = SparkSession.builder.master("local[2]").config("spark.jars", os.environ["FONDACO_SPARK_JAR"])
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.local.dir": str(work / "local"), "spark.fondaco.binary": FONDACO,
                "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def make(spark, rows, directory):
    """Rows of a key and 100 bytes."""
    digits = F.concat(F.sha2(F.col("id").cast("string"), 256), F.sha2((F.col("id") + 1).cast("string"), 256))
    frame = spark.range(0, rows, 1, 8).select(F.concat(F.lit("member-"), F.col("id")).alias("id"), F.substring(digits, 1, 100).alias("value"))
    frame.write.mode("overwrite").parquet(str(directory))


def to_parquet(spark, rows, output):
    frame = spark.read.parquet(str(rows)).withColumn("p", F.pmod(F.hash("id"), F.lit(PARTITIONS)))
    frame.repartition(PARTITIONS, "p").sortWithinPartitions("p", "id").drop("p").write.parquet(str(output))


def to_version(spark, rows, output):
    spark.read.parquet(str(rows)).write.format("fondaco").options(path=output, **OPTIONS).mode("overwrite").save()


def by_local_builder(spark, rows, output):
    subprocess.run([FONDACO, "build", "s", rows, "--key", "id", "--value", "value", "--output", output, "--partitions", str(PARTITIONS), "--memory", "512MiB",
                    "--threads", "2", "--json"], check=True, stdout=subprocess.DEVNULL)


def by_map_in_arrow(spark, rows, output):
    """The binding of Python: the same children, rows through Python's workers."""
    import pyarrow as pa

    frame = spark.read.parquet(str(rows))
    schema = pa.schema([("id", pa.string()), ("value", pa.string())])
    spec = {"store": "s", "partitions": PARTITIONS, "output": str(output), "key": ["id"], "value": "value"}
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    plan = subprocess.run([FONDACO, "task", "plan", "--spec", json.dumps(spec)], input=sink.getvalue(), capture_output=True, check=True).stdout.decode()

    def encode(batches):
        child = subprocess.Popen([FONDACO, "task", "encode", "--spec", plan], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def feed():
            with pa.ipc.new_stream(child.stdin, schema) as stream:
                for batch in batches:
                    stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            child.stdin.close()

        feeder = threading.Thread(target=feed)
        feeder.start()
        yield from pa.ipc.open_stream(child.stdout)
        feeder.join()
        assert child.wait() == 0

    def write(batches):
        first = next(batches, None)
        if first is None:
            return
        partition = first["partition"][0].as_py()
        child = subprocess.Popen([FONDACO, "task", "write", "--spec", plan, "--partitions", str(partition), "--attempt", str(partition)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with pa.ipc.new_stream(child.stdin, first.schema) as stream:
            stream.write_batch(first)
            for batch in batches:
                stream.write_batch(batch)
        child.stdin.close()
        line = child.stdout.read().decode()
        assert child.wait() == 0
        yield pa.RecordBatch.from_pydict({"line": [line]})

    # A column per partition whose hash Spark sends to a task of its own.
    numbers = spark.range(PARTITIONS * 50).select("id", F.pmod(F.hash(F.col("id").cast("int")), F.lit(PARTITIONS)).alias("task")).collect()
    salts = {row["task"]: row["id"] for row in numbers}
    salt = F.array(*[F.lit(salts[task]).cast("int") for task in range(PARTITIONS)])[F.col("partition")]
    encoded = frame.mapInArrow(encode, SCHEMA).withColumn("salt", salt)
    sorted_rows = encoded.repartition(PARTITIONS, "salt").sortWithinPartitions("position").drop("salt")
    lines = [row["line"].strip() for row in sorted_rows.mapInArrow(write, "line string").collect()]
    subprocess.run([FONDACO, "task", "commit", "--spec", plan], input="\n".join(lines), text=True, check=True, stdout=subprocess.DEVNULL)


def main():
    count, work = int(sys.argv[1]), Path(sys.argv[2])
    chosen = sys.argv[3:] or ["parquet", "version", "local", "python"]
    rows = work / f"rows-{count}.parquet"
    spark = session(work)
    if not rows.exists():
        make(spark, count, rows)
    ways = {"parquet": to_parquet, "version": to_version, "local": by_local_builder, "python": by_map_in_arrow}
    for name in chosen:
        output = work / f"out-{name}"
        shutil.rmtree(output, ignore_errors=True)
        begun = time.monotonic()
        ways[name](spark, rows, output)
        print(f"{name}: {count} rows in {time.monotonic() - begun:.1f} s", flush=True)
        if name != "parquet":
            print("  checksum", json.loads(subprocess.run([FONDACO, "inspect", output, "--json"], capture_output=True).stdout)["checksum"], flush=True)
    begun = time.monotonic()
    version = work / "out-version"
    if version.exists():
        spark.read.format("fondaco").load(str(version)).selectExpr("count(*)", "sum(length(value))").collect()
        print(f"read: {time.monotonic() - begun:.1f} s")
    jvm = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/status").read_text()
    print("peak of the JVM:", next(line for line in jvm.splitlines() if line.startswith("VmHWM")).split(":")[1].strip())
    spark.stop()
    print("peak of the largest child, which may be the local builder:", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, "MB")


main()
