"""Counts clicks per user and window into a hybrid store: the example of docs/spark.md, as an application that can be killed.

    spark-submit windowed_counts.py BROKERS TOPIC STORE CHECKPOINT [ROWS]

ROWS is the most that a batch reads.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

brokers, topic, store, checkpoint = sys.argv[1:5]
spark = SparkSession.builder.appName("windowed-counts").getOrCreate()
clicks = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic).option("startingOffsets", "earliest")
if len(sys.argv) > 5:
    clicks = clicks.option("maxOffsetsPerTrigger", sys.argv[5])
counts = (
    clicks.load()
    .select(F.from_json(F.col("value").cast("string"), "user STRING, at TIMESTAMP").alias("click"))
    .select("click.*")
    .withWatermark("at", "1 hour")
    .groupBy("user", F.window("at", "10 minutes"))
    .count()
    .select(
        F.concat_ws("/", "user", F.date_format("window.start", "HH:mm")).alias("id"),
        "count",
        # The time of the batch, which the checkpoint keeps: a batch that runs again writes the same events.
        F.current_timestamp().alias("at"),
    )
)
query = (
    counts.writeStream.format("fondaco")
    .option("store", store)
    .option("key", "id")
    .option("value", "count")
    .option("eventTime", "at")
    .option("checkpointLocation", checkpoint)
    .outputMode("update")
    .start()
)
query.awaitTermination()
