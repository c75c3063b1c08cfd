"""The package works with this Python: it is imported, and its native part runs, without a server and without other packages."""

import asyncio
import sys

import fondaco

assert fondaco.ReadOptions().hedge
for connecting in (
    lambda: fondaco.connect("127.0.0.1:1", connect_ms=50),
    lambda: asyncio.run(fondaco.aio.connect("127.0.0.1:1", connect_ms=50)),
):
    try:
        connecting()
    except fondaco.ConnectionError as error:
        assert error.code == "UNAVAILABLE" and error.remedy, error
    else:
        sys.exit("a port without a server was connected to")
assert fondaco._native.decode_ids(fondaco._native.encode_ids([5, 1, 5])) == [1, 5]
