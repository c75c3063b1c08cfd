"""A stateful job of Structured Streaming into a hybrid store, which is killed within a batch."""

import collections
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import servers
from test_stream import hybrid, kafka  # noqa: F401

APPLICATION = Path(__file__).with_name("windowed_counts.py")
# Starting takes most of the time, so the JVM compiles quickly rather than well.
SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
}


class Job:
    """The application, with a process group of its own: its driver is a child of Python."""

    def __init__(self, cluster, log, *arguments):
        jars = [os.environ["FONDACO_SPARK_JAR"], *map(str, sorted(Path(os.environ["FONDACO_KAFKA_JARS"]).glob("*.jar")))]
        settings = SETTINGS | {"spark.fondaco.binary": servers.FONDACO, "spark.fondaco.http": cluster.http, "spark.jars": ",".join(jars)}
        flags = [flag for name, value in settings.items() for flag in ("--conf", f"{name}={value}")]
        command = [servers.SPARK_HOME / "bin" / "spark-submit", *flags, APPLICATION, *arguments]
        with open(log, "ab") as output:
            self.child = subprocess.Popen(list(map(str, command)), stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                          env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable})
        self.log = log

    def alive(self):
        assert self.child.poll() is None, self.log.read_text()[-3000:]
        return True

    def kill(self):
        """With SIGKILL, all its processes."""
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def test_counts_are_exact_although_the_job_is_killed(spark, cluster, kafka, hybrid, tmp_path):  # noqa: F811
    brokers = f"127.0.0.1:{kafka.port}"
    kafka.create("user-clicks", 2)
    kafka.create("user-counts", 2)
    store = hybrid("user-counts", f"kafka://{brokers}/user-counts")
    rng, expected = random.Random(42), collections.Counter()

    def click(count):
        rows = []
        for _ in range(count):
            # Out of order, within the watermark.
            user, minute = f"user-{rng.randrange(8)}", rng.randrange(40)
            rows.append((f'{{"user": "{user}", "at": "2026-05-04T10:{minute:02}:00Z"}}',))
            expected[f"{user}/10:{minute // 10}0"] += 1
        spark.createDataFrame(rows, "value STRING").write.format("kafka").option("kafka.bootstrap.servers", brokers).option("topic", "user-clicks").save()

    checkpoint, rows = tmp_path / "state", 300
    batches = lambda kind: {int(file.name) for file in (checkpoint / kind).glob("[0-9]*")}
    unfinished = lambda: batches("offsets") - batches("commits")
    click(1200)
    job = Job(cluster, tmp_path / "job.log", brokers, "user-clicks", store, checkpoint, rows)
    try:
        servers.wait_until("the midst of a later batch", lambda: job.alive() and max(batches("offsets"), default=0) >= 2 and unfinished())
    finally:
        job.kill()
    click(400)
    job = Job(cluster, tmp_path / "job.log", brokers, "user-clicks", store, checkpoint, rows)
    try:
        for key, count in expected.items():
            servers.wait_until(f"{key} to be {count}", lambda: job.alive() and str(cluster.get(store, key)).strip() == str(count))
    finally:
        job.kill()
    assert sum(expected.values()) == 1600 and len(expected) == 32
