"""redis-py against a fondaco that serves the stores "members" and "carts": the usual operations of an application."""

import os
import sys

import redis

PROTOCOL = int(sys.argv[1])
ROWS = 5000


def main():
    host, _, port = os.environ["FONDACO_RESP"].rpartition(":")
    with redis.Redis(host, int(port), protocol=PROTOCOL, decode_responses=True, socket_timeout=30) as client:
        client.client_setname("test")
        for check in (reads, pipelines, scans, writes, tells, refuses):
            check(client)


def reads(client):
    assert client.ping() is True
    assert client.get("members:m7") == "value of m7"
    assert client.get("members:nobody") is None
    assert client.mget("members:m1", "members:nobody", "members:m2") == ["value of m1", None, "value of m2"]
    assert client.exists("members:m1", "members:nobody", "members:m1") == 2
    assert client.strlen("members:m7") == len("value of m7")
    assert client.getrange("members:m7", -2, -1) == "m7"
    assert client.type("members:m7") == "string"
    assert client.ttl("members:m7") == -1
    assert client.dbsize() >= ROWS
    assert client.echo("hello") == "hello"


def pipelines(client):
    pipeline = client.pipeline(transaction=False)
    for n in range(1000):
        pipeline.get(f"members:m{n}")
    assert pipeline.execute() == [f"value of m{n}" for n in range(1000)]
    pipeline = client.pipeline(transaction=False)
    pipeline.get("members:m1")
    pipeline.get("nowhere:1")
    pipeline.get("members:m2")
    first, second, third = pipeline.execute(raise_on_error=False)
    assert (first, third) == ("value of m1", "value of m2")
    assert isinstance(second, redis.ResponseError) and "NOSTORE" in str(second)


def scans(client):
    assert set(client.scan_iter("members:*", count=500)) == {f"members:m{n}" for n in range(ROWS)}
    assert set(client.scan_iter("members:m499?")) == {f"members:m{n}" for n in range(4990, 5000)}


def writes(client):
    for key in client.scan_iter("carts:*"):
        client.delete(key)
    assert client.set("carts:1", "a", ex=100) is True
    assert client.set("carts:1", "b", nx=True) is None
    assert client.set("carts:1", "b", xx=True, get=True, keepttl=True) == "a"
    assert 90 < client.ttl("carts:1") <= 100 and 90_000 < client.pttl("carts:1") <= 100_000
    assert client.persist("carts:1") is True and client.ttl("carts:1") == -1
    assert client.append("carts:1", "cd") == 3 and client.strlen("carts:1") == 3
    assert client.getex("carts:1", ex=50) == "bcd" and client.expire("carts:1", 70, gt=True) is True
    assert client.getdel("carts:1") == "bcd" and client.exists("carts:1") == 0
    assert client.mset({f"carts:{n}": n for n in range(2, 100)}) is True
    assert client.mget("carts:2", "carts:1", "members:m1") == ["2", None, "value of m1"]
    assert client.incr("carts:n") == 1 and client.decrby("carts:n", 3) == -2
    assert client.unlink("carts:n", "carts:2") == 2
    assert set(client.scan_iter("carts:*", count=7)) == {f"carts:{n}" for n in range(3, 100)}
    pipeline = client.pipeline(transaction=False)
    for n in range(1000):
        pipeline.set(f"carts:p{n}", n).get(f"carts:p{n}").incr("carts:count")
    assert pipeline.execute() == [answer for n in range(1000) for answer in (True, str(n), n + 1)]
    # Sent between MULTI and EXEC, which is the default.
    pipeline = client.pipeline()
    pipeline.set("carts:t", 1).incr("carts:t").get("members:m1").mget("carts:t", "carts:none")
    assert pipeline.execute() == [True, 2, "value of m1", ["2", None]]
    context, values = client.execute_command("FONDACO.GET", "carts:3")
    assert values == ["3"], values


def tells(client):
    assert client.client_getname() == "test"
    assert client.client_id() > 0
    assert any(one["name"] == "test" for one in client.client_list())
    assert client.info("server")["fondaco_version"]
    assert client.config_get("databases") == {"databases": "1"}
    assert client.command_count() > 20
    assert "get" in client.command()


def refuses(client):
    for command, word in (
        (lambda: client.set("members:m1", "x"), "push"),
        (lambda: client.delete("members:m1"), "push"),
        (lambda: client.get("members"), "BADKEY"),
        (lambda: client.execute_command("NONSENSE"), "unknown command"),
    ):
        try:
            command()
        except redis.ResponseError as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"expected a refusal: {word}")


main()
