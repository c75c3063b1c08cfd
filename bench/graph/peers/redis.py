"""Redis: a set per vertex, `n:ID`, whose members are ids. The client combines commands in pipelines."""

import subprocess

import redis

from . import Peer, in_order
from .processes import free_port, start, stop, wait_until

# Intersections sent at a time before the client looks whether one was found.
STEP = 16


class Redis(Peer):
    name = "Redis"
    method = {
        "load": "SADD per vertex through redis-cli --pipe",
        "network": "SMEMBERS, then SUNIONSTORE of the neighbours' sets and SCARD (size), or SUNION (members)",
        "badges": "SMISMEMBER, then SINTERCARD LIMIT 1 per target, then SINTERCARD LIMIT 1 with the target's neighbours, pipelined",
        "common": "SINTER",
    }

    def start(self):
        port = free_port()
        command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", self.work]
        self.port = port
        self.process = start([str(word) for word in command], self.work / "redis.log")
        self.client = redis.Redis(port=port, socket_timeout=900)
        wait_until(self.client.ping, "Redis")

    def load(self):
        vertices = str(self.manifest["vertices"])
        source = subprocess.Popen([self.csr, "redis", self.data / "edges.bin", vertices], stdout=subprocess.PIPE)
        command = ["redis-cli", "-p", str(self.port), "--pipe"]
        subprocess.run(command, stdin=source.stdout, check=True, stdout=subprocess.DEVNULL)
        source.stdout.close()
        if source.wait() != 0:
            raise RuntimeError("csr failed")

    def pids(self):
        return [self.process.pid]

    def stored_bytes(self):
        return {"memory": self.client.info("memory")["used_memory"]}

    def version(self):
        return f"Redis {self.client.info('server')['redis_version']}"

    def network_size(self, source):
        keys = [b"n:" + member for member in self.client.smembers(f"n:{source}")]
        pipeline = self.client.pipeline(transaction=False)
        pipeline.sunionstore("network", f"n:{source}", *keys)
        pipeline.sismember("network", source)
        pipeline.unlink("network")
        size, itself, _ = pipeline.execute()
        return size - itself

    def network_members(self, source):
        keys = [b"n:" + member for member in self.client.smembers(f"n:{source}")]
        members = self.client.sunion(f"n:{source}", *keys)
        members.discard(str(source).encode())
        return members

    def badges(self, source, targets):
        own = f"n:{source}"
        pipeline = self.client.pipeline(transaction=False)
        pipeline.smismember(own, targets)
        for target in targets:
            pipeline.sintercard(2, [own, f"n:{target}"], limit=1)
        near, *second = pipeline.execute()
        found = {target: 1 if one else 2 for target, one, two in zip(targets, near, second) if one or two}
        far = [target for target in targets if target not in found]
        for target in far:
            pipeline.smembers(f"n:{target}")
        waiting = {target: list(around) for target, around in zip(far, pipeline.execute() if far else [])}
        while waiting:
            asked = []
            for target, around in waiting.items():
                for member in around[:STEP]:
                    pipeline.sintercard(2, [own, b"n:" + member], limit=1)
                    asked.append(target)
                del around[:STEP]
            found.update({target: 3 for target, hit in zip(asked, pipeline.execute()) if hit})
            waiting = {target: around for target, around in waiting.items() if around and target not in found}
        return in_order(targets, found)

    def common(self, a, b):
        return self.client.sinter(f"n:{a}", f"n:{b}")

    def stop(self):
        stop(self.process)


PEER = Redis
