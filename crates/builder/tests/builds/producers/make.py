"""Makes the files in this directory, which tests/builds/producers.rs reads. They were made once, with these packages:

    pip install duckdb==2.0.1 pyspark==4.3.0 fastavro==1.13.1 avro==1.12.2 deltalake pyiceberg[sql-sqlite,pyarrow]
    python make.py        (Spark needs Java)
"""

import glob
import os
import shutil
import uuid
from pathlib import Path

import avro.datafile
import avro.io
import avro.schema
import deltalake
import duckdb
import fastavro
import pyarrow
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

HERE = Path(__file__).parent.resolve()
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def clean(name):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    return path


def of_duckdb():
    duckdb.sql(
        f"""copy (select 'a' as k, '{UUID}'::uuid as u, ['{UUID}'::uuid] as us, {{'id': '{UUID}'::uuid}} as o,
                  12.50::decimal(38, 2) as d, 'NaN'::double as f, timestamptz '2026-01-31 12:00:00+00' as at,
                  interval '1 month 2 days 3 seconds' as i, {{'i': interval '1 day', 'n': 7}} as oi,
                  5::variant as v, map {{1: 'x'}} as m,
                  170141183460469231731687303715884105727::hugeint as h)
            to '{HERE}/duckdb.parquet'"""
    )


def of_spark():
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "Europe/Berlin")
        .config("spark.sql.parquet.outputTimestampType", "INT96")
        .config("spark.sql.sources.commitProtocolClass", "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol")
        .config("spark.sql.parquet.compression.codec", "uncompressed")
        .getOrCreate()
    )

    def write(query, name, write):
        folder = clean(name)
        write(spark.sql(query).coalesce(1).write, str(folder))
        for path in glob.glob(f"{folder}/**/.*.crc", recursive=True) + glob.glob(f"{folder}/_*"):
            os.remove(path)
        # Names of files contain random ids.
        for number, path in enumerate(sorted(folder.rglob("part-*"))):
            path.rename(path.with_name(f"part-{number}{path.suffix}"))

    write(
        "select 'a' k, timestamp'2026-01-31 12:00:00' at, array(timestamp'2026-01-31 12:00:00') ats,"
        " parse_json('{\"a\":1}') v, struct(parse_json('1') v, 7 n) o",
        "spark",
        lambda writer, path: writer.parquet(path),
    )
    write(
        "select 'a' k, 1 v, date'2026-11-27' dt, 'x/y:z' city, 7 n"
        " union all select 'b', 2, date'2026-11-28', null, 8",
        "spark-partitioned",
        lambda writer, path: writer.partitionBy("dt", "city", "n").parquet(path),
    )
    write("select 'a' k, 1.50 v, 'x, y' t", "spark-csv", lambda writer, path: writer.csv(path))
    spark.stop()


TREE = {
    "type": "record",
    "name": "com.example.Tree",
    "fields": [
        {"name": "label", "type": "string"},
        {"name": "children", "type": {"type": "array", "items": "com.example.Tree"}},
        {"name": "place", "type": {"type": "record", "name": "com.example.geo.Place", "fields": [{"name": "city", "type": "string"}]}},
    ],
}


def of_fastavro():
    schema = {
        "type": "record",
        "name": "com.example.Row",
        "fields": [
            {"name": "k", "type": "string"},
            {"name": "tree", "type": ["null", TREE]},
            {"name": "place", "type": "com.example.geo.Place"},
            {"name": "u", "type": ["null", "long", "string", {"type": "enum", "name": "com.example.Color", "symbols": ["RED", "BLUE"]}, "com.example.geo.Place"]},
            {"name": "color", "type": "com.example.Color"},
            {"name": "lasts", "type": {"type": "fixed", "name": "com.example.Lasts", "size": 12, "logicalType": "duration"}},
        ],
    }
    place = {"city": "Köln"}
    leaf = {"label": "leaf", "children": [], "place": place}
    tree = {"label": "root", "children": [leaf, leaf], "place": place}
    lasts = b"\x01\x00\x00\x00\x02\x00\x00\x00\xac\x0d\x00\x00"
    unions = [None, 5, "text", ("com.example.Color", "BLUE"), ("com.example.geo.Place", place)]
    rows = [
        {"k": f"k{number}", "tree": tree, "place": place, "u": u, "color": "RED", "lasts": lasts}
        for number, u in enumerate(unions)
    ]
    for codec in ["null", "xz", "bzip2"]:
        with open(HERE / f"fastavro-{codec}.avro", "wb") as file:
            fastavro.writer(file, schema, rows, codec=codec, sync_marker=b"fondaco-fixture!")


def of_apache_avro():
    schema = avro.schema.parse(
        """{"type": "record", "name": "Row", "namespace": "com.example", "fields": [
            {"name": "k", "type": "string"},
            {"name": "v", "type": [
                "int", {"type": "fixed", "name": "com.example.geo.Id", "size": 4},
                {"type": "record", "name": "com.example.geo.Place", "fields": [{"name": "id", "type": "Id"}]}]}]}"""
    )
    with avro.datafile.DataFileWriter(open(HERE / "apache.avro", "wb"), avro.io.DatumWriter(), schema, codec="bzip2") as writer:
        for key, value in [("a", 1), ("b", b"\x00\x01\x02\x03"), ("c", {"id": b"\xff\xff\xff\xff"})]:
            writer.append({"k": key, "v": value})


def of_table_formats():
    rows = pyarrow.table({"k": ["a", "b"], "v": [1, 2]})
    delta = str(clean("delta"))
    deltalake.write_deltalake(delta, rows)
    deltalake.DeltaTable(delta).delete("k = 'a'")

    iceberg = clean("iceberg")
    iceberg.mkdir()
    os.chdir(HERE)
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse="file://iceberg")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", rows.schema)
    table.append(rows)


if __name__ == "__main__":
    of_duckdb()
    of_fastavro()
    of_apache_avro()
    of_table_formats()
    of_spark()
