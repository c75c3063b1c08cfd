"""Writes that keep the newest event of each entity, also if several writers write at once.

A round reads the values and the context of each key, and writes the newest row over exactly what was read. A writer that
wrote in between is not replaced: both values then stand side by side, the next round sees them, and writes the newer one
over both. A writer ends with a round that finds one value only. So of any number of writers, the last to look leaves
the newest event, without locks and whatever the clocks say.

The rounds do no I/O: they are a generator of requests, which `settle` hands to a blocking client, and `settle_async` to
one of asyncio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .row import header_of

# Writers of one key that meet in this many rounds are a loop, not a coincidence.
ROUNDS_MAX = 16

Siblings = Sequence[tuple[Sequence[bytes], bytes]]


@dataclass(frozen=True)
class Step:
    """A request of a round: a read of keys, or a write of items, each over the values that its context covers."""

    keys: Sequence[bytes] = ()
    items: list[tuple[bytes, bytes]] | None = None
    contexts: Sequence[bytes] = ()


Steps = Generator[Step, Any, None]


class WriteConflict(RuntimeError):
    """Other writers wrote the same entities again and again."""


def newest(rows: Sequence[bytes]) -> bytes:
    """The row with the newest event. Of several, any: but every writer takes the same."""
    return max(rows, key=lambda row: (header_of(row)[0], row))


def settle(rows: Mapping[bytes, bytes], read: Callable[..., Siblings], write: Callable[..., Any]) -> None:
    """Writes rows by key, where the stored event is not newer. `read` takes keys, and answers with the values and the
    context of each. `write` takes items and their contexts."""
    steps = _rounds(rows)
    answer: Any = None
    while (step := _send(steps, answer)) is not None:
        answer = read(step.keys) if step.items is None else write(step.items, step.contexts)


async def settle_async(
    rows: Mapping[bytes, bytes], read: Callable[..., Awaitable[Siblings]], write: Callable[..., Awaitable[Any]]
) -> None:
    """`settle`, with coroutines."""
    steps = _rounds(rows)
    answer: Any = None
    while (step := _send(steps, answer)) is not None:
        answer = await (read(step.keys) if step.items is None else write(step.items, step.contexts))


def _send(steps: Steps, answer: Any) -> Step | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def _rounds(rows: Mapping[bytes, bytes]) -> Steps:
    pending: dict[bytes, bytes] = dict(rows)
    for round_number in range(ROUNDS_MAX):
        items: list[tuple[bytes, bytes]] = []
        contexts: list[bytes] = []
        read = yield Step(keys=list(pending))
        for (key, row), (stored, context) in zip(pending.items(), read):
            if round_number == 0 and (not stored or header_of(row)[0] >= header_of(newest(stored))[0]):
                items.append((key, row))
            elif len(stored) > 1:
                items.append((key, newest(stored)))
            else:
                continue
            contexts.append(context)
        if not items:
            return
        yield Step(items=items, contexts=contexts)
        pending = dict(items)
    raise WriteConflict(
        f"{len(pending)} entities are written by other processes again and again, and were not settled in {ROUNDS_MAX} rounds"
    )
