"""A cluster of Spark with processes that are killed and stopped; a driver that is killed at each step."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import servers

COLUMNS = ["concat('member-', id) AS id", "sha2(cast(id AS STRING), 256) AS text", "id * 3 AS number"]


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory):
    cluster = servers.SparkCluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.kill()


class Driver(servers.Process):
    def __init__(self, directory, master, rows, output, parquet=None, columns=COLUMNS, settings=None, **options):
        options = {"store": "s", "key": "id", "output": str(output), "binary": servers.FONDACO, **options}
        if "http" not in options:
            options |= {"partitions": 16, "deploy": "false"}
        job = {"master": master, "rows": rows, "columns": columns, "options": options, "settings": settings or {}}
        if parquet:
            job["parquet"] = str(parquet)
        super().__init__([sys.executable, Path(__file__).with_name("driver.py"), json.dumps(job)], directory / "driver.log")
        self.output = output

    def said(self, text):
        return text in self.log.read_text()

    def finish(self, seconds_max=240):
        assert self.child.wait(seconds_max) == 0, self.log.read_text()[-3000:]
        (version,) = self.output.iterdir()
        return version


def files_of(version):
    manifest = servers.fondaco("inspect", version, "--json")["manifest"]
    return {chunk[part]["name"] for chunk in manifest["chunks"] for part in ("data", "index")} | {"manifest.json"}


def writing(output):
    """The files that tasks have written."""
    return [each for each in output.glob("*/*") if not each.name.startswith("attempt-driver")]


def test_2_million_rows_with_an_executor_killed_equal_the_local_version(tmp_path, spark_cluster):
    parquet, local = tmp_path / "rows.parquet", tmp_path / "local"
    driver = Driver(tmp_path, spark_cluster.url, 2_000_000, tmp_path / "versions", parquet)
    servers.wait_until("files of chunks", lambda: driver.alive() and writing(driver.output), 240)
    victim = spark_cluster.executors()[0]
    os.kill(victim, signal.SIGKILL)
    version = driver.finish()
    assert driver.said("Lost executor") or driver.said("lost")
    servers.fondaco("build", "s", parquet, "--key", "id", "--output", local, "--partitions", 16, "--json")
    assert servers.checksum(version) == servers.checksum(local)
    assert set(os.listdir(version)) == files_of(version)


def test_a_speculative_attempt_leaves_no_file(tmp_path, spark_cluster):
    # The first child that is to write chunks does nothing, and only SIGKILL ends it.
    first, stuck = tmp_path / "first", tmp_path / "fondaco"
    stuck.write_text(f'#!/bin/sh\ncase "$*" in "task write"*) mkdir {first} 2>/dev/null && trap "" TERM && exec sleep 600 ;; esac\nexec {servers.FONDACO} "$@"\n')
    stuck.chmod(0o755)
    speculation = {"spark.speculation": "true", "spark.speculation.interval": "50ms", "spark.speculation.multiplier": "1.1",
                   "spark.speculation.quantile": "0.3", "spark.speculation.minTaskRuntime": "0ms"}
    driver = Driver(tmp_path, spark_cluster.url, 200_000, tmp_path / "versions", settings=speculation, binary=str(stuck))
    version = driver.finish()
    # Its task was started once more on the other executor, and succeeded there.
    assert first.exists() and driver.said("as speculatable") and driver.said("Killing attempt")
    assert not driver.said("still runs after a minute")
    assert set(os.listdir(version)) == files_of(version)


def test_a_directory_that_only_the_driver_sees_is_named(tmp_path):
    shared, spark = tmp_path / "only-here", tmp_path / "spark"
    shared.mkdir()
    spark.mkdir()
    hidden = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {shared} && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    cluster = servers.SparkCluster(spark, worker_prefix=hidden)
    try:
        driver = Driver(tmp_path, cluster.url, 1000, shared / "versions")
        driver.child.wait(120)
        assert driver.said(f"does not see the directory {shared}") and driver.said("executor "), driver.log.read_text()[-3000:]
        assert list(driver.output.iterdir()) == []
    finally:
        cluster.kill()


# The program that a step of the driver runs, and where it kills the driver, which started it.
STEPS = {
    "before the manifest": ("task commit", 'kill -9 $PPID; exit 1'),
    "while the manifest is written": ("task commit", 'kill -9 $PPID; exec {0} "$@"'),
    "after the manifest": ("task commit", '{0} "$@"; kill -9 $PPID; exit 1'),
    "before the deployment": ("deploy", 'kill -9 $PPID; exit 1'),
    "while the version is deployed": ("deploy", 'kill -9 $PPID; exec {0} "$@"'),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_is_killed_leaves_nothing_half_applied(tmp_path, cluster, step):
    command, action = STEPS[step]
    killer = tmp_path / "fondaco"
    killer.write_text(f'#!/bin/sh\ncase "$*" in "{command}"*) {action.format(servers.FONDACO)} ;; esac\nexec {servers.FONDACO} "$@"\n')
    killer.chmod(0o755)
    store = "killed-" + "-".join(step.split()[-3:])
    cluster.run("store", "create", store, "--json")
    options = {"store": store, "http": cluster.http, "run": "nightly"}

    first = Driver(tmp_path, "local[2]", 2000, tmp_path / "versions", binary=str(killer), **options)
    assert first.child.wait(120) != 0
    current = cluster.current(store)
    assert current is None or current["records"] == 2000

    again = Driver(tmp_path, "local[2]", 2000, tmp_path / "versions", **options)
    version = again.finish()
    assert cluster.current(store)["records"] == 2000 and cluster.current(store)["version"] == 1
    assert set(os.listdir(version)) == files_of(version)


def test_the_program_of_the_jar_runs(tmp_path):
    jar = tmp_path / "with-program.jar"
    subprocess.run([servers.ROOT / "spark" / "build", servers.SPARK_HOME, jar, servers.FONDACO], check=True)
    environment = dict(os.environ, FONDACO_SPARK_JAR=str(jar), PATH="/usr/bin:/bin")
    options = {"store": "s", "key": "id", "output": str(tmp_path / "versions"), "partitions": 8, "deploy": "false"}
    job = {"master": "local[2]", "rows": 100, "columns": COLUMNS, "options": options}
    done = subprocess.run([sys.executable, Path(__file__).with_name("driver.py"), json.dumps(job)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (version,) = (tmp_path / "versions").iterdir()
    assert servers.fondaco("inspect", version, "--json")["manifest"]["records"] == 100


def test_scala_writes_and_reads(tmp_path, cluster):
    cluster.run("store", "create", "from-scala", "--json")
    script = tmp_path / "script.scala"
    script.write_text(f"""
        import org.apache.spark.sql.SaveMode
        val rows = spark.range(100).selectExpr("cast(id as string) id", "id * 2 as age")
        rows.write.format("fondaco").option("store", "from-scala").option("key", "id").option("output", "{tmp_path}/versions")
            .mode(SaveMode.Overwrite).save()
        val read = spark.read.format("fondaco").option("store", "from-scala").load()
        println("sum of ages: " + read.selectExpr("sum(age)").head().getLong(0))
        System.exit(0)
    """)
    shell = [servers.SPARK_HOME / "bin" / "spark-shell", "--master", "local[2]", "--jars", os.environ["FONDACO_SPARK_JAR"],
             "--conf", "spark.ui.enabled=false", "--conf", f"spark.fondaco.http={cluster.http}",
             "--conf", f"spark.fondaco.binary={servers.FONDACO}", "-i", script]
    done = subprocess.run(shell, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=tmp_path,
                          env=dict(os.environ, SPARK_LOCAL_IP="127.0.0.1"))
    assert "sum of ages: 9900" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    assert cluster.current("from-scala")["records"] == 100
