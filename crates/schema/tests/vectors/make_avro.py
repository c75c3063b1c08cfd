#!/usr/bin/env python3
"""Writes avro.json: what Apache's Python library (pip install avro==1.12.2) makes of schemas and values.

Each vector: writer, reader, json (the value, in the JSON form of docs/schemas.md), bytes (hexadecimal), and either resolved
(the value as the reader gets it, in the same form) or error: true.
"""
import io, json, os
import avro.io, avro.schema
from avro.errors import AvroException


def rec(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def f(name, kind, **more):
    return {"name": name, "type": kind, **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
NODE = rec(f("v", "int"), f("next", ["null", "R"]))
CASES = [(t, t, v) for t, v in [
    ("null", None), ("boolean", True), ("boolean", False), ("string", ""), ("string", "fondaco é"), ("float", 1.5), ("double", -0.1),
    *[("int", n) for n in (0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -2**31)],
    *[("long", n) for n in (8191, 8192, 2**63 - 1, -2**63)],
    ({"type": "array", "items": "long"}, []), ({"type": "array", "items": "long"}, [1, 2, 300]),
    ({"type": "map", "values": "string"}, {}), ({"type": "map", "values": "string"}, {"a": "x"}),
    (["null", "string"], None), (["null", "string"], "x"), (ENUM, "B"), (NODE, {"v": 1, "next": {"v": 2, "next": None}}),
    (rec(f("a", "int"), f("b", {"type": "array", "items": rec(f("c", "string"), name="S")}), namespace="n"), {"a": 1, "b": [{"c": "x"}, {"c": "y"}]}),
]] + [
    *[(w, r, 7) for w, r in [("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("long", "int"), ("int", "string"), ("int", ["null", "int"]), (["int", "string"], ["string", "int"]), ("int", ["null", "long"])]],
    ("float", "double", 1.5), ("double", "float", 1.5), ("string", ["null", "string"], "x"), (["null", "int"], "int", None), ("boolean", "int", True),
    (ENUM, {**ENUM, "symbols": ["B", "A"]}, "A"), (ENUM, {**ENUM, "symbols": ["B"]}, "A"), (ENUM, {**ENUM, "symbols": ["B"]}, "B"),
    (rec(f("a", "int"), f("b", "string")), rec(f("b", "string"), f("a", "long")), {"a": 1, "b": "x"}),
    (rec(f("a", "int"), f("b", {"type": "map", "values": {"type": "array", "items": "string"}}), f("c", "int")), rec(f("c", "double")), {"a": 1, "b": {"k": ["v"]}, "c": 5}),
    *[(rec(f("a", "int")), rec(f("a", "int"), f("n", t, default=d)), {"a": 1}) for t, d in [("int", 5), ("string", "x"), ("boolean", True), ("double", 2.5), ("null", None), (["null", "int"], None), ({"type": "array", "items": "int"}, [1, 2]), ({"type": "map", "values": "int"}, {"k": 1}), (ENUM, "B"), (rec(f("x", "int"), name="S"), {"x": 3})]],
    (rec(f("a", "int")), rec(f("a", "int"), f("n", "int")), {"a": 1}),
    (rec(f("a", {"type": "array", "items": ["null", "int"]})), rec(f("a", {"type": "array", "items": ["null", "long", "string"]})), {"a": [None, 1]}),
    (rec(f("a", rec(f("x", "int"), f("y", "int"), name="S"))), rec(f("a", rec(f("y", "long"), f("z", "int", default=9), name="S"))), {"a": {"x": 1, "y": 2}}),
]

vectors = []
for writer, reader, value in CASES:
    w, r = avro.schema.parse(json.dumps(writer)), avro.schema.parse(json.dumps(reader))
    out = io.BytesIO()
    avro.io.DatumWriter(w).write(value, avro.io.BinaryEncoder(out))
    vector = {"writer": writer, "reader": reader, "json": value, "bytes": out.getvalue().hex()}
    try:
        vector["resolved"] = avro.io.DatumReader(w, r).read(avro.io.BinaryDecoder(io.BytesIO(out.getvalue())))
    except AvroException:
        vector["error"] = True
    vectors.append(vector)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "avro.json"), "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(vector) for vector in vectors) + "\n]\n")
