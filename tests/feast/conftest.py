"""A fondaco to test against: the real program, on free ports of loopback."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ZOOKEEPER_JARS = [ROOT / "target/test-servers/zookeeper/jars", ROOT / ".cache/clients/jars"]
BINARY = os.environ.get("FONDACO_BINARY", str(ROOT / "target/debug/fondaco"))


def await_that(condition, what, seconds=60):
    """Waits for a condition, and returns what it returned."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"timeout: {what}"
        time.sleep(0.05)
    return result


class Fondaco:
    """A running process of fondaco."""

    def __init__(self, process, addresses):
        self.process = process
        self.resp = addresses.get("resp")
        self.http = addresses["http"]

    def run(self, *arguments, check=True):
        """Runs a command of the command line against it."""
        command = [BINARY, *arguments, "--http", self.http]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json").stdout)

    def versions(self, store):
        """The numbers of the versions of a store, the current one last."""
        versions = self.json("versions", store)["versions"]
        return [one["version"] for one in sorted(versions, key=lambda one: (one["current"], one["version"]))]

    def stores(self):
        return {store["name"]: store for store in self.json("store", "list")["stores"]}


@contextlib.contextmanager
def process(directory, name, *command):
    """A process of fondaco, until the end of the block."""
    output, log = directory / f"{name}.json", directory / f"{name}.log"
    with open(output, "w") as out, open(log, "w") as errors:
        started = subprocess.Popen([BINARY, *command, "--json", "--log", "error"], stdout=out, stderr=errors)
    try:

        def addresses():
            assert started.poll() is None, log.read_text()
            text = output.read_text()
            return json.loads(text) if text.endswith("}\n") else None

        yield Fondaco(started, await_that(addresses, f"{name} serves"))
    finally:
        started.kill()
        started.wait()


def started(directory, *options):
    """A `fondaco dev` in this directory, until the end of the block."""
    ports = ["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    return process(directory, "node", "dev", "--data", directory / "data", *ports, *options)


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """A node by itself, for all tests."""
    with started(tmp_path_factory.mktemp("node")) as node:
        yield node


def free_ports(count):
    """Ports that no process listens on."""
    with contextlib.ExitStack() as sockets:
        opened = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in opened]


@pytest.fixture
def cluster(tmp_path):
    """Three nodes, each a process, with a controller and a ZooKeeper; each partition is on two of them."""
    jars = next((path for path in ZOOKEEPER_JARS if path.is_dir()), None)
    if jars is None or shutil.which("java") is None:
        pytest.skip("ZooKeeper is not here: make test-rust and make test-clients fetch it")
    zookeeper_port, controller_port = free_ports(2)
    (tmp_path / "zoo.cfg").write_text(
        f"dataDir={tmp_path}/zookeeper\nclientPort={zookeeper_port}\nclientPortAddress=127.0.0.1\ntickTime=250\n"
        "admin.enableServer=false\n"
    )
    (tmp_path / "cluster.toml").write_text(
        f'http = "127.0.0.1:{controller_port}"\nloops = 1\n'
        f'[zookeeper]\nconnect = "127.0.0.1:{zookeeper_port}"\nsession-timeout-ms = 2000\n'
        "[cluster]\nreplicas = 2\nnodes-initial = 3\n"
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with open(tmp_path / "zookeeper.log", "w") as log:
        zookeeper = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", f"{jars}/*", main, tmp_path / "zoo.cfg"], stdout=log, stderr=log
        )
    configuration = ["--config", tmp_path / "cluster.toml"]
    with contextlib.ExitStack() as processes:
        processes.callback(zookeeper.wait)
        processes.callback(zookeeper.kill)
        controller = processes.enter_context(process(tmp_path, "controller", "controller", *configuration))
        controller.nodes = []
        for number in (1, 2, 3):
            options = ["--data", tmp_path / f"node-{number}", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
            node = process(tmp_path, f"node-{number}", "server", *configuration, *options)
            controller.nodes.append(processes.enter_context(node))

        def is_whole():
            state = controller.json("status")["cluster"]
            return state.get("routing_epoch") and sum(node["live"] for node in state["nodes"]) == 3

        await_that(is_whole, "the cluster is whole")
        controller.resp = ",".join(node.resp for node in controller.nodes)
        yield controller
