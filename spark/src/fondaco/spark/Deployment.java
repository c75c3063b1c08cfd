package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A command by which nodes fetch a version and the cluster swaps it in. The progress is in Spark's log. */
final class Deployment {
    private static final Logger LOG = LoggerFactory.getLogger(Deployment.class);
    private static final long PROGRESS_MS = 2_000;

    private final Program program;
    private final Destination destination;

    Deployment(Program program, Destination destination) {
        this.program = program;
        this.destination = destination;
    }

    /** Deploys the version at the destination. */
    void await(boolean upload) {
        List<String> arguments = new ArrayList<>(List.of("deploy", destination.store(), destination.location()));
        if (upload) {
            arguments.add("--upload");
        }
        try {
            run(arguments);
        } catch (FondacoException error) {
            String next = error.hasCode("run_failed") ? "write with another \"run\", or deploy it yourself" : "deploy it";
            throw new FondacoException(error.getMessage() + "\nthe version is complete; " + next + ": fondaco deploy " + destination.store() + " "
                    + destination.location(), error);
        }
    }

    /** Runs a command that ends with a deployment. */
    void run(List<String> command) {
        Thread progress = new Thread(this::logProgress, "progress of the push of " + destination.store());
        progress.setDaemon(true);
        progress.start();
        try {
            List<String> arguments = new ArrayList<>(command);
            arguments.addAll(List.of("--run", destination.run(), "--json", "--quiet"));
            JsonNode done = program.json(arguments.toArray(String[]::new));
            JsonNode push = done.has("push") ? done.path("push") : done;
            LOG.info("store {} serves version {}: {} records, run {}", destination.store(), push.path("version").asLong(),
                    push.path("records").asLong(), destination.run());
        } finally {
            progress.interrupt();
        }
    }

    private void logProgress() {
        try {
            while (true) {
                Thread.sleep(PROGRESS_MS);
                JsonNode push = program.json("versions", destination.store(), "--json").path("push");
                if (push.path("run").asText().equals(destination.run())) {
                    LOG.info("store {}: version {} is {}: {} of {} MB", destination.store(), push.path("version").asLong(),
                            push.path("state").asText(), push.path("bytes_done").asLong() / 1_000_000, push.path("bytes_total").asLong() / 1_000_000);
                }
            }
        } catch (InterruptedException | FondacoException error) {
            // The push has ended, or its own command has the error.
        }
    }
}
