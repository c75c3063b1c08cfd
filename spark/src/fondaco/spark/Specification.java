package fondaco.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.List;

/** The JSON document that tells the child programs what to build. Options that are not given are left out: the program has the defaults. */
final class Specification {
    private Specification() {}

    static ObjectNode of(Options options, String store, int partitions, String output, String base, String valueType) {
        ObjectNode spec = Program.JSON.createObjectNode();
        spec.put("store", store);
        spec.put("partitions", partitions);
        spec.put("output", output);
        List<String> key = options.names("key");
        if (key == null) {
            throw new FondacoException("option \"key\" is missing: name the column with the key, or several, separated by commas");
        }
        key.forEach(spec.putArray("key")::add);
        text(spec, "value", options.text("value"));
        names(spec, "values", options.names("values"));
        names(spec, "exclude", options.names("exclude"));
        text(spec, "numbers", options.text("numbers"));
        text(spec, "non_finite", options.text("nonFinite"));
        text(spec, "value_type", options.text("valueType", valueType));
        text(spec, "key_type", options.text("keyType"));
        number(spec, "schema_id", options.has("schemaId") ? options.number("schemaId").longValue() : null);
        text(spec, "compression", options.text("compress"));
        text(spec, "dictionary", options.text("dictionary"));
        text(spec, "on_duplicate", options.text("onDuplicate"));
        text(spec, "order_by", options.text("orderBy"));
        text(spec, "delete", options.text("delete"));
        text(spec, "base", base);
        text(spec, "temporary", options.text("temporary"));
        number(spec, "chunk_bytes", options.bytes("chunkSize"));
        number(spec, "memory_bytes", options.bytes("memory"));
        number(spec, "cut_unix_ms", unixMs(options.text("asOf")));
        if (options.flag("allowEmpty", false)) {
            spec.put("allow_empty", true);
        }
        return spec;
    }

    private static void text(ObjectNode spec, String member, String value) {
        if (value != null) {
            spec.put(member, value);
        }
    }

    private static void number(ObjectNode spec, String member, Long value) {
        if (value != null) {
            spec.put(member, value);
        }
    }

    private static void names(ObjectNode spec, String member, List<String> names) {
        if (names != null) {
            names.forEach(spec.putArray(member)::add);
        }
    }

    private static Long unixMs(String time) {
        if (time == null) {
            return null;
        }
        try {
            return time.matches("\\d+") ? Long.valueOf(time) : (Long) Instant.parse(time).toEpochMilli();
        } catch (DateTimeParseException error) {
            throw new FondacoException("option \"asOf\" is \"" + time + "\": give a time such as 2026-11-26T08:00:00Z", error);
        }
    }
}
