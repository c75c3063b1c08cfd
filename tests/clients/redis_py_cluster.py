"""redis-py's cluster client against three nodes. One of them is killed while it reads."""

import os
import signal
import sys
import time

import redis
from redis.backoff import ConstantBackoff
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.retry import Retry

PROTOCOL = int(sys.argv[1])
ROWS = 5000
# The longest time in which the cluster and the client must recover from the loss of the node.
RECOVERY_SECONDS_MAX = 60
PASSES_AFTERWARDS = 3


def main():
    nodes = [address.rpartition(":") for address in os.environ["FONDACO_NODES"].split(",")]
    client = RedisCluster(
        startup_nodes=[ClusterNode(host, int(port)) for host, _, port in nodes],
        protocol=PROTOCOL,
        decode_responses=True,
        socket_timeout=5,
        load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN,
        retry=Retry(ConstantBackoff(0.1), 3),
    )
    assert len(client.get_nodes()) == 3
    tells(client)
    reads(client)
    pipelines(client)
    scans(client)
    survives(client, int(os.environ["FONDACO_VICTIM"]))


def key(n):
    return f"members:m{n}"


def tells(client):
    assert client.cluster_info(target_nodes=RedisCluster.RANDOM)["cluster_state"] == "ok"
    assert len(client.cluster_nodes()) == 3
    assert client.cluster_keyslot("members:{m1}") == client.keyslot("members:{m1}")


def reads(client):
    for n in range(0, ROWS, 7):
        assert client.get(key(n)) == f"value of m{n}", n
    assert client.get("members:nobody") is None
    assert client.mget_nonatomic([key(n) for n in range(ROWS)]) == [f"value of m{n}" for n in range(ROWS)]
    assert client.exists(key(1), "members:nobody", key(2)) == 2
    # Keys of several slots in one request, which a Redis cluster would refuse.
    node = client.get_random_node()
    many = client.execute_command("MGET", key(1), key(2), key(3), target_nodes=node)
    assert many == ["value of m1", "value of m2", "value of m3"]


def pipelines(client):
    pipeline = client.pipeline()
    for n in range(1000):
        pipeline.get(key(n))
    assert pipeline.execute() == [f"value of m{n}" for n in range(1000)]


def scans(client):
    found = list(client.scan_iter("members:*", count=500))
    assert sorted(found) == sorted(key(n) for n in range(ROWS)), len(found)
    assert client.dbsize(target_nodes=RedisCluster.PRIMARIES) == ROWS


def survives(client, victim):
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    errors = in_time(killed, lambda: one_pass(client))
    print(f"all keys again {time.monotonic() - killed:.1f} s after the kill, {errors} errors before")
    for _ in range(PASSES_AFTERWARDS):
        one_pass(client)
    # The slots have other masters now: still no key is listed twice, and none is missing.
    in_time(killed, lambda: scans(client))


def in_time(begun, attempt):
    """Retries until the cluster and the client have recovered. Returns the number of failures."""
    errors = 0
    while True:
        try:
            attempt()
            return errors
        except (redis.RedisError, OSError) as error:
            errors += 1
            if time.monotonic() - begun > RECOVERY_SECONDS_MAX:
                raise AssertionError(f"timeout: {error!r}") from error
            time.sleep(0.1)


def one_pass(client):
    for n in range(0, ROWS, 11):
        assert client.get(key(n)) == f"value of m{n}", n


main()
