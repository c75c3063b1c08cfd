package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The second half of a push: nodes fetch the version, and the cluster swaps it in. The progress is in Spark's log. */
final class Deployment {
    private static final Logger LOG = LoggerFactory.getLogger(Deployment.class);
    private static final long PROGRESS_MS = 2_000;

    private final Program program;
    private final String store;
    private final String output;
    private final String run;
    private final boolean upload;

    Deployment(Program program, String store, String output, String run, boolean upload) {
        this.program = program;
        this.store = store;
        this.output = output;
        this.run = run;
        this.upload = upload;
    }

    void await() {
        Thread progress = new Thread(this::logProgress, "progress of the push of " + store);
        progress.setDaemon(true);
        progress.start();
        try {
            List<String> arguments = new ArrayList<>(List.of("deploy", store, output, "--run", run, "--json"));
            if (upload) {
                arguments.add("--upload");
            }
            JsonNode done = program.json(arguments.toArray(String[]::new));
            LOG.info("store {} serves version {}: {} records, run {}", store, done.path("version").asLong(), done.path("records").asLong(), run);
        } catch (FondacoException error) {
            throw new FondacoException(error.getMessage() + "\nthe version is complete: fondaco deploy " + store + " " + output, error);
        } finally {
            progress.interrupt();
        }
    }

    private void logProgress() {
        try {
            while (true) {
                Thread.sleep(PROGRESS_MS);
                JsonNode push = program.json("versions", store, "--json").path("push");
                if (push.path("run").asText().equals(run)) {
                    LOG.info("store {}: version {} is {}: {} of {} MB", store, push.path("version").asLong(), push.path("state").asText(),
                            push.path("bytes_done").asLong() / 1_000_000, push.path("bytes_total").asLong() / 1_000_000);
                }
            }
        } catch (InterruptedException | FondacoException error) {
            // The push has ended, or its own command has the error.
        }
    }
}
