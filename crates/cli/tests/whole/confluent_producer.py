"""Sends events to a topic with Confluent's own serializers. Arguments: the registry, the brokers, the topic. Each line of the
standard input is an event: {"key", and "avro" | "json": the text of the schema and "value", or "protobuf": the index of a message and
"value", or "bytes": hexadecimal}. With "topic", the schema is registered under another topic, and nothing is sent. Prints the value of
each event in hexadecimal."""

import json
import sys

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

url, brokers, topic = sys.argv[1:]
registry = SchemaRegistryClient({"url": url})
producer = Producer({"bootstrap.servers": brokers})


def messages():
    """Two messages of one file."""
    file = descriptor_pb2.FileDescriptorProto(name="user.proto", package="shop", syntax="proto3")
    for name, number in [("Other", 2), ("User", 1)]:
        message = file.message_type.add(name=name)
        message.field.add(name="age", number=number, type=5, label=1)
        message.field.add(name="city", number=number + 2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ["Other", "User"]]


MESSAGES = messages()


def encoded(event):
    context = SerializationContext(event.get("topic", topic), MessageField.VALUE)
    if "bytes" in event:
        return bytes.fromhex(event["bytes"])
    if "avro" in event:
        return AvroSerializer(registry, json.dumps(event["avro"]))(event["value"], context)
    if "json" in event:
        return JSONSerializer(json.dumps(event["json"]), registry)(event["value"], context)
    message = MESSAGES[event["protobuf"]]
    options = {"use.deprecated.format": False}
    return ProtobufSerializer(message, registry, options)(message(**event["value"]), context)


for line in sys.stdin:
    event = json.loads(line)
    value = encoded(event)
    if "topic" not in event:
        producer.produce(topic, key=event["key"], value=value)
    print(value.hex())
if producer.flush(60):
    sys.exit("not all events were sent")
