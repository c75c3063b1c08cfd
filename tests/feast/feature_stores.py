"""A feature store of Feast on a fondaco, with one feature view of drivers."""

import itertools
from datetime import datetime, timedelta, timezone

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Float64, Int64

NOW = datetime.now(timezone.utc).replace(microsecond=0)
HOUR = timedelta(hours=1)
DRIVER = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)
TRIPS = Field(name="trips", dtype=Int64)
RATE = Field(name="rate", dtype=Float64)

numbers = itertools.count()


class Drivers:
    """A feature store in a project of its own, and its source, a file of Parquet."""

    def __init__(self, node, directory, engine=None, project=None, **online):
        self.project = project or f"p{next(numbers)}"
        self.path = str(directory / "drivers.parquet")
        self.write([(1, 10, 0.5, NOW)])
        config = RepoConfig(
            project=self.project,
            registry=str(directory / f"{self.project}.db"),
            provider="local",
            entity_key_serialization_version=3,
            offline_store={"type": "file"},
            online_store={
                "type": "fondaco.feast.FondacoOnlineStore", "resp": node.resp, "http": node.http, **online,
            },
            batch_engine={"type": "fondaco.feast.FondacoComputeEngine", **(engine or {})},
        )  # fmt: skip
        self.feast = FeatureStore(config=config)
        self.store_name = f"{self.project}.drivers"

    @property
    def online(self):
        return self.feast._get_provider().online_store

    @property
    def config(self):
        return self.feast.config

    def view(self, *fields, ttl=timedelta(0), **options):
        source = FileSource(path=self.path, timestamp_field="event_timestamp")
        return FeatureView(
            name="drivers", entities=[DRIVER], schema=list(fields) or [TRIPS, RATE], source=source, ttl=ttl, **options
        )

    def apply(self, *fields, **options):
        view = self.view(*fields, **options)
        self.feast.apply([DRIVER, view])
        return view

    def write(self, rows):
        """The rows of the source: driver, trips, rate, time of the event."""
        pd.DataFrame(rows, columns=["driver", "trips", "rate", "event_timestamp"]).to_parquet(self.path)

    def materialize(self, start=NOW - 24 * HOUR, end=NOW + HOUR):
        self.feast.materialize(start, end)

    def push(self, rows, columns=("driver", "trips", "rate", "event_timestamp")):
        """Writes rows to the online store."""
        self.feast.write_to_online_store("drivers", pd.DataFrame(rows, columns=list(columns)))

    def read(self, *drivers, features=("trips", "rate")):
        """The features of drivers, as Feast serves them: a list for each feature."""
        answer = self.feast.get_online_features(
            [f"drivers:{name}" for name in features], [{"driver": driver} for driver in drivers]
        ).to_dict()
        return [answer[name] for name in features]


def key(driver):
    return EntityKey(join_keys=["driver"], entity_values=[Value(int64_val=driver)])
