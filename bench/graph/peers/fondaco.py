"""fondaco: ZooKeeper, a controller, and four nodes in two groups, each a process; the graph is pushed with one command.

FONDACO is the program, target/release/fondaco by default. ZooKeeper is the one that the tests have fetched (tests/set-up).
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

import redis

from . import Peer
from .processes import directory_bytes, free_port, start, stop, wait_until

ROOT = Path(__file__).resolve().parents[3]
GRAPH, EDGE_TYPE = "social", "E"
KEYS_AT_ONCE = 20_000


class Fondaco(Peer):
    name = "fondaco"
    method = {
        "load": "fondaco push of the Parquet files, names and all",
        "network": "GRAPH.RO_QUERY with count(DISTINCT b) (size), FONDACO.GRAPH NETWORK IDS (members), by id; no cache of networks",
        "badges": "FONDACO.GRAPH DISTANCES",
        "common": "FONDACO.GRAPH COMMON IDS, by ids",
    }

    def start(self):
        self.program = os.environ.get("FONDACO", str(ROOT / "target/release/fondaco"))
        self.processes = []
        zookeeper = self.start_zookeeper()
        self.nodes = []
        self.start_role("controller", zookeeper, None)
        for number in range(4):
            self.nodes.append(self.start_role("server", zookeeper, "ab"[number % 2]))
        self.port, self.http = self.nodes[0][1:3]
        self.client = redis.Redis(port=self.port, socket_timeout=900)
        wait_until(self.create, "the cluster")

    def start_zookeeper(self):
        port, home = free_port(), self.work / "zookeeper"
        (home / "data").mkdir(parents=True, exist_ok=True)
        (home / "zoo.cfg").write_text(
            f"dataDir={home / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=250\n"
            "maxSessionTimeout=60000\nadmin.enableServer=false\n"
        )
        jars = ROOT / "target/test-servers/zookeeper/jars/*"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.processes.append(start(["java", "-cp", str(jars), main, str(home / "zoo.cfg")], self.work / "zookeeper.log"))
        return f"127.0.0.1:{port}"

    def start_role(self, role, zookeeper, group):
        name = f"{role}-{len(self.processes)}"
        resp, http = free_port(), free_port()
        file = self.work / f"{name}.toml"
        file.write_text(
            f'data = "{self.work / name}"\nresp = "127.0.0.1:{resp}"\nhttp = "127.0.0.1:{http}"\nloops = 1\n'
            + (f'group = "{group}"\n' if group else "")
            + f'[zookeeper]\nconnect = "{zookeeper}"\nroot = "/fondaco"\n'
            '[cluster]\npartitions = 64\nreplicas = 2\nnodes-initial = 4\nplacement = "grouped"\n'
        )
        process = start([self.program, role, "--config", str(file)], self.work / f"{name}.log")
        self.processes.append(process)
        return process, resp, http

    def run(self, *arguments):
        command = [self.program, *arguments, "--http", f"127.0.0.1:{self.http}"]
        return subprocess.run(command, check=True, capture_output=True, text=True)

    def create(self):
        self.run("store", "create", GRAPH, "--kind", "batch", "--value-type", "graph")

    def load(self):
        files = [str(file) for file in sorted(Path(self.data).glob("edges-*.parquet"))]
        began = time.monotonic()
        self.run("push", GRAPH, *files, "--edges", "from,to", "--type", EDGE_TYPE, "--symmetric", "--resp", f"127.0.0.1:{self.port}")
        self.took = time.monotonic() - began
        for _, port, _ in self.nodes:
            client = redis.Redis(port=port)
            client.config_set("graph-cache-bytes", 0)
            client.config_set("graph-rows-max", 10_000_000)
            client.config_set("graph-timeout-ms", 600_000)
            client.config_set("forward-timeout-ms", 60_000)
        self.names = self.read_names()
        self.id_of = {number: id for id, number in self.names.items()}

    def read_names(self):
        """The number of each vertex, by its id: the peers know vertices by number alone."""
        names = {}
        vertices = self.manifest["vertices"]
        for first in range(0, vertices, KEYS_AT_ONCE):
            numbers = range(first, min(first + KEYS_AT_ONCE, vertices))
            ids = self.client.mget([f"{GRAPH}:id:v{number}" for number in numbers])
            names.update({int(id): number for number, id in zip(numbers, ids) if id is not None})
        return names

    def load_seconds(self):
        return self.took

    def pids(self):
        return [process.pid for process, _, _ in self.nodes]

    def stored_bytes(self):
        # Each group has all of the graph.
        data = [self.work / f"server-{number}" for number in range(2, 6)]
        return {"disk": sum(map(directory_bytes, data)) // 2}

    def version(self):
        return "fondaco " + self.client.info("server").get("fondaco_version", "")

    def network_size(self, source):
        text = "MATCH (a {name: $name})-[:E*1..2]-(b) RETURN count(DISTINCT b)"
        reply = self.client.execute_command("GRAPH.RO_QUERY", GRAPH, f'CYPHER name="v{source}" {text}')
        return int(reply[1][0][0])

    def network_members(self, source):
        first, second = self.client.execute_command("FONDACO.GRAPH", "NETWORK", "IDS", GRAPH, EDGE_TYPE, self.id_of[source])
        return first + second

    def badges(self, source, targets):
        names = [f"v{target}" for target in targets]
        reply = self.client.execute_command("FONDACO.GRAPH", "DISTANCES", GRAPH, EDGE_TYPE, f"v{source}", *names)
        return [-1 if distance is None else int(distance) for distance in reply]

    def common(self, a, b):
        return self.client.execute_command("FONDACO.GRAPH", "COMMON", "IDS", GRAPH, EDGE_TYPE, self.id_of[a], self.id_of[b])

    def ids(self, members):
        return [self.names[int(member)] for member in members]

    def stop(self):
        for process in reversed(self.processes):
            stop(process)
        shutil.rmtree(self.work, ignore_errors=True)


PEER = Fondaco
