package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/** A read of a version, or of a store of a cluster: one task for each group of partitions. */
final class Scan {
    /** Metadata of the schema that {@code fondaco export} writes. */
    private static final String PARTITIONS = "fondaco.partitions";

    private final Options options;
    private final Program program;
    /** The arguments that name the version or the store. */
    private final List<String> source;
    private final int partitions;
    private final StructType schema;

    private Scan(Options options, Program program, List<String> source) {
        this.options = options;
        this.program = program;
        this.source = source;
        Schema columns = schema(program, source);
        this.schema = ArrowUtils.fromArrowSchema(columns);
        this.partitions = Integer.parseInt(columns.getCustomMetadata().get(PARTITIONS));
    }

    static Scan of(Options options) {
        Program program = options.program();
        String store = options.text("store");
        if (store == null) {
            String location = options.needed("path", "name a version (its location, by load), or a store by option \"store\"");
            return new Scan(options, program, List.of("--from", location));
        }
        String location = Target.current(program.json("store", "show", store, "--json"));
        if (location != null) {
            // The files of the version, if they are still there: all tasks read the same version then, and no node has work.
            try {
                return new Scan(options, program, List.of("--from", location));
            } catch (FondacoException error) {
                // The nodes have it.
            }
        }
        return new Scan(options, program, List.of(store));
    }

    StructType schema() {
        return schema;
    }

    /** The columns of the rows that were asked for; those of {@code declared} that the version does not have are refused. */
    JavaRDD<InternalRow> rows(SparkSession session, String[] columns, StructType declared) {
        int[] fields = Arrays.stream(columns).mapToInt(column -> index(column, declared)).toArray();
        SparkContext context = session.sparkContext();
        Integer asked = options.number("tasks");
        int tasks = Math.min(partitions, asked != null ? asked : 3 * context.defaultParallelism());
        List<String> groups = IntStream.range(0, tasks)
                .mapToObj(task -> (long) task * partitions / tasks + "-" + ((task + 1L) * partitions / tasks - 1))
                .collect(Collectors.toList());
        Program program = this.program;
        List<String> source = this.source;
        return JavaSparkContext.fromSparkContext(context).parallelize(groups, tasks).mapPartitions(group -> {
            Stream<String> which = Stream.of("--format", "arrow", "--output", "-", "--partitions", group.next());
            Stream<String> arguments = Stream.of(Stream.of("export"), source.stream(), which).flatMap(each -> each);
            DecodedRows rows = new DecodedRows(program.start(arguments.toArray(String[]::new)), fields);
            Child.afterTask(rows::close);
            return rows;
        });
    }

    private int index(String column, StructType declared) {
        List<String> names = new ArrayList<>(Arrays.asList(schema.fieldNames()));
        int index = names.indexOf(column);
        if (index < 0) {
            throw new FondacoException("the version has no column \"" + column + "\": its columns are " + String.join(", ", names));
        }
        if (!schema.apply(index).dataType().sameType(declared.apply(column).dataType())) {
            throw new FondacoException("column \"" + column + "\" is " + schema.apply(index).dataType().sql() + " in the version, and "
                    + declared.apply(column).dataType().sql() + " in the table");
        }
        return index;
    }

    private static Schema schema(Program program, List<String> source) {
        List<String> arguments = new ArrayList<>(List.of("export"));
        arguments.addAll(source);
        arguments.addAll(List.of("--schema", "--format", "arrow", "--output", "-"));
        byte[] stream = program.runForBytes(new byte[0], arguments.toArray(String[]::new));
        try (BufferAllocator allocator = new RootAllocator();
                ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(stream), allocator)) {
            return reader.getVectorSchemaRoot().getSchema();
        } catch (IOException error) {
            throw new FondacoException("fondaco export wrote no schema: " + error.getMessage(), error);
        }
    }
}
