"""Feast's online store on versioned stores."""

import asyncio
import math
import threading
from datetime import datetime, timedelta, timezone

import pytest

pytest.importorskip("feast", reason="feast is not installed in this environment")

import fondaco  # noqa: E402
from conftest import await_that  # noqa: E402
from feast import Entity, FeatureView, Field, ValueType  # noqa: E402
from feast.infra.key_encoding_utils import serialize_entity_key  # noqa: E402
from feast.protos.feast.core.Registry_pb2 import Registry  # noqa: E402
from feast.protos.feast.types import Value_pb2  # noqa: E402
from feast.protos.feast.types.EntityKey_pb2 import EntityKey  # noqa: E402
from feast.types import Array, Bytes, Float64, Int64, String, UnixTimestamp  # noqa: E402
from feature_stores import HOUR, NOW, TRIPS, Drivers, key  # noqa: E402
from fondaco.feast import keys  # noqa: E402
from fondaco.feast.names import store_name  # noqa: E402
from fondaco.feast.online_store import FondacoStore  # noqa: E402

Value = Value_pb2.Value


@pytest.fixture
def drivers(node, tmp_path):
    drivers = Drivers(node, tmp_path)
    yield drivers
    drivers.feast.teardown()


def test_what_is_materialised_is_served(drivers):
    drivers.apply()
    drivers.write([(1, 10, 0.5, NOW), (2, 20, 0.25, NOW), (1, 11, 0.75, NOW - HOUR)])
    drivers.materialize()
    assert drivers.read(1, 2, 3) == [[10, 20, None], [0.5, 0.25, None]]


def test_reads_and_writes_work_with_asyncio(drivers):
    view = drivers.apply()
    rows = [(key(7), {"trips": Value(int64_val=1), "rate": Value(double_val=0.5)}, NOW, None)]
    written = []

    async def write_and_read():
        online = drivers.online
        await online.initialize(drivers.config)
        await online.online_write_batch_async(drivers.config, view, rows, written.append)
        late = [(key(7), {"trips": Value(int64_val=0), "rate": Value(double_val=0)}, NOW - HOUR, None)]
        await online.online_write_batch_async(drivers.config, view, late, written.append)
        answer = await drivers.feast.get_online_features_async(["drivers:trips"], [{"driver": 7}, {"driver": 8}])
        read = await online.online_read_async(drivers.config, view, [key(7), key(8)], ["rate"])
        await online.close()
        return answer.to_dict()["trips"], read

    trips, read = asyncio.run(write_and_read())
    assert trips == [1, None]
    assert read == [(NOW, {"rate": Value(double_val=0.5)}), (None, None)]
    assert written == [1, 1]


def test_only_requested_features_are_returned(drivers):
    view = drivers.apply()
    drivers.push([(1, 10, 0.5, NOW)])
    read = drivers.online.online_read(drivers.config, view, [key(1)], ["trips"])
    assert read == [(NOW, {"trips": Value(int64_val=10)})]


def test_a_late_write_does_not_replace_a_newer_event(drivers):
    drivers.apply()
    drivers.push([(1, 10, 0.5, NOW)])
    drivers.push([(1, 9, 0.4, NOW - HOUR), (2, 20, 0.5, NOW - HOUR)])
    assert drivers.read(1, 2) == [[10, 20], [0.5, 0.5]]
    drivers.push([(1, 11, 0.6, NOW), (2, 21, 0.5, NOW)])
    assert drivers.read(1, 2) == [[11, 21], [0.6, 0.5]]


def test_of_several_rows_of_an_entity_in_one_write_the_newest_stays(drivers):
    drivers.apply()
    drivers.push([(1, 10, 0.5, NOW - HOUR), (1, 12, 0.5, NOW), (1, 11, 0.5, NOW - HOUR)])
    assert drivers.read(1) == [[12], [0.5]]


def test_writers_that_write_at_once_leave_the_newest_event(drivers):
    view = drivers.apply()
    writers, rounds, entities = 4, 8, [key(number) for number in range(20)]
    failures = []

    def write(writer):
        try:
            for number in range(rounds):
                event = NOW + timedelta(milliseconds=number * writers + writer)
                value = Value(int64_val=number * writers + writer)
                rows = [(entity, {"trips": value, "rate": Value(double_val=0)}, event, None) for entity in entities]
                drivers.online.online_write_batch(drivers.config, view, rows, None)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    read = drivers.online.online_read(drivers.config, view, entities, ["trips"])
    assert {features["trips"].int64_val for _, features in read} == {writers * rounds - 1}


def test_without_deduplication_the_last_write_stays(node, tmp_path):
    drivers = Drivers(node, tmp_path, skip_dedup=True)
    drivers.apply()
    drivers.push([(1, 10, 0.5, NOW)])
    drivers.push([(1, 9, 0.4, NOW - HOUR)])
    assert drivers.read(1) == [[9], [0.4]]
    drivers.feast.teardown()


def test_all_types_of_values_arrive_as_they_were(drivers):
    fields = {
        "nothing": (Int64, Value()),
        "nan": (Float64, Value(double_val=math.nan)),
        "infinite": (Float64, Value(double_val=-math.inf)),
        "text": (String, Value(string_val="Köln 🚕")),
        "raw": (Bytes, Value(bytes_val=b"\0\xff")),
        "time": (UnixTimestamp, Value(unix_timestamp_val=int(NOW.timestamp()))),
        "integers": (Array(Int64), Value(int64_list_val=Value_pb2.Int64List(val=[1, -(2**63)]))),
        "empty": (Array(String), Value(string_list_val=Value_pb2.StringList())),
        "blobs": (Array(Bytes), Value(bytes_list_val=Value_pb2.BytesList(val=[b"", b"a"]))),
        "zero": (Int64, Value(int64_val=0)),
    }
    view = drivers.apply(*(Field(name=name, dtype=dtype) for name, (dtype, _) in fields.items()))
    values = {name: value for name, (_, value) in fields.items()}
    event = datetime(2026, 11, 28, 12, 30, 15, 123456)
    drivers.online.online_write_batch(drivers.config, view, [(key(1), values, event, None)], None)
    [(read_event, read)] = drivers.online.online_read(drivers.config, view, [key(1)], list(fields))
    assert read_event == event.replace(tzinfo=timezone.utc), "a time without a zone is in UTC"
    assert math.isnan(read.pop("nan").double_val)
    values.pop("nan")
    assert read == values
    assert drivers.read(1, features=("nothing", "integers", "raw")) == [[None], [[1, -(2**63)]], [b"\0\xff"]]


def test_rows_of_an_older_schema_stay_readable(drivers):
    drivers.apply()
    drivers.push([(1, 10, 0.5, NOW), (2, 20, 0.25, NOW)])
    # A feature goes, one comes, and the order is another one.
    cars = Field(name="cars", dtype=Int64)
    view = drivers.apply(cars, TRIPS)
    drivers.push([(2, 3, 21, NOW)], columns=("driver", "cars", "trips", "event_timestamp"))
    assert drivers.read(1, 2, features=("cars", "trips")) == [[None, 3], [10, 21]]
    read = drivers.online.online_read(drivers.config, view, [key(1)], None)
    assert read == [(NOW, {"trips": Value(int64_val=10)})]
    # Another process knows neither schema.
    drivers.online._schemas.clear()
    assert drivers.read(1, 2, features=("cars", "trips")) == [[None, 3], [10, 21]]


def test_rows_disappear_when_their_time_is_over(node, tmp_path):
    drivers = Drivers(node, tmp_path, key_ttl_seconds=1)
    drivers.apply()
    drivers.push([(1, 10, 0.5, NOW)])
    assert drivers.read(1) == [[10], [0.5]]
    await_that(lambda: drivers.read(1) == [[None], [None]], "the row expired", seconds=20)
    # The names of the features do not expire.
    drivers.online._schemas.clear()
    drivers.push([(1, 11, 0.5, NOW)])
    assert drivers.read(1) == [[11], [0.5]]
    drivers.feast.teardown()


def test_events_older_than_the_ttl_of_their_view_are_not_served_if_so_configured(node, tmp_path):
    for expire, expected in [(True, [None, 20]), (False, [10, 20])]:
        drivers = Drivers(node, tmp_path, expire_by_view_ttl=expire)
        drivers.apply(ttl=HOUR)
        drivers.push([(1, 10, 0.5, NOW - 2 * HOUR), (2, 20, 0.5, NOW)])
        assert drivers.read(1, 2)[0] == expected
        drivers.feast.teardown()


def test_an_event_that_reaches_the_ttl_of_its_view_is_no_longer_served(node, tmp_path):
    drivers = Drivers(node, tmp_path, expire_by_view_ttl=True)
    drivers.apply(ttl=timedelta(seconds=2))
    drivers.push([(1, 10, 0.5, datetime.now(timezone.utc))])
    assert drivers.read(1)[0] == [10]
    await_that(lambda: drivers.read(1)[0] == [None], "the event became too old", seconds=20)
    drivers.feast.teardown()


def test_a_row_without_features_has_only_its_time(drivers):
    view = drivers.apply()
    drivers.online.online_write_batch(drivers.config, view, [(key(1), {}, NOW, None)], None)
    assert drivers.online.online_read(drivers.config, view, [key(1)], None) == [(NOW, {})]
    assert drivers.read(1) == [[None], [None]]


def test_a_view_without_entities_has_one_row(drivers):
    view = FeatureView(name="drivers", entities=[], schema=[TRIPS], source=drivers.view().batch_source)
    drivers.feast.apply(view)
    drivers.materialize()
    assert drivers.feast.get_online_features(["drivers:trips"], [{"any": 1}]).to_dict()["trips"] == [10]


def test_keys_of_several_entities_have_one_form_whatever_their_order(drivers):
    driver, city = Entity(name="driver", value_type=ValueType.INT64), Entity(name="city", value_type=ValueType.STRING)
    view = FeatureView(name="drivers", entities=[driver, city], schema=[TRIPS], source=drivers.view().batch_source)
    drivers.feast.apply([driver, city, view])
    pairs = {"driver": Value(int64_val=1), "city": Value(string_val="Köln")}
    there = EntityKey(join_keys=list(pairs), entity_values=pairs.values())
    back = EntityKey(join_keys=reversed(list(pairs)), entity_values=reversed(list(pairs.values())))
    row = {"trips": Value(int64_val=3)}
    drivers.online.online_write_batch(drivers.config, view, [(there, row, NOW, None)], None)
    assert drivers.online.online_read(drivers.config, view, [back], None) == [(NOW, row)]


def test_apply_makes_stores_and_drops_those_of_deleted_views(drivers, node):
    view = drivers.apply()
    assert node.stores()[drivers.store_name]["kind"] == "versioned"
    drivers.push([(1, 10, 0.5, NOW)])
    drivers.feast.apply([], objects_to_delete=[view], partial=False)
    assert drivers.store_name not in node.stores()
    # A view of the same name begins without rows.
    drivers.apply()
    assert drivers.read(1) == [[None], [None]]


def test_teardown_drops_the_stores_of_this_project_alone_and_may_be_repeated(node, tmp_path):
    one, other = Drivers(node, tmp_path), Drivers(node, tmp_path)
    one.apply()
    other.apply()
    view = one.view()
    one.feast.teardown()
    assert one.store_name not in node.stores()
    assert other.store_name in node.stores()
    one.online.teardown(one.config, [view], [])
    other.feast.teardown()


def test_plan_names_the_stores_and_its_objects_make_and_drop_them(drivers, node):
    drivers.apply()
    desired = Registry()
    desired.feature_views.append(drivers.view().to_proto())
    [planned] = drivers.online.plan(drivers.config, desired)
    assert (planned.name, planned.kind) == (drivers.store_name, "versioned")
    again = FondacoStore.from_infra_object_proto(planned.to_infra_object_proto())
    again.teardown()
    again.teardown()
    assert drivers.store_name not in node.stores()
    again.update()
    again.update()
    assert drivers.store_name in node.stores()


def test_a_store_of_another_kind_is_refused_by_name(drivers, node):
    node.run("store", "create", drivers.store_name)
    with pytest.raises(
        ValueError, match=f'store "{drivers.store_name}" exists and is a batch store.*fondaco store drop'
    ):
        drivers.apply()
    node.run("store", "drop", drivers.store_name, "--yes")


def test_documents_are_refused_by_name(drivers):
    view = drivers.apply()
    with pytest.raises(NotImplementedError, match="retrieve_online_documents .*drivers.*no index of vectors"):
        drivers.online.retrieve_online_documents(drivers.config, view, ["trips"], [0.1], 3)
    with pytest.raises(NotImplementedError, match="retrieve_online_documents_v2 .*drivers.*no index of vectors"):
        drivers.online.retrieve_online_documents_v2(drivers.config, view, ["trips"], [0.1], 3)


def test_a_value_that_another_program_wrote_is_an_error_and_no_feature(drivers, node):
    view = drivers.apply()
    client = drivers.online.connect(drivers.config)
    client.store(drivers.store_name).put(serialize_entity_key(key(1), 3), b"hello")
    with pytest.raises(ValueError, match="another program wrote to"):
        drivers.online.online_read(drivers.config, view, [key(1)], None)


def test_a_cluster_that_cannot_be_reached_is_named(tmp_path):
    class Nowhere:
        resp = http = "127.0.0.1:1"

    drivers = Drivers(Nowhere, tmp_path, connection={"connect_ms": 500})
    with pytest.raises(fondaco.FondacoError, match="127.0.0.1:1"):
        drivers.apply()


def test_reads_go_on_while_a_node_is_killed(cluster, tmp_path):
    drivers = Drivers(cluster, tmp_path, store={"versioned": {"reads": 1, "writes": 2, "sloppy": True}})
    drivers.apply()
    rows = [(driver, driver * 10, 0.5, NOW) for driver in range(50)]
    drivers.push(rows)
    expected = [driver * 10 for driver in range(50)]
    stop, failures, reads = threading.Event(), [], []

    def read():
        while not stop.is_set():
            try:
                [trips] = drivers.read(*range(50), features=("trips",))
                reads.append(trips)
            except Exception as error:
                failures.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    await_that(lambda: len(reads) > 5, "reads are under way")
    before = len(reads)
    cluster.nodes[1].process.kill()
    await_that(lambda: failures or len(reads) > before + 50, "reads after the kill")
    stop.set()
    reader.join()
    assert not failures
    assert all(trips == expected for trips in reads)

    def written():
        try:
            drivers.push([(1, 11, 0.5, NOW + HOUR)])
        except (fondaco.NoQuorum, fondaco.Timeout):
            return False
        return True

    await_that(written, "a write, once the cluster has noticed")
    assert drivers.read(1) == [[11], [0.5]]


def test_keys_are_those_of_feast_byte_for_byte():
    values = [Value(int64_val=-(2**63)), Value(int64_val=7), Value(string_val=""), Value(string_val="Köln")]
    values += [Value(int32_val=7), Value(bytes_val=b"\0"), Value(unix_timestamp_val=7)]
    entities = [EntityKey(join_keys=["Fahrer_ä"], entity_values=[value]) for value in values]
    entities += [EntityKey(join_keys=["b", "a"], entity_values=pair) for pair in zip(values, values[1:])]
    entities += [EntityKey()]
    assert keys.serialize(entities, 3) == [serialize_entity_key(entity, 3) for entity in entities]


def test_names_of_stores_are_valid_and_never_shared():
    names = [("a", "b"), ("a-b", "c"), ("a", "b-c"), ("a", "b.c"), ("a.b", "c"), ("a", "b c"), ("a", "b_c")]
    names += [("a", "x" * 80), ("a", "x" * 81), ("-a", "b"), ("a", "Köln"), ("p" * 60, "v" * 60)]
    stores = [store_name(*name) for name in names]
    assert len(set(stores)) == len(stores)
    for store in stores:
        assert len(store) <= 64
        assert all(one.isascii() and (one.isalnum() or one in "_-.") for one in store)
        assert store[0] not in "-."
    assert stores[0] == "a.b"
