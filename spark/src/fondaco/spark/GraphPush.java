package fondaco.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;

/**
 * One write of a graph: Spark computes and writes the rows of edges and vertices, and the program on the driver builds a version of them.
 *
 * <p>The DataFrame that is written has edges of one type. Options name views or tables with edges of other types, and with vertices.
 */
final class GraphPush {
    /** Options that are of rows with keys alone. */
    private static final List<String> OF_KEYS =
            List.of("key", "value", "exclude", "valueType", "keyType", "schemaId", "orderBy", "delete", "tasks", "asOf");

    /** Options that the command line has under these names. */
    private static final Map<String, String> SAME = Map.of(
            "numbers", "--numbers",
            "nonFinite", "--non-finite",
            "onDuplicate", "--on-duplicate",
            "compress", "--compress",
            "dictionary", "--dictionary",
            "temporary", "--work",
            "vertexName", "--vertex-name",
            "unknownVertices", "--unknown-vertices");

    private final SparkSession session;
    private final SparkContext context;
    private final Options options;
    private final Program program;
    private final Destination destination;

    GraphPush(SparkSession session, Options options) {
        this.session = session;
        this.context = session.sparkContext();
        this.options = options;
        this.program = options.program();
        this.destination = Destination.of(options, context);
    }

    void write(Dataset<Row> data, boolean incremental) {
        if (incremental) {
            throw new FondacoException("a graph is replaced as a whole: write all edges and vertices with mode(\"overwrite\")");
        }
        OF_KEYS.stream().filter(options::has).findFirst().ifPresent(option -> {
            throw new FondacoException("option \"" + option + "\" is of rows with keys, and option \"edges\" says that the rows are edges: leave out one");
        });
        List<String> ends = options.names("edges");
        if (ends.size() != 2) {
            throw new FondacoException("option \"edges\" is \"" + options.text("edges") + "\": name two columns, for instance \"from,to\"");
        }
        List<Frame> edges = edges(data, ends);
        List<Frame> vertices = vertices();
        Target target = Target.of(options, program, destination.store(), false);
        if (target.valueType() != null && !target.valueType().equals("graph")) {
            throw new FondacoException("the values of store \"" + destination.store() + "\" are " + target.valueType()
                    + ", and not graphs: create another store with fondaco store create NAME --value-type graph");
        }
        Deployment deployment = new Deployment(program, destination);
        boolean upload = options.flag("upload", false);
        if (destination.isComplete(program, target.partitions())) {
            if (target.deploys()) {
                deployment.await(upload);
            }
            return;
        }

        String description = context.getLocalProperty("spark.job.description");
        String location = options.has("staging") ? options.text("staging").replaceFirst("/+$", "") + "/" + destination.store() + "-" + destination.run()
                : destination.location() + ".staged";
        try (StagedFrames staged = new StagedFrames(session, location, destination.run(), options.text("temporary"))) {
            List<String> command = new ArrayList<>(List.of(target.deploys() ? "push" : "build", destination.store()));
            int number = 0;
            for (Frame frame : edges) {
                command.add(input(frame, staged, number++));
            }
            for (Frame frame : vertices) {
                command.addAll(List.of("--vertices", input(frame, staged, number++)));
            }
            command.addAll(arguments(ends));
            if (target.deploys()) {
                if (upload) {
                    command.add("--upload");
                }
                deployment.run(command);
            } else {
                command.addAll(List.of("--partitions", Integer.toString(target.partitions()), "--json", "--quiet"));
                if (options.has("base")) {
                    command.addAll(List.of("--ids-of", options.text("base")));
                }
                program.json(command.toArray(String[]::new));
            }
        } catch (FondacoException failure) {
            throw failure;
        } catch (Throwable failure) {
            FondacoException reason = FondacoException.in(failure);
            if (reason != null) {
                throw reason;
            }
            throw failure;
        } finally {
            context.setJobDescription(description);
        }
    }

    /** Rows of edges of a type, or of vertices of a label. The label may be empty. */
    private record Frame(String label, String name, Dataset<Row> rows) {
        Frame {
            if (!label.isEmpty() && !label.matches("\\w+")) {
                throw new FondacoException("\"" + label + "\" is no name for a label or a type of edges: use letters, digits and underscores");
            }
        }
    }

    private List<Frame> edges(Dataset<Row> data, List<String> ends) {
        List<String> properties = options.names("values");
        String[] columns = Stream.concat(ends.stream(), properties == null ? Stream.empty() : properties.stream()).toArray(String[]::new);
        List<Frame> frames = new ArrayList<>();
        String type = options.text("type", "EDGE");
        frames.add(new Frame(type, "the edges of type " + type, columns(data, "the DataFrame with the edges of type " + type, columns)));
        options.named("edges").forEach((other, table) -> {
            String name = "option \"edges." + other + "\" (" + table + ")";
            frames.add(new Frame(other, "the edges of type " + other, columns(table(name, table), name, columns)));
        });
        return frames;
    }

    private List<Frame> vertices() {
        List<Frame> frames = new ArrayList<>();
        if (options.has("vertices")) {
            frames.add(vertices("", "option \"vertices\" (" + options.text("vertices") + ")", options.text("vertices")));
        }
        options.named("vertices").forEach((label, table) ->
                frames.add(vertices(label, "option \"vertices." + label + "\" (" + table + ")", table)));
        return frames;
    }

    private Frame vertices(String label, String name, String table) {
        Dataset<Row> rows = table(name, table);
        columns(rows, name, options.text("vertexName", "name"));
        return new Frame(label, label.isEmpty() ? "the vertices" : "the vertices with label " + label, rows);
    }

    private Dataset<Row> table(String name, String table) {
        try {
            return session.table(table);
        } catch (Exception error) {
            throw new FondacoException(name + ": " + error.getMessage() + "\nname a view, a table, or files as parquet.`path`", error);
        }
    }

    /** The columns of these names alone. */
    private static Dataset<Row> columns(Dataset<Row> rows, String name, String... columns) {
        List<Column> wanted = new ArrayList<>();
        for (String column : columns) {
            if (!List.of(rows.columns()).contains(column)) {
                throw new FondacoException(name + " has no column \"" + column + "\": its columns are " + String.join(", ", rows.columns()));
            }
            wanted.add(functions.col("`" + column.replace("`", "``") + "`"));
        }
        return rows.select(wanted.toArray(Column[]::new));
    }

    /** Has Spark write the rows; returns the argument that names their files. */
    private String input(Frame frame, StagedFrames staged, int number) {
        context.setJobDescription("fondaco: " + frame.name() + " of " + destination.store() + ", run " + destination.run());
        String directory = staged.write(number + "-" + frame.label(), frame.rows());
        return frame.label().isEmpty() ? directory : frame.label() + "=" + directory;
    }

    private List<String> arguments(List<String> ends) {
        List<String> arguments = new ArrayList<>(List.of(
                "--edges", String.join(",", ends), "--format", "parquet", "--output", destination.location()));
        SAME.forEach((option, argument) -> {
            if (options.has(option)) {
                arguments.addAll(List.of(argument, options.text(option)));
            }
        });
        if (options.has("values")) {
            arguments.addAll(List.of("--values", String.join(",", options.names("values"))));
        }
        if (options.has("memory")) {
            arguments.addAll(List.of("--memory", options.bytes("memory").toString()));
        }
        if (options.has("chunkSize")) {
            arguments.addAll(List.of("--chunk-size", options.bytes("chunkSize").toString()));
        }
        if (options.flag("allowEmpty", false)) {
            arguments.add("--allow-empty");
        }
        for (String option : List.of("symmetric", "index")) {
            String types = options.text(option, "false");
            if (!types.equalsIgnoreCase("false")) {
                arguments.add(types.equalsIgnoreCase("true") ? "--" + option : "--" + option + "=" + String.join(",", options.names(option)));
            }
        }
        return arguments;
    }
}
