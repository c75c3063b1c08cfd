package fondaco.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import scala.Tuple2;

/**
 * The options of a read or a write. Names are compared without regard to case, as in all of Spark. An unknown name is refused.
 *
 * <p>{@code spark.fondaco.NAME} in the configuration of the session is the default of each option.
 */
final class Options implements Serializable {
    static final String CONFIGURATION_PREFIX = "spark.fondaco.";

    /** All names, and the variable by which the native program takes each of those that say where the cluster is and who asks. */
    private static final Map<String, String> CLUSTER = Map.of(
            "http", "FONDACO_HTTP",
            "user", "FONDACO_USER",
            "password", "FONDACO_PASSWORD",
            "token", "FONDACO_TOKEN",
            "tls", "FONDACO_TLS",
            "ca", "FONDACO_CA");

    private static final List<String> OTHERS = List.of(
            "store", "path", "output", "key", "value", "values", "exclude", "numbers", "nonFinite", "valueType", "keyType", "schemaId", "compress", "dictionary",
            "chunkSize", "onDuplicate", "orderBy", "delete", "base", "asOf", "allowEmpty", "deploy", "upload", "run", "tasks", "memory",
            "temporary", "create", "partitions", "binary", "eventTime", "topicPartitions", "edges", "type", "vertices", "vertexName", "symmetric",
            "index", "unknownVertices", "staging");

    /** Options whose names end with a name of the user's, in which case matters: {@code edges.KNOWS}. */
    private static final List<String> NAMED = List.of("edges.", "vertices.");

    /** Options that Spark itself adds or reads. */
    private static final List<String> OF_SPARK = List.of("checkpointlocation", "querytimeout", "mergeschema", "serialization.format");

    private final Map<String, String> values = new HashMap<>();
    private final TreeMap<String, String> named = new TreeMap<>();

    Options(scala.collection.immutable.Map<String, String> parameters, scala.collection.immutable.Map<String, String> configuration) {
        for (var entries = configuration.iterator(); entries.hasNext(); ) {
            Tuple2<String, String> entry = entries.next();
            if (entry._1().startsWith(CONFIGURATION_PREFIX)) {
                put(entry._1().substring(CONFIGURATION_PREFIX.length()), entry._2(), entry._1());
            }
        }
        // Spark's own map passes names on in lower case.
        var given = parameters instanceof CaseInsensitiveMap<String> insensitive ? insensitive.originalMap() : parameters;
        for (var entries = given.iterator(); entries.hasNext(); ) {
            Tuple2<String, String> entry = entries.next();
            put(entry._1(), entry._2(), entry._1());
        }
    }

    String text(String name) {
        return values.get(lower(name));
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(lower(name), otherwise);
    }

    String needed(String name, String why) {
        String value = text(name);
        if (value == null) {
            throw new FondacoException("option \"" + name + "\" is missing: " + why);
        }
        return value;
    }

    boolean flag(String name, boolean otherwise) {
        String value = text(name);
        if (value == null) {
            return otherwise;
        }
        return switch (value.toLowerCase(Locale.ROOT)) {
            case "true" -> true;
            case "false" -> false;
            default -> throw new FondacoException("option \"" + name + "\" is \"" + value + "\": give true or false");
        };
    }

    Integer number(String name) {
        String value = text(name);
        try {
            return value == null ? null : Integer.valueOf(value);
        } catch (NumberFormatException error) {
            throw new FondacoException("option \"" + name + "\" is \"" + value + "\": give a number", error);
        }
    }

    /** A size such as {@code 256MiB} or {@code 1g}. */
    Long bytes(String name) {
        String value = text(name);
        try {
            return value == null ? null : (Long) JavaUtils.byteStringAsBytes(value.replaceFirst("(?i)ib$", "b"));
        } catch (NumberFormatException error) {
            throw new FondacoException("option \"" + name + "\" is \"" + value + "\": give a size such as 256MiB", error);
        }
    }

    /** Names of columns, separated by commas. */
    List<String> names(String name) {
        String value = text(name);
        return value == null ? null : Arrays.stream(value.split(",")).map(String::strip).collect(Collectors.toList());
    }

    /** Whether the rows to write are edges. */
    boolean isGraph() {
        return text("edges") != null;
    }

    /** Whether the option is given. */
    boolean has(String name) {
        return text(name) != null;
    }

    /** The options {@code prefix.NAME}, by their names. */
    SortedMap<String, String> named(String prefix) {
        SortedMap<String, String> found = new TreeMap<>();
        named.tailMap(prefix + ".").forEach((name, value) -> {
            if (name.startsWith(prefix + ".")) {
                found.put(name.substring(prefix.length() + 1), value);
            }
        });
        return found;
    }

    /** Options for Spark's Kafka sink. */
    Map<String, String> ofKafka() {
        return values.entrySet().stream()
                .filter(each -> each.getKey().startsWith("kafka."))
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
    }

    /** Whether a cluster is named. */
    boolean hasCluster() {
        return text("http") != null || System.getenv("FONDACO_HTTP") != null;
    }

    Program program() {
        Map<String, String> environment = new TreeMap<>();
        CLUSTER.forEach((name, variable) -> {
            if (text(name) != null) {
                environment.put(variable, text(name));
            }
        });
        return new Program(text("binary"), environment);
    }

    private void put(String name, String value, String given) {
        String key = lower(name);
        if (key.startsWith("kafka.") || OF_SPARK.contains(key)) {
            values.put(key, value);
            return;
        }
        for (String prefix : NAMED) {
            if (key.startsWith(prefix)) {
                named.put(prefix + name.substring(prefix.length()), value);
                return;
            }
        }
        List<String> known = new ArrayList<>(OTHERS);
        known.addAll(CLUSTER.keySet());
        if (known.stream().noneMatch(each -> lower(each).equals(key))) {
            String all = Stream.concat(known.stream(), Stream.of("kafka.…", "edges.…", "vertices.…")).sorted().collect(Collectors.joining(", "));
            throw new FondacoException("unknown option \"" + given + "\": fondaco has " + all);
        }
        values.put(key, value);
    }

    private static String lower(String name) {
        return name.toLowerCase(Locale.ROOT);
    }
}
