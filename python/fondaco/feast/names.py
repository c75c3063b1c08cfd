"""The name of the store of a feature view.

``PROJECT.VIEW``, as long as that is a name that a store may have: neither part may then contain a dot, so no two views
share a store. Other names get what fits of them and a digest of the whole, with a second dot.
"""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_BYTES_MAX = 64


def store_name(project: str, view: str) -> str:
    """The store of a feature view of a project.

    >>> store_name("shop", "driver_stats")
    'shop.driver_stats'
    >>> store_name("shop", "drivers in Köln")
    'shop.drivers_in_K_ln.3abc3e67cf19'
    """
    name = f"{project}.{view}"
    if _PLAIN.fullmatch(project) and re.fullmatch(r"[A-Za-z0-9_-]+", view) and len(name) <= _BYTES_MAX:
        return name
    digest = hashlib.blake2b(f"{project}\0{view}".encode(), digest_size=6).hexdigest()
    parts = [re.sub(r"[^A-Za-z0-9_-]", "_", part) or "_" for part in (project, view)]
    parts[0] = re.sub(r"^-", "_", parts[0])
    readable = ".".join(part[: (_BYTES_MAX - len(digest) - 2) // 2] for part in parts)
    return f"{readable}.{digest}"
