"""fondaco as the online store of a Feast feature store.

In ``feature_store.yaml``::

    online_store:
        type: fondaco.feast.FondacoOnlineStore
        resp: 127.0.0.1:6500
        http: 127.0.0.1:6580
    entity_key_serialization_version: 3

Each feature view is a store of its own. By default it is a *versioned* store, which takes every write of Feast. A view
that is only ever materialised can be a *batch* store (``kind: batch``): ``FondacoComputeEngine`` then pushes each
materialisation as one version, which is swapped in whole and can be rolled back.
"""

from .compute_engine import FondacoComputeEngine, FondacoComputeEngineConfig
from .online_store import FondacoOnlineStore, FondacoOnlineStoreConfig

__all__ = [
    "FondacoComputeEngine",
    "FondacoComputeEngineConfig",
    "FondacoOnlineStore",
    "FondacoOnlineStoreConfig",
]
