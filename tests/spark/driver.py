"""A Spark application of its own, for tests that need another master, or kill it: writes a frame as its arguments, in JSON, say."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

job = json.loads(sys.argv[1])
builder = SparkSession.builder.master(job["master"]).config("spark.jars", os.environ["FONDACO_SPARK_JAR"])
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Starting takes most of the time, so the JVM compiles quickly rather than well.
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
                                     f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
    "spark.log.level": "INFO",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "700m",
    "spark.sql.shuffle.partitions": "16",
    **job.get("settings", {}),
}
for name, value in settings.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
frame = session.range(0, job["rows"], 1, 8).selectExpr(*job["columns"])
if "parquet" in job:
    frame.write.mode("overwrite").parquet(job["parquet"])
frame.write.format("fondaco").options(**job["options"]).mode("overwrite").save()
print("driver: done", flush=True)
session.stop()
