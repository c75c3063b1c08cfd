#!/usr/bin/env python3
"""Writes protobuf.json: what Google's library (pip install protobuf==7.36.2) makes of messages.

The descriptor set (hexadecimal) of one message, and vectors: the JSON form of docs/schemas.md and the bytes (hexadecimal), or bytes that
the library refuses, with error: true.
"""
import json, os
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

F = descriptor_pb2.FieldDescriptorProto
file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
message = file.message_type.add(name="Item")
for number, (name, kind, repeated) in enumerate([
    ("id", F.TYPE_INT64, False), ("name", F.TYPE_STRING, False), ("price", F.TYPE_DOUBLE, False), ("photo", F.TYPE_BYTES, False),
    ("vector", F.TYPE_FLOAT, True), ("sold", F.TYPE_BOOL, False), ("delta", F.TYPE_SINT32, False), ("parts", F.TYPE_MESSAGE, True),
    ("tags", F.TYPE_STRING, True), ("hash", F.TYPE_FIXED64, False),
], 1):
    field = message.field.add(name=name, number=number, type=kind, label=F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL)
    if kind == F.TYPE_MESSAGE:
        field.type_name = ".shop.Item"
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Item = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Item"))

vectors = []
for values in [
    {}, {"id": -1}, {"id": 2**63 - 1, "name": "é", "price": -0.1}, {"photo": b"\0\xff", "sold": True, "delta": -7, "hash": 2**40},
    {"vector": [1.0, 2.5, -0.5]}, {"tags": ["", "b"]}, {"id": 1, "parts": [Item(id=2), Item(name="x", parts=[Item(delta=3)])]},
]:
    item = Item(**values)
    form = json_format.MessageToDict(item, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)

    def numbers(form):
        for name in ("id", "hash"):
            form[name] = int(form[name])
        for part in form["parts"]:
            numbers(part)

    numbers(form)
    vectors.append({"json": form, "bytes": item.SerializeToString(deterministic=True).hex()})
for bad in ["08", "0aff", "120202ff", "1202c328", "ff", "0b08", "2a03000000", "08ffffffffffffffffffff01"]:
    try:
        Item().ParseFromString(bytes.fromhex(bad))
    except DecodeError:
        vectors.append({"bytes": bad, "error": True})
descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(deterministic=True)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "protobuf.json"), "w") as out:
    lines = ",\n".join(json.dumps(vector) for vector in vectors)
    out.write('{"descriptors": "%s", "vectors": [\n%s\n]}\n' % (descriptors.hex(), lines))
