package fondaco.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where a write builds its version, for which store, and as which run.
 *
 * @param again whether an earlier write of the same run may have been here
 */
record Destination(String store, String run, String location, boolean again) {
    private static final Logger LOG = LoggerFactory.getLogger(Destination.class);
    private static final AtomicInteger RUNS = new AtomicInteger();

    static Destination of(Options options, SparkContext context) {
        String store = options.needed("store", "name the store that the version is for");
        String run = options.text("run", nextRun(context));
        String output = options.text("output");
        String location = output != null ? output.replaceFirst("/+$", "") + "/" + store + "-" + run : options.text("path");
        if (location == null) {
            throw new FondacoException("option \"output\" is missing: name the directory for versions, which executors and nodes can read and write"
                    + " (hdfs://…, s3://…, or a shared file system)");
        }
        return new Destination(store, run, location, output != null && options.text("run") != null);
    }

    /** Whether an earlier write of this run has built the version; if it left something incomplete, that is deleted. */
    boolean isComplete(Program program, int partitions) {
        if (!again) {
            return false;
        }
        ObjectNode spec = Program.JSON.createObjectNode().put("store", store).put("partitions", partitions).put("output", location);
        // An abort needs no key, but each description has one.
        spec.putArray("key").add("key");
        try {
            program.run(new byte[0], "task", "abort", "--spec", spec.toString(), "--json");
            return false;
        } catch (FondacoException error) {
            if (!error.hasCode("version_complete")) {
                throw error;
            }
            LOG.info("run {} has built {} before", run, location);
            return true;
        }
    }

    private static String nextRun(SparkContext context) {
        List<String> parts = new ArrayList<>();
        parts.add(context.applicationId());
        if (context.applicationAttemptId().isDefined()) {
            parts.add(context.applicationAttemptId().get());
        }
        parts.add(Integer.toString(RUNS.incrementAndGet()));
        return String.join("-", parts);
    }
}
