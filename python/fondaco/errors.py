"""The exceptions of fondaco. Each has a ``code``, which programs test, and a ``remedy``.

The classes that Python has a counterpart for derive from it, so that ``except TimeoutError`` works, too:

>>> issubclass(Timeout, TimeoutError), issubclass(Timeout, FondacoError)
(True, True)
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable


class FondacoError(Exception):
    """An operation failed. All other exceptions of the package derive from it."""

    #: The code of the error: that of a server, such as ``"NOSTORE"`` or ``"push_in_progress"``, or of this package.
    code: str
    #: What to do about it.
    remedy: str

    def __init__(self, message: str, *, code: str = "failed", remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (type(self), str(self), self.code, self.remedy))


def _restore(kind: type[FondacoError], message: str, code: str, remedy: str) -> FondacoError:
    return kind(message, code=code, remedy=remedy)


class ConnectionError(FondacoError, builtins.ConnectionError):
    """No node that could answer can be reached."""


class Forked(ConnectionError):
    """The client was made before a fork, in the parent process."""


class Timeout(FondacoError, builtins.TimeoutError):
    """The deadline passed."""


class NoQuorum(ConnectionError):
    """Fewer replicas of a versioned store answered, or have a write, than its settings require."""


class Overloaded(FondacoError):
    """The cluster, or a quota, takes no more requests now."""


class NotFound(FondacoError, LookupError):
    """A named thing does not exist."""


class NoStore(NotFound):
    """No store that the user may read has this name."""


class NoVersion(NotFound):
    """The store has no version, or not this one."""


class AlreadyExists(FondacoError):
    """A store has this name already."""


class ReadOnly(FondacoError):
    """The store's versions are pushed: single keys cannot be written."""


class Conflict(FondacoError):
    """Other clients changed the same thing meanwhile, or its state does not allow the operation."""


class BadInput(FondacoError, ValueError):
    """An argument, a key or a row cannot be used."""


class WrongType(FondacoError, TypeError):
    """The store has values of another type."""


class Refused(FondacoError, PermissionError):
    """The user may not do this, or is not known."""


class Corrupt(FondacoError):
    """Stored bytes are damaged; they are never returned as data."""


class PushFailed(FondacoError):
    """A push was begun, and the store does not serve its version."""


class Cancelled(FondacoError):
    """The operation was stopped; nothing of it is left."""


def _table(*rows: tuple[type[FondacoError], str, Iterable[str]]) -> dict[str, tuple[type[FondacoError], str]]:
    return {code: (kind, remedy) for kind, remedy, codes in rows for code in codes}


#: The exception and the remedy of each code.
CODES: dict[str, tuple[type[FondacoError], str]] = _table(
    (ConnectionError, "see client.status() and fondaco nodes, check the address, and try again", [
        "UNAVAILABLE", "unreachable", "unavailable", "CLUSTERDOWN", "LOADING", "not_leading", "no_cluster", "no_routing",
    ]),
    (Forked, "connect again in the child process", ["FORKED"]),
    (Timeout, "try again, or allow more time: deadline_ms=…", ["TIMEOUT", "request_timeout", "query_timeout"]),
    (NoQuorum, "see fondaco nodes for absent replicas, and try again", ["NOQUORUM"]),
    (Overloaded, "send less at a time, and try again later", [
        "OVERLOADED", "QUOTA", "overloaded", "busy", "too_many_pushes", "too_many_uploads", "LIMIT", "query_limit",
    ]),
    (NoStore, "see client.stores(), or create it: client.create_store(name)", ["NOSTORE", "store_not_found"]),
    (NoVersion, "push one: store.push(rows, key=…); store.versions() lists them", [
        "NOVERSION", "version_not_found", "VERSIONGONE", "nothing_served", "no_rollback", "push_not_found",
    ]),
    (NotFound, "check the name or the number", [
        "decision_not_found", "node_not_found", "key_not_found", "user_not_found", "plan_not_found", "NOVERTEX", "NOTYPE",
    ]),
    (AlreadyExists, "use it: client.store(name), or drop it first", ["store_exists"]),
    (ReadOnly, "push rows: store.push(rows, key=…)", ["READONLY", "versioned_store", "not_versioned"]),
    (Conflict, "read again, and repeat the change", [
        "CONFLICT", "conflict", "push_in_progress", "base_changed", "unchangeable", "other_kind", "push_ended",
    ]),
    (BadInput, "correct the argument", [
        "BADINPUT", "BADKEY", "ERR", "invalid_request", "wrong_usage", "invalid_source", "placement", "SCHEMACHANGED", "swapped_together",
    ]),
    (WrongType, "use a store of this type of values: client.create_store(name, value_type=…)", ["WRONGTYPE", "not_a_graph"]),
    (Refused, "connect with user=, password= or token= that may do this", [
        "NOPERM", "NOAUTH", "WRONGPASS", "REFUSED", "unauthorized", "forbidden", "foreign_host", "foreign_origin",
    ]),
    (Corrupt, "roll back: store.rollback(), push again, and check the disk", ["CORRUPT", "IOERR", "upload_corrupt"]),
    (PushFailed, "see store.versions() and the log of the nodes, and push again", [
        "PUSHFAILED", "not_enough_space", "space_quota", "version_failed", "run_failed", "NOSPACE",
    ]),
    (Cancelled, "push again", ["CANCELLED"]),
)


def of_code(code: str, message: str) -> FondacoError:
    """The exception for an error of the crates.

    >>> raise of_code("NOSTORE", 'no store is named "citys"')
    Traceback (most recent call last):
    fondaco.errors.NoStore: no store is named "citys"
    """
    kind, remedy = CODES.get(code, (FondacoError, ""))
    return kind(_with_arguments(message), code=code, remedy=remedy)


#: Arguments that are true or false.
_SWITCHES = {"create", "incremental", "raw", "upload"}


def _with_arguments(message: str) -> str:
    """The message with arguments of Python in place of the options of the command line. Whole commands stay as they are.

    >>> _with_arguments("it needs a token: give it with --token or FONDACO_TOKEN")
    'it needs a token: give it with token= or FONDACO_TOKEN'
    >>> _with_arguments("create it with fondaco store create s --kind batch, or use --create")
    'create it with fondaco store create s --kind batch, or use create=True'
    """

    def argument(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        return f"{name}=True" if name in _SWITCHES else f"{name}="

    parts = re.split(r"([,;:] )", message)
    return "".join(part if "fondaco " in part else re.sub(r"--([a-z][a-z-]*)(?: [A-Z]+\b)?", argument, part) for part in parts)
