"""PostgreSQL: a table of both directions of each edge, its primary key as the index, over a Unix socket.

Joins in place of a recursive query, which would keep a vertex once for each depth. The two were not compared by measurement.
"""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import psycopg

from . import Peer, in_order
from .processes import directory_bytes, start, stop, wait_until, with_children

USER = "postgres"
SETTINGS = {
    "shared_buffers": "2GB",
    "work_mem": "256MB",
    "maintenance_work_mem": "1GB",
    "max_wal_size": "4GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "effective_cache_size": "8GB",
    "random_page_cost": "1.1",
    "jit": "off",
    "listen_addresses": "",
}
NETWORK = """
    SELECT target FROM edges WHERE source = %(source)s AND target <> %(source)s
    UNION
    SELECT second.target FROM edges first JOIN edges second ON second.source = first.target
    WHERE first.source = %(source)s AND second.target <> %(source)s
"""
# `IS TRUE` is to keep the planner from a join for each target, in favour of hashing the neighbours once.
BADGES = """
    WITH own AS MATERIALIZED (SELECT target FROM edges WHERE source = %(source)s)
    SELECT t, CASE
        WHEN (t IN (SELECT target FROM own)) IS TRUE THEN 1
        WHEN EXISTS (SELECT FROM edges e WHERE e.source = t AND (e.target IN (SELECT target FROM own)) IS TRUE) THEN 2
        WHEN EXISTS (
            SELECT FROM edges e CROSS JOIN LATERAL (
                SELECT FROM edges f WHERE f.source = e.target AND (f.target IN (SELECT target FROM own)) IS TRUE LIMIT 1
            ) g WHERE e.source = t
        ) THEN 3
        ELSE -1 END
    FROM unnest(%(targets)s::int[]) t
"""
COMMON = "SELECT a.target FROM edges a JOIN edges b USING (target) WHERE a.source = %(a)s AND b.source = %(b)s"


def programs():
    found = shutil.which("postgres") or max(map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres")))
    return Path(found).resolve().parent


class Postgres(Peer):
    name = "PostgreSQL"
    method = {
        "load": "COPY of sorted pairs, primary key (source, target), VACUUM ANALYZE",
        "network": "UNION of the neighbours and of a join, counted",
        "badges": "one query: IN, then EXISTS with the hashed neighbours at degree 2, then at degree 3",
        "common": "a join on target",
    }

    def start(self):
        # PostgreSQL refuses to run as root.
        self.identity = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam(USER)
            self.identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            shutil.chown(self.work, USER, USER)
        cluster = self.cluster = self.work / "cluster"
        environment = {**os.environ, "HOME": str(self.work)}
        with open(self.work / "initdb.log", "wb") as log:
            command = [programs() / "initdb", "-D", cluster, "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8"]
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd=self.work, env=environment, **self.identity)
        command = [str(programs() / "postgres"), "-D", str(cluster), "-k", str(self.work)]
        for setting in SETTINGS.items():
            command += ["-c", "=".join(setting)]
        self.process = start(command, self.work / "postgres.log", cwd=self.work, **self.identity)
        connect = lambda: psycopg.connect(host=str(self.work), user=USER, dbname="postgres", autocommit=True)
        self.connection = wait_until(connect, "PostgreSQL")
        self.connection.prepare_threshold = None

    def load(self):
        command = [self.csr, "pairs", self.data / "edges.bin", str(self.manifest["vertices"])]
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.execute("CREATE TABLE edges (source int NOT NULL, target int NOT NULL)")
            with subprocess.Popen(command, stdout=subprocess.PIPE) as pairs, cursor.copy("COPY edges FROM STDIN") as copy:
                while block := pairs.stdout.read(1 << 18):
                    copy.write(block)
            if pairs.returncode != 0:
                raise RuntimeError("csr failed")
            cursor.execute("ALTER TABLE edges ADD PRIMARY KEY (source, target)")
        self.connection.execute("VACUUM ANALYZE edges")

    def pids(self):
        return with_children(self.process.pid)

    def stored_bytes(self):
        return {"disk": self.connection.execute("SELECT pg_total_relation_size('edges')").fetchone()[0]}

    def version(self):
        return "PostgreSQL " + self.connection.execute("SHOW server_version").fetchone()[0]

    def rows(self, text, binary=True, **parameters):
        with self.connection.cursor(binary=binary) as cursor:
            return cursor.execute(text, parameters).fetchall()

    def network_size(self, source):
        return self.rows(f"SELECT count(*) FROM ({NETWORK}) network", source=source)[0][0]

    def network_members(self, source):
        return self.rows(NETWORK, source=source)

    def badges(self, source, targets):
        return in_order(targets, dict(self.rows(BADGES, source=source, targets=targets)))

    def common(self, a, b):
        return self.rows(COMMON, a=a, b=b)

    def ids(self, members):
        return [row[0] for row in members]

    def stop(self):
        if hasattr(self, "connection"):
            self.connection.close()
        stop(self.process)


PEER = Postgres
