"""Every value of every type arrives as the DataFrame has it."""

import pyspark
import pytest
import servers
from pyspark.sql import functions as F

ROWS = 20_000

# A column of each type, from the number of the row.
COLUMNS = {
    "boolean": "id % 2 = 0",
    "tinyint": "cast(id % 256 - 128 AS TINYINT)",
    "smallint": "cast(id % 65536 - 32768 AS SMALLINT)",
    "int": "cast(CASE id % 3 WHEN 0 THEN -2147483648 WHEN 1 THEN 2147483647 ELSE id END AS INT)",
    "bigint": "CASE id % 4 WHEN 0 THEN 9223372036854775807 WHEN 1 THEN -9223372036854775807 ELSE id * 1000003 END",
    "float": "cast(CASE id % 50 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE cast(sin(id) AS STRING) END AS FLOAT)",
    "double": "CASE id % 50 WHEN 0 THEN double('NaN') WHEN 1 THEN double('Infinity') WHEN 2 THEN -0.0D ELSE exp(id % 600 - 300) END",
    "decimal": "cast(id * 12.3457 - 100000 AS DECIMAL(20, 4))",
    "long_decimal": "cast(concat(id, '99999999999999999999999.0123456789') AS DECIMAL(38, 10))",
    "string": "concat('ä\"\\\\\\n', id, if(id % 10 = 0, '\U0001f980', ''))",
    "binary": "unhex(sha2(cast(id AS STRING), 256))",
    "date": "date_add(DATE'1600-01-01', cast(id * 17 AS INT))",
    "timestamp": "timestamp_micros(id * 86399999999 - 500000000000001)",
    "timestamp_ntz": "timestamp_ntz'1900-01-01 00:00:00.000001' + make_dt_interval(0, cast(id AS INT), 7, 1.25)",
    "months": "make_ym_interval(cast(id % 9 - 4 AS INT), cast(id % 12 AS INT))",
    "days": "make_dt_interval(cast(id % 99 - 50 AS INT), cast(id % 23 AS INT), 5, 0.000001)",
    "structs": "array(named_struct('a', cast(id AS INT), 'b', concat('b', id), 'c', array(id / 3, NULL)), NULL)",
    "map": "map(concat('k', id), id, 'null', NULL)",
    "number_map": "map(cast(id AS INT), array(DATE'2026-01-31'), -1, NULL)",
    "vector": "transform(sequence(1, 32), i -> cast(sin(id * i) AS FLOAT))",
    "nothing": "cast(NULL AS VOID)",
}

if pyspark.__version__.startswith("3."):
    # Spark 3.5 itself refuses to give intervals to a data source.
    del COLUMNS["months"], COLUMNS["days"]

# Spark's Python has no values of these types, or compares NaN with nothing.
AS_TEXT = {"months", "days", "float", "double", "number_map", "map"}


@pytest.fixture
def frame(spark):
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_LTZ")
    # Each column is null in some row, and never in the same one.
    columns = [
        F.expr(f"CASE WHEN id % 101 = {number} THEN NULL ELSE {expression} END" if name != "nothing" else expression).alias(name)
        for number, (name, expression) in enumerate(COLUMNS.items())
    ]
    return spark.range(ROWS).select(F.concat(F.lit("key-"), F.col("id")).alias("id"), *columns)


def rows_of(frame):
    columns = [F.col("id")] + [F.col(name).cast("string") if name in AS_TEXT else F.col(name) for name in COLUMNS]
    return {row["id"]: row.asDict(recursive=True) for row in frame.select(*columns).collect()}


def test_20000_rows_of_all_types_arrive_value_for_value(spark, frame, build):
    read = spark.read.format("fondaco").load(str(build(frame, nonFinite="text")))
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert {field.name: field.dataType.simpleString() for field in read.schema} == types
    expected, actual = rows_of(frame), rows_of(read)
    assert len(actual) == ROWS
    differences = [(key, name, row[name], actual.get(key, {}).get(name)) for key, row in expected.items() for name in row
                   if row[name] != actual.get(key, {}).get(name)]
    assert not differences, f"{len(differences)} values differ, the first: {differences[:3]}"


def test_types_that_parquet_has_give_the_version_of_the_local_builder(frame, build, built_locally):
    # Spark writes intervals to Parquet as plain numbers, and columns without a type not at all.
    plain = frame.drop("months", "days", "nothing")
    local = built_locally(plain, "--non-finite", "text")
    assert servers.checksum(build(plain, nonFinite="text")) == servers.checksum(local)


@pytest.mark.parametrize("key", ["bigint", "date", "decimal", "binary", "timestamp"])
def test_keys_have_their_type(spark, frame, build, key):
    keys = frame.where(F.col(key).isNotNull()).select(key, "string").dropDuplicates([key])
    read = spark.read.format("fondaco").load(str(build(keys, key=key)))
    assert sorted(read.select(key).collect()) == sorted(keys.select(key).collect())


def test_a_single_column_keeps_its_type(spark, frame, build):
    read = spark.read.format("fondaco").load(str(build(frame.where("vector IS NOT NULL").select("id", "vector"), value="vector")))
    assert read.where("id = 'key-5'").select("vector").collect() == frame.where("id = 'key-5'").select("vector").collect()
