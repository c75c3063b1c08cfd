package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One write of a DataFrame: a version is built by tasks, committed by the driver, and deployed.
 *
 * <p>Rows are encoded where they are, shuffled so that each task has whole partitions, sorted by their position, and written.
 */
final class Push {
    private static final Logger LOG = LoggerFactory.getLogger(Push.class);

    private final SparkSession session;
    private final SparkContext context;
    private final Options options;
    private final Program program;
    private final Destination destination;

    Push(SparkSession session, Options options) {
        this.session = session;
        this.context = session.sparkContext();
        this.options = options;
        this.program = options.program();
        this.destination = Destination.of(options, context);
    }

    /** Writes all rows of a version, or with {@code incremental} only the difference to the store's current one. */
    static void write(SparkSession session, Options options, Dataset<Row> data, boolean incremental) {
        if (options.isGraph()) {
            new GraphPush(session, options).write(data, incremental);
        } else {
            new Push(session, options).write(data, incremental);
        }
    }

    private void write(Dataset<Row> data, boolean incremental) {
        Target target = Target.of(options, program, destination.store(), incremental);
        if ("graph".equals(target.valueType())) {
            throw new FondacoException("the values of store \"" + destination.store() + "\" are graphs: name the two columns with the ends of edges by"
                    + " option \"edges\"");
        }
        ObjectNode asked = Specification.of(options, destination.store(), target.partitions(), destination.location(), target.base(), target.valueType());
        asked.setAll(target.declared());
        if (!destination.isComplete(program, target.partitions())) {
            build(data, asked, target.partitions());
        }
        if (target.deploys()) {
            new Deployment(program, destination).await(options.flag("upload", false));
        }
    }

    private void build(Dataset<Row> data, ObjectNode asked, int partitions) {
        String output = destination.location();
        String run = destination.run();
        JsonNode spec = plan(data.schema(), asked);
        String text = spec.toString();
        boolean ordered = spec.path("order_by").isTextual();
        Integer tasksAsked = options.number("tasks");
        int tasks = tasksAsked != null ? tasksAsked
                : Math.max(3 * context.defaultParallelism(), Integer.parseInt(session.conf().get("spark.sql.shuffle.partitions")));
        Grouping grouping = new Grouping(partitions, tasks);
        SharedDirectory.mark(output, run);

        String description = context.getLocalProperty("spark.job.description");
        context.setJobDescription("fondaco: version of " + destination.store() + ", run " + run);
        try (Attempts attempts = new Attempts(context, run)) {
            try {
                List<String> lines = encodeAndWrite(data, text, grouping, ordered, output);
                if (!attempts.awaitEnd()) {
                    LOG.warn("an attempt of a task of run {} still runs after a minute; it may leave files in {}", run, output);
                }
                String committed = program.run(String.join("\n", lines).concat("\n").getBytes(StandardCharsets.UTF_8), "task", "commit", "--spec", text);
                LOG.info("built {}: {}", output, committed.strip());
            } catch (Throwable failure) {
                abort(attempts, text, failure);
                FondacoException reason = FondacoException.in(failure);
                if (reason != null) {
                    throw reason;
                }
                throw failure;
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new FondacoException("the write was interrupted", error);
        } finally {
            context.setJobDescription(description);
        }
    }

    private JsonNode plan(StructType schema, ObjectNode asked) {
        ByteArrayOutputStream stream = new ByteArrayOutputStream();
        try (BufferAllocator allocator = new RootAllocator();
                VectorSchemaRoot root = VectorSchemaRoot.create(Shims.arrowSchema(schema), allocator);
                ArrowStreamWriter writer = new ArrowStreamWriter(root, null, Channels.newChannel(stream))) {
            writer.start();
            writer.end();
            return Program.JSON.readTree(program.run(stream.toByteArray(), "task", "plan", "--spec", asked.toString()));
        } catch (IOException error) {
            throw new FondacoException("cannot read the plan: " + error.getMessage(), error);
        }
    }

    private List<String> encodeAndWrite(Dataset<Row> data, String spec, Grouping grouping, boolean ordered, String output) {
        StructType schema = data.schema();
        StructType encodedSchema = ordered ? RowBatch.SCHEMA_WITH_ORDER : RowBatch.SCHEMA;
        Program program = this.program;
        String run = destination.run();
        JavaRDD<InternalRow> encoded = data.queryExecution().toRdd().toJavaRDD().mapPartitions(rows -> {
            SharedDirectory.check(output, run);
            EncodedRows each = new EncodedRows(rows, schema, grouping, encodedSchema.length(), program.start("task", "encode", "--spec", spec));
            Child.afterTask(each::close);
            return each;
        });

        // Of a session without adaptive execution, which would make fewer tasks out of small ones.
        SparkSession plain = session.newSession();
        plain.conf().set("spark.sql.adaptive.enabled", "false");
        JavaRDD<InternalRow> sorted = Shims.dataFrame(plain, encoded, encodedSchema)
                .repartition(grouping.tasks(), functions.col("task"))
                .sortWithinPartitions("position")
                .queryExecution()
                .toRdd()
                .toJavaRDD();
        return sorted.mapPartitions(rows -> {
                    TaskContext task = TaskContext.get();
                    String attempt = task.stageId() + "-" + task.taskAttemptId() + "-" + run;
                    Child child = program.start(
                            "task", "write", "--spec", spec, "--partitions", grouping.partitionsOf(task.partitionId()), "--attempt", attempt);
                    Child.afterTask(child::close);
                    return Collections.singletonList(PartitionWriter.write(rows, ordered, child)).iterator();
                })
                .collect();
    }

    private void abort(Attempts attempts, String spec, Throwable failure) {
        boolean interrupted = Thread.interrupted();
        try {
            attempts.awaitEnd();
            program.run(new byte[0], "task", "abort", "--spec", spec);
        } catch (InterruptedException | RuntimeException error) {
            failure.addSuppressed(error);
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
