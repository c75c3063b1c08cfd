"""Processes that tests start: a cluster of fondaco, HDFS, an S3 server, Kafka, a cluster of Spark."""

import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FONDACO = os.environ["FONDACO_BINARY"]
SPARK_HOME = Path(os.environ["SPARK_HOME"])
START_SECONDS_MAX = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(what, condition, seconds_max=START_SECONDS_MAX):
    end = time.monotonic() + seconds_max
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(what)


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """A child in the background; it is killed by its own id."""

    def __init__(self, command, log, **more):
        self.log = Path(log)
        with open(self.log, "ab") as output:
            self.child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, **more)

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        if self.child.poll() is not None:
            raise RuntimeError(f"{self.log} ended: {self.log.read_text()[-2000:]}")
        return True

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()


def fondaco(*arguments, check=True, http=None, **more):
    """Runs a command; returns its JSON, if it prints any."""
    environment = dict(os.environ, **({"FONDACO_HTTP": http} if http else {}))
    done = subprocess.run([FONDACO, *map(str, arguments)], capture_output=True, text=True, env=environment, **more)
    if check and done.returncode != 0:
        raise RuntimeError(f"fondaco {' '.join(map(str, arguments))}: {done.stderr}")
    return json.loads(done.stdout) if done.stdout.strip().startswith(("{", "[")) else done.stdout


def checksum(directory):
    return fondaco("inspect", directory, "--json")["checksum"]


class Cluster:
    """`fondaco dev`."""

    PARTITIONS = 8

    def __init__(self, directory):
        self.http, self.resp = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.process = Process(
            [FONDACO, "dev", "--data", str(directory / "data"), "--http", self.http, "--resp", self.resp,
             "--partitions", str(self.PARTITIONS)],
            directory / "fondaco.log",
        )
        wait_until("fondaco", lambda: self.process.alive() and self.ready())

    def ready(self):
        try:
            return urllib.request.urlopen(f"http://{self.http}/readyz", timeout=5).status == 200
        except OSError:
            return False

    def run(self, *arguments, **more):
        return fondaco(*arguments, http=self.http, **more)

    def get(self, store, key):
        return self.run("get", f"{store}:{key}", check=False)

    def current(self, store):
        versions = self.run("versions", store, "--json")["versions"]
        return next((each for each in versions if each["current"]), None)

    def kill(self):
        self.process.kill()


def jars_of(name, *artifacts):
    """The same jars that the tests in Rust fetch, at the same place."""
    directory = ROOT / "target" / "test-servers" / name
    wanted = "\n".join(artifacts)
    fetched = directory / "fetched"
    if not (fetched.exists() and fetched.read_text() == wanted):
        directory.mkdir(parents=True, exist_ok=True)
        dependencies = "".join(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(*each.split(":"))
            for each in artifacts
        )
        (directory / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>fondaco</groupId>'
            f"<artifactId>test-servers</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"
        )
        subprocess.run(["mvn", "-q", "-B", "-f", directory / "pom.xml", "dependency:copy-dependencies",
                        f"-DoutputDirectory={directory / 'jars'}"], check=True)
        fetched.write_text(wanted)
    return directory / "jars"


def java(configuration, jars, *arguments):
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{configuration}:{jars}/*", *arguments]


class Hdfs:
    def __init__(self, directory):
        jars = jars_of("hdfs", "org.apache.hadoop:hadoop-hdfs:3.4.1", "org.apache.hadoop:hadoop-common:3.4.1",
                       "org.apache.hadoop:hadoop-hdfs-client:3.4.1")
        self.port, configuration = free_port(), directory / "configuration"
        for daemon in ("hdfs", "datanode"):
            (configuration / "webapps" / daemon / "WEB-INF").mkdir(parents=True)
            (configuration / "webapps" / daemon / "WEB-INF" / "web.xml").write_text("<web-app/>")
        self.write(configuration / "core-site.xml", {"fs.defaultFS": self.url()})
        self.write(configuration / "hdfs-site.xml", {
            "dfs.replication": 1, "dfs.permissions.enabled": "false",
            "dfs.namenode.name.dir": f"file://{directory}/name", "dfs.datanode.data.dir": f"file://{directory}/data",
            "dfs.namenode.http-address": "127.0.0.1:0", "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0", "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.datanode.hostname": "127.0.0.1", "dfs.safemode.extension": 0, "dfs.safemode.min.datanodes": 1,
        })
        (configuration / "log4j.properties").write_text(
            "log4j.rootLogger=INFO,out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n")
        name_node = "org.apache.hadoop.hdfs.server.namenode.NameNode"
        subprocess.run(java(configuration, jars, name_node, "-format", "-nonInteractive"), check=True, capture_output=True)
        self.command = lambda *arguments: java(configuration, jars, *arguments)
        self.name_node = Process(self.command(name_node), directory / "name-node.log")
        wait_until("the name node", lambda: self.name_node.alive() and listens(self.port))
        self.data_node = Process(self.command("org.apache.hadoop.hdfs.server.datanode.DataNode"), directory / "data-node.log")
        log = lambda: self.name_node.log.read_text()
        wait_until("the data node", lambda: "Processing first storage report" in log()
                   and ("Safe mode ON" not in log() or "Safe mode is OFF" in log()))

    def url(self):
        return f"hdfs://127.0.0.1:{self.port}"

    def files(self, path):
        done = subprocess.run(self.command("org.apache.hadoop.fs.FsShell", "-ls", "-R", path), capture_output=True, text=True)
        return [line.split("/")[-1] for line in done.stdout.splitlines() if line.startswith("-")]

    @staticmethod
    def write(file, properties):
        file.write_text("<configuration>" + "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()
        ) + "</configuration>")

    def kill(self):
        self.data_node.kill()
        self.name_node.kill()


class S3:
    """S3Proxy over a directory."""

    BUCKET = "versions"

    def __init__(self, directory):
        port, self.objects = free_port(), directory / "objects"
        (self.objects / self.BUCKET).mkdir(parents=True)
        self.environment = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "nothing-secret",
                            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        file = directory / "s3proxy.properties"
        file.write_text(
            f"s3proxy.endpoint=http://127.0.0.1:{port}\ns3proxy.authorization=aws-v2-or-v4\ns3proxy.identity=tester\n"
            "s3proxy.credential=nothing-secret\ns3proxy.ignore-unknown-headers=true\njclouds.provider=filesystem-nio2\n"
            f"jclouds.identity=none\njclouds.credential=none\njclouds.filesystem.basedir={self.objects}\n")
        (directory / "logback.xml").write_text(
            '<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%msg%n</pattern></encoder>'
            '</appender><root level="WARN"><appender-ref ref="out"/></root></configuration>')
        jars = jars_of("s3proxy", "org.gaul:s3proxy:2.6.0")
        self.process = Process(java(directory, jars, "org.gaul.s3proxy.Main", "--properties", file), directory / "s3proxy.log")
        wait_until("S3Proxy", lambda: self.process.alive() and listens(port))

    def url(self):
        return f"s3://{self.BUCKET}"

    def files(self, prefix):
        return [file.name for file in (self.objects / self.BUCKET / prefix).rglob("*") if file.is_file()]

    def kill(self):
        self.process.kill()


class Kafka:
    def __init__(self, directory):
        jars = jars_of("kafka", "org.apache.kafka:kafka_2.13:4.1.0", "org.apache.kafka:kafka-tools:4.1.0",
                       "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")
        self.port, controller, file = free_port(), free_port(), directory / "kafka.properties"
        file.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\noffsets.topic.replication.factor=1\n"
            f"transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nlog.dirs={directory}/logs\n")
        self.command = lambda *arguments: java(directory, jars, *arguments)
        subprocess.run(self.command("kafka.tools.StorageTool", "format", "--standalone", "-t", "fondacoCluster0000000A", "-c", file),
                       check=True, capture_output=True)
        self.process = Process(self.command("kafka.Kafka", file), directory / "kafka.log")
        wait_until("Kafka", lambda: self.process.alive() and listens(self.port))

    def create(self, topic, partitions):
        subprocess.run(self.command("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"127.0.0.1:{self.port}", "--create",
                                    "--topic", topic, "--partitions", str(partitions)), check=True, capture_output=True)

    def kill(self):
        self.process.kill()


class SparkCluster:
    """A master and two workers with a core each, as processes."""

    def __init__(self, directory, worker_prefix=(), environment=None):
        environment = dict(os.environ, SPARK_LOCAL_IP="127.0.0.1", **(environment or {}))
        spark_class = str(SPARK_HOME / "bin" / "spark-class")
        port, web = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        deploy = "org.apache.spark.deploy"
        self.processes = [Process([spark_class, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port),
                                   "--webui-port", str(web)], directory / "master.log", env=environment)]
        wait_until("the master", lambda: self.processes[0].alive() and listens(port))
        for number in range(2):
            # Hosts of their own: Spark starts no speculative attempt on the host of the first one.
            work, host = directory / f"worker-{number}", f"127.0.0.{number + 1}"
            self.processes.append(Process(
                [*worker_prefix, spark_class, f"{deploy}.worker.Worker", "--host", host, "--cores", "1", "--memory", "1500m",
                 "--webui-port", "0", "--work-dir", str(work), self.url], directory / f"worker-{number}.log",
                env=environment | {"SPARK_LOCAL_IP": host}))
        wait_until("the workers", lambda: (directory / "master.log").read_text().count("Registering worker") == 2)

    def executors(self):
        """The ids of the executors' processes."""
        workers = {str(each.pid) for each in self.processes[1:]}
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if (entry.name.isdigit() and b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes()
                        and (entry / "stat").read_text().rsplit(")", 1)[1].split()[1] in workers):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def kill(self):
        # A worker that is told to end ends its executors.
        for process in reversed(self.processes):
            process.child.terminate()
        for process in self.processes:
            process.child.wait()
