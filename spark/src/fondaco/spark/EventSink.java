package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The sink of a stream: rows become events of a hybrid store, in its topic or its log.
 *
 * <p>Keys and values are encoded as those of versions. Spark's own Kafka sink writes the records, and its promise holds: each row is
 * written at least once. A repeated event does no harm, since it has the same time and value.
 */
final class EventSink implements Sink {
    /** The time of an event in milliseconds, while rows are encoded. */
    private static final String TIME = "__fondaco_event_time_ms";

    private static final StructType HEADER = new StructType().add("key", DataTypes.StringType).add("value", DataTypes.BinaryType);

    /** Records, as Spark's Kafka sink takes them. */
    private static final StructType RECORDS = new StructType()
            .add("key", DataTypes.BinaryType)
            .add("value", DataTypes.BinaryType)
            .add("headers", DataTypes.createArrayType(HEADER))
            .add("partition", DataTypes.IntegerType);

    private final SparkSession session;
    private final Options options;
    private final Program program;
    private final String store;
    private final String source;
    /** The partitions of the topic, if it is partitioned as the store is. */
    private final Integer topicPartitions;

    EventSink(SparkSession session, Options options) {
        this.session = session;
        this.options = options;
        this.program = options.program();
        this.store = options.needed("store", "name the hybrid store that gets the events");
        JsonNode stream = program.json("store", "show", store, "--json").path("stream");
        if (!stream.path("source").isTextual()) {
            throw new FondacoException("store \"" + store + "\" takes no events: only hybrid stores do (fondaco store create … --kind hybrid --stream …)");
        }
        this.source = stream.path("source").asText();
        boolean asStore = stream.path("partitioner").asText().equals("store");
        if (asStore && options.number("topicPartitions") == null) {
            throw new FondacoException("the topic of store \"" + store + "\" is partitioned as the store is: say by option \"topicPartitions\" how many"
                    + " partitions it has");
        }
        this.topicPartitions = asStore ? options.number("topicPartitions") : null;
    }

    @Override
    public void addBatch(long batch, Dataset<Row> data) {
        Dataset<Row> rows = Shims.dataFrame(session, data.queryExecution().toRdd().toJavaRDD(), data.schema());
        String eventTime = options.text("eventTime");
        if (eventTime != null) {
            rows = rows.withColumn(TIME, milliseconds(rows.schema(), eventTime));
        }
        Dataset<Row> frame = rows;
        String spec = specification(eventTime).toString();
        StructType schema = frame.schema();
        Program program = this.program;
        boolean timed = eventTime != null;
        boolean partitioned = topicPartitions != null;
        Grouping grouping = Grouping.identity(partitions());
        JavaRDD<InternalRow> encoded = frame.queryExecution().toRdd().toJavaRDD().mapPartitions(each -> {
            EncodedRows events = new EncodedRows(each, schema, grouping, timed ? 5 : 4, program.start("task", "encode", "--spec", spec));
            Child.afterTask(events::close);
            return events;
        });
        if (source.startsWith("kafka://")) {
            toKafka(encoded.map(row -> EventRecord.of(row, timed, partitioned)));
        } else {
            EventLog log = new EventLog(options, store);
            encoded.foreachPartition(events -> log.append(events, timed));
        }
    }

    @Override
    public String toString() {
        return "fondaco store " + store;
    }

    private void toKafka(JavaRDD<InternalRow> records) {
        String address = source.substring("kafka://".length());
        int slash = address.indexOf('/');
        Dataset<Row> frame = Shims.dataFrame(session, records, RECORDS);
        frame = topicPartitions == null ? frame.drop("partition") : frame;
        frame.write()
                .format("kafka")
                .option("kafka.bootstrap.servers", address.substring(0, slash))
                // Behind it are copies of other data centers' topics.
                .option("topic", address.substring(slash + 1).split(",")[0])
                .option("includeHeaders", "true")
                .options(options.ofKafka())
                .mode("append")
                .save();
    }

    private int partitions() {
        return topicPartitions != null ? topicPartitions : 1;
    }

    private ObjectNode specification(String eventTime) {
        // No version is built. The program wants a base for a column of deletions, and does not read it to encode.
        String base = options.text("delete") != null ? "/" : null;
        ObjectNode spec = Specification.of(options, store, partitions(), "/", base, null);
        if (eventTime != null) {
            spec.put("order_by", TIME);
            if (options.text("value") == null && options.text("values") == null) {
                List<String> exclude = new ArrayList<>(options.names("exclude") != null ? options.names("exclude") : List.of());
                exclude.add(eventTime);
                exclude.add(TIME);
                exclude.forEach(spec.putArray("exclude")::add);
            }
        }
        return spec;
    }

    private static Column milliseconds(StructType schema, String name) {
        if (!List.of(schema.fieldNames()).contains(name)) {
            throw new FondacoException("there is no column \"" + name + "\" (option \"eventTime\"): the columns are "
                    + String.join(", ", schema.fieldNames()));
        }
        DataType type = schema.apply(name).dataType();
        Column column = functions.col("`" + name.replace("`", "``") + "`");
        if (type.equals(DataTypes.LongType)) {
            return column;
        }
        if (type.equals(DataTypes.TimestampType)) {
            return functions.unix_millis(column);
        }
        throw new FondacoException("column \"" + name + "\" (option \"eventTime\") is " + type.sql()
                + ": give a TIMESTAMP, or a BIGINT of milliseconds since 1970");
    }
}
