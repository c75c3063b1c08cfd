"""fondaco: a graph that has been pushed already, behind the RESP address of any of its nodes.

FONDACO_RESP is the address (`127.0.0.1:7000`), FONDACO_GRAPH the name (`social`), FONDACO_PIDS the processes whose memory
counts, separated by commas, FONDACO_DATA their data directories, separated by colons, FONDACO_LOAD_S the time of the push.
"""

import os
from pathlib import Path

import redis

from . import Peer
from .processes import directory_bytes

EDGE_TYPE = "E"


class Fondaco(Peer):
    name = "fondaco"
    method = {
        "load": "fondaco push of the Parquet files, before",
        "network": "GRAPH.QUERY with count(DISTINCT b) (size), FONDACO.GRAPH NETWORK (members)",
        "badges": "FONDACO.GRAPH DISTANCES",
        "common": "FONDACO.GRAPH COMMON",
    }

    def start(self):
        host, port = os.environ["FONDACO_RESP"].rsplit(":", 1)
        self.graph = os.environ.get("FONDACO_GRAPH", "social")
        self.client = redis.Redis(host=host, port=int(port), socket_timeout=900)
        self.client.ping()

    def load(self):
        pass

    def load_seconds(self):
        return float(os.environ["FONDACO_LOAD_S"]) if "FONDACO_LOAD_S" in os.environ else None

    def pids(self):
        return [int(pid) for pid in os.environ.get("FONDACO_PIDS", "").split(",") if pid]

    def stored_bytes(self):
        directories = [Path(path) for path in os.environ.get("FONDACO_DATA", "").split(":") if path]
        return {"disk": sum(map(directory_bytes, directories))}

    def version(self):
        return "fondaco " + self.client.info("server").get("fondaco_version", "")

    def network_size(self, source):
        text = "MATCH (a {name: $name})-[:E*1..2]-(b) RETURN count(DISTINCT b)"
        reply = self.client.execute_command("GRAPH.RO_QUERY", self.graph, f'CYPHER name="v{source}" {text}')
        return int(reply[1][0][0])

    def network_members(self, source):
        first, second = self.client.execute_command("FONDACO.GRAPH", "NETWORK", self.graph, EDGE_TYPE, f"v{source}")
        return first + second

    def badges(self, source, targets):
        names = [f"v{target}" for target in targets]
        reply = self.client.execute_command("FONDACO.GRAPH", "DISTANCES", self.graph, EDGE_TYPE, f"v{source}", *names)
        return [-1 if distance is None else int(distance) for distance in reply]

    def common(self, a, b):
        return self.client.execute_command("FONDACO.GRAPH", "COMMON", self.graph, EDGE_TYPE, f"v{a}", f"v{b}")

    def ids(self, members):
        return [int(bytes(member).lstrip(b"v")) for member in members]


PEER = Fondaco
