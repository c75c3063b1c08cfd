"""A program that uses the package, for mypy --strict: it is checked, and not run."""

import fondaco


def cities(client: fondaco.Client) -> list[str]:
    values: fondaco.Values = client.store("cities").get_many(["1", "2"], fondaco.ReadOptions(partial=True))
    found: list[str] = []
    for value in values:
        if value is not None:
            found.append(value.decode())
    first: bytes | None = values[0]
    some: list[bytes | None] = values[:1]
    assert first is some[0]
    return found


def write(store: fondaco.Store) -> bytes:
    values, context = store.get_context("k")
    return store.put("k", b"".join(values), context=context, ttl_ms=1000)


async def read(name: str) -> bytes | None:
    async with await fondaco.aio.connect("127.0.0.1:6500") as client:
        store: fondaco.aio.Store = client.store(name)
        values: fondaco.Values = await store.get_many(["a"])
        assert len(values) == 1
        await client.create_store("other", kind="versioned")
        return await store.get("a")


def main() -> None:
    try:
        with fondaco.connect("127.0.0.1:6500", deadline_ms=100) as client:
            print(cities(client), write(client.store("carts")))
    except fondaco.Timeout as error:
        print(error.code, error.remedy)
