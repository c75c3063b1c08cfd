"""Feast's materialisation into batch stores: each run is a version."""

import pytest

pytest.importorskip("feast", reason="feast is not installed in this environment")

import fondaco  # noqa: E402
from conftest import await_that, started  # noqa: E402
from feast import FeatureView, Field  # noqa: E402
from feast.types import Int64  # noqa: E402
from feature_stores import HOUR, NOW, TRIPS, Drivers  # noqa: E402
from fondaco.feast import compute_engine  # noqa: E402
from fondaco.feast.online_store import BatchStoreWritten  # noqa: E402


@pytest.fixture
def drivers(node, tmp_path):
    drivers = Drivers(node, tmp_path, kind="batch", store={"backups": 3})
    drivers.apply()
    yield drivers
    drivers.feast.teardown()


def test_a_view_that_was_never_materialised_has_no_rows(drivers):
    assert drivers.read(1) == [[None], [None]]


def test_a_materialisation_is_one_version(drivers, node):
    drivers.write([(driver, driver, 0.5, NOW) for driver in range(1000)])
    drivers.config.materialization_config.online_write_batch_size = 100
    drivers.materialize()
    assert node.versions(drivers.store_name) == [1]
    assert drivers.read(0, 999, 1000) == [[0, 999, None], [0.5, 0.5, None]]


def test_of_many_rows_of_a_view_without_entities_the_newest_is_served(drivers):
    view = FeatureView(name="world", entities=[], schema=[TRIPS], source=drivers.view().batch_source)
    drivers.feast.apply(view)
    drivers.write([(0, number, 0.5, NOW - abs(number - 7) * HOUR / 100) for number in range(20)])
    drivers.config.materialization_config.online_write_batch_size = 3
    drivers.feast.materialize(NOW - HOUR, NOW + HOUR, feature_views=["world"])
    assert drivers.feast.get_online_features(["world:trips"], [{"any": 1}]).to_dict()["trips"] == [7]


def test_a_later_materialisation_changes_its_entities_and_keeps_the_others(drivers, node):
    drivers.write([(1, 10, 0.5, NOW - HOUR), (2, 20, 0.5, NOW - HOUR)])
    drivers.materialize()
    drivers.write([(2, 21, 0.6, NOW), (3, 30, 0.5, NOW)])
    drivers.materialize(start=NOW - HOUR / 2)
    assert drivers.read(1, 2, 3) == [[10, 21, 30], [0.5, 0.6, 0.5]]
    assert node.versions(drivers.store_name)[-1] == 2


def test_a_materialisation_of_an_earlier_time_does_not_bring_back_older_events(drivers):
    drivers.write([(1, 10, 0.5, NOW)])
    drivers.materialize()
    drivers.write([(1, 9, 0.5, NOW - 2 * HOUR), (2, 20, 0.5, NOW - 2 * HOUR)])
    drivers.materialize(start=NOW - 3 * HOUR, end=NOW - HOUR)
    assert drivers.read(1, 2)[0] == [10, 20]


def test_a_rollback_brings_back_the_features_of_the_run_before(drivers, node):
    drivers.write([(1, 10, 0.5, NOW - HOUR)])
    drivers.materialize()
    drivers.write([(1, 11, 0.5, NOW)])
    drivers.materialize()
    assert drivers.read(1)[0] == [11]
    node.run("rollback", drivers.store_name)
    await_that(lambda: drivers.read(1)[0] == [10], "the rollback is known")


def test_a_run_that_replaces_drops_entities_that_it_has_no_rows_of(node, tmp_path):
    drivers = Drivers(node, tmp_path, kind="batch", engine={"replace": True})
    drivers.apply()
    drivers.write([(1, 10, 0.5, NOW), (2, 20, 0.5, NOW)])
    drivers.materialize()
    drivers.write([(2, 21, 0.5, NOW)])
    drivers.materialize()
    assert drivers.read(1, 2)[0] == [None, 21]
    drivers.feast.teardown()


def test_a_schema_that_changed_since_the_last_version_leaves_older_rows_readable(drivers):
    drivers.write([(1, 10, 0.5, NOW - HOUR), (2, 20, 0.5, NOW - HOUR)])
    drivers.materialize()
    drivers.apply(Field(name="rate", dtype=TRIPS.dtype), Field(name="trips", dtype=Int64))
    drivers.write([(2, 21, 7, NOW)])
    drivers.materialize(start=NOW - HOUR / 2)
    assert drivers.read(1, 2, features=("trips", "rate")) == [[10, 21], [0.5, 7]]


def test_a_run_that_is_repeated_pushes_nothing_again(drivers, node):
    drivers.write([(1, 10, 0.5, NOW), (2, 20, 0.5, NOW)])
    drivers.materialize()
    drivers.materialize()
    assert node.versions(drivers.store_name) == [1]
    assert drivers.read(1, 2)[0] == [10, 20]


def test_a_run_without_rows_pushes_nothing(drivers, node):
    drivers.materialize()
    drivers.materialize(start=NOW - 100 * HOUR, end=NOW - 99 * HOUR)
    assert node.versions(drivers.store_name) == [1]


def test_a_run_that_fails_pushes_nothing(drivers, node, monkeypatch):
    drivers.write([(1, 10, 0.5, NOW)])
    drivers.materialize()
    drivers.write([(driver, 0, 0.5, NOW) for driver in range(300)])
    drivers.config.materialization_config.online_write_batch_size = 100
    encode, calls = compute_engine.encode_rows, []

    def fails_at_the_third_piece(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise RuntimeError("the source broke")
        return encode(*arguments)

    monkeypatch.setattr(compute_engine, "encode_rows", fails_at_the_third_piece)
    with pytest.raises(RuntimeError, match="the source broke"):
        drivers.materialize()
    assert len(calls) == 3
    assert node.versions(drivers.store_name) == [1]
    assert drivers.read(1)[0] == [10]


def test_a_write_of_single_rows_is_refused_and_names_the_remedy(drivers):
    with pytest.raises(BatchStoreWritten, match='"drivers".*batch store.*FondacoComputeEngine'):
        drivers.push([(1, 10, 0.5, NOW)])


def test_a_tag_chooses_the_kind_of_a_view(node, tmp_path):
    drivers = Drivers(node, tmp_path)
    drivers.apply(tags={"fondaco.kind": "batch"})
    drivers.materialize()
    assert node.versions(drivers.store_name) == [1]
    assert drivers.read(1) == [[10], [0.5]]
    with pytest.raises(ValueError, match='fondaco.kind.*"drivers" is "fast"'):
        drivers.apply(tags={"fondaco.kind": "fast"})
    drivers.feast.teardown()


def test_a_cluster_that_ended_is_an_error_of_the_run(tmp_path):
    with started(tmp_path) as node:
        drivers = Drivers(node, tmp_path, kind="batch", connection={"deadline_ms": 500})
        drivers.apply()
    with pytest.raises(fondaco.FondacoError):
        drivers.materialize()
