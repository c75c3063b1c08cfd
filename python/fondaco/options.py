"""Options of requests."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ReadOptions:
    """How a look-up is done. The defaults are those of the client.

    >>> ReadOptions(deadline_ms=50, partial=True).deadline_ms
    50
    """

    #: The time limit of the whole request, in milliseconds; that of the client by default.
    deadline_ms: float | None = None
    #: The time after which another node is asked in place of one that does not answer; half of the deadline by default.
    attempt_ms: float | None = None
    #: Whether keys that cannot be read are errors of their own, and not of the request.
    partial: bool = False
    #: Whether a second node may be asked when the first takes long.
    hedge: bool = True
    #: The choice of replicas: ``sticky``, ``nearest``, ``preferred``, ``round-robin``, ``set-cover`` or ``cluster``.
    strategy: str | None = None
    #: With the strategy ``cluster``: how many groups of nodes are asked.
    fan_out: int | None = None


def with_limits(options: ReadOptions | None, deadline_ms: float | None, partial: bool | None) -> ReadOptions | None:
    """Options with the limits that a call names itself."""
    if deadline_ms is not None:
        options = replace(options or ReadOptions(), deadline_ms=deadline_ms)
    if partial is not None:
        options = replace(options or ReadOptions(), partial=partial)
    return options
