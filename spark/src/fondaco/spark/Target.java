package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** What the cluster says of the store before a version is built. */
record Target(int partitions, String valueType, ObjectNode declared, String base, boolean deploys) {
    static Target of(Options options, Program program, String store, boolean incremental) {
        boolean deploys = options.flag("deploy", true);
        Integer partitions = options.number("partitions");
        String base = options.text("base");
        boolean told = partitions != null && (!incremental || base != null);
        if (!deploys && told) {
            return new Target(partitions, null, Program.JSON.createObjectNode(), incremental ? base : null, false);
        }
        if (!deploys && !options.hasCluster()) {
            throw new FondacoException("without a cluster (option \"http\"), option \"partitions\" must say how many partitions the cluster has that will"
                    + " serve the version" + (incremental ? ", and option \"base\" where the version is that the rows change" : ""));
        }

        JsonNode status = program.json("status", "--json");
        int served = status.path("cluster").path("partitions").asInt(status.path("process").path("partitions").asInt());
        if (partitions != null && partitions != served) {
            throw new FondacoException("option \"partitions\" is " + partitions + ", but the cluster has " + served + ": leave it out");
        }
        if (options.flag("create", false)) {
            create(options, program, store, status);
        }
        JsonNode shown = program.json("store", "show", store, "--json");
        String valueType = shown.path("value_type").asText("bytes");
        if (!shown.path("kind").asText().equals("versioned") && incremental && base == null) {
            base = current(shown);
            if (base == null) {
                throw new FondacoException("store \"" + store + "\" has no version to append to: write with mode(\"overwrite\") first");
            }
        }
        return new Target(served, valueType, declared(program, store, shown, valueType), incremental ? base : null, deploys);
    }

    /** The members of the specification that say how the store's keys and values are encoded: tasks need no cluster. */
    private static ObjectNode declared(Program program, String store, JsonNode shown, String valueType) {
        ObjectNode declared = Program.JSON.createObjectNode();
        declared.put("key_type", shown.path("key_type").asText("bytes"));
        if (valueType.equals("avro") || valueType.equals("protobuf")) {
            ArrayNode schemas = declared.putArray("value_schemas");
            for (JsonNode schema : program.json("schema", "list", store, "--json").path("schemas")) {
                ObjectNode each = schemas.addObject().put("id", schema.path("id").asInt()).put("text", schema.path("schema").asText());
                if (schema.hasNonNull("message")) {
                    each.put("message", schema.path("message").asText());
                }
            }
            if (schemas.isEmpty()) {
                throw new FondacoException("store \"" + store + "\" has no schema: register one with fondaco schema register " + store + " FILE");
            }
        }
        return declared;
    }

    /** The location of the current version of a store, as {@code fondaco store show} prints it; null if it has none. */
    static String current(JsonNode store) {
        for (JsonNode version : store.path("versions")) {
            if (version.path("current").asBoolean()) {
                return version.path("source").asText();
            }
        }
        return null;
    }

    private static void create(Options options, Program program, String store, JsonNode status) {
        for (JsonNode each : status.path("stores")) {
            if (each.path("name").asText().equals(store)) {
                return;
            }
        }
        program.json("store", "create", store, "--value-type", options.text("valueType", options.isGraph() ? "graph" : "bytes"), "--key-type",
                options.text("keyType", "bytes"), "--json");
    }
}
