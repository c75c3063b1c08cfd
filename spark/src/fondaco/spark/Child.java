package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;

/**
 * A running native program.
 *
 * <p>Closing it before it has finished ends it by SIGTERM, at which it deletes its temporary files. It does the same if its input
 * ends without the mark of a complete stream: the executor was killed.
 */
final class Child implements AutoCloseable {
    private static final int ERROR_BYTES_MAX = 64 << 10;
    private static final int END_SECONDS_MAX = 20;
    /** How long a program has to delete its temporary files after SIGTERM. Files that it leaves are deleted before a commit. */
    private static final int TERMINATE_SECONDS_MAX = 5;

    private static final int WATCH_MS = 100;
    private static final ScheduledExecutorService WATCH = Executors.newSingleThreadScheduledExecutor(run -> {
        Thread thread = new Thread(run, "killed tasks of fondaco");
        thread.setDaemon(true);
        return thread;
    });

    private final String name;
    private final Process process;
    private final StringBuffer errors = new StringBuffer();
    private final Thread errorReader;

    private Child(String name, Process process) {
        this.name = name;
        this.process = process;
        this.errorReader = new Thread(this::readErrors, "errors of " + name);
        errorReader.setDaemon(true);
        errorReader.start();
    }

    static Child start(List<String> command, Map<String, String> environment) {
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().putAll(environment);
        String name = "fondaco " + command.get(1) + (command.get(1).equals("task") ? " " + command.get(2) : "");
        try {
            Child child = new Child(name, builder.start());
            if (TaskContext.get() != null) {
                child.endIfKilled(TaskContext.get());
            }
            return child;
        } catch (IOException error) {
            throw new FondacoException("cannot run " + command.get(0) + " on " + place() + ": " + error.getMessage()
                    + "; name the program by the option \"binary\"", error);
        }
    }

    /**
     * Ends the program when its task is killed. The task's thread may wait for a pipe, from which Spark's interrupt does not wake it:
     * the end of the program does.
     */
    private void endIfKilled(TaskContext task) {
        AtomicInteger checks = new AtomicInteger();
        ScheduledFuture<?> watch = WATCH.scheduleWithFixedDelay(() -> {
            if (!task.isInterrupted()) {
                return;
            }
            switch (checks.getAndIncrement()) {
                case 0 -> process.destroy();
                case TERMINATE_SECONDS_MAX * 1000 / WATCH_MS -> process.destroyForcibly();
                default -> { }
            }
        }, WATCH_MS, WATCH_MS, TimeUnit.MILLISECONDS);
        afterTask(() -> watch.cancel(false));
    }

    /** Runs {@code close} when the task of this thread ends: completed, failed or killed. */
    static void afterTask(Runnable close) {
        TaskCompletionListener listener = task -> close.run();
        TaskContext.get().addTaskCompletionListener(listener);
    }

    /** The executor and its host, for messages. */
    static String place() {
        if (TaskContext.get() == null) {
            return "the driver";
        }
        SparkEnv environment = SparkEnv.get();
        return "executor " + environment.executorId() + " (" + environment.blockManager().blockManagerId().host() + ")";
    }

    OutputStream input() {
        return process.getOutputStream();
    }

    InputStream output() {
        return process.getInputStream();
    }

    /** Waits for the end, after the output was read, and throws if the program failed. */
    void finish() {
        try {
            int code = process.waitFor();
            errorReader.join();
            if (code != 0) {
                JsonNode error = error();
                throw new FondacoException(name + " failed on " + place() + ": " + reason(error, code), null, error.path("code").asText());
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new FondacoException(name + " was interrupted", error);
        }
    }

    /** The error to throw when a pipe broke: the program's own words, if it ended by itself. */
    RuntimeException failure(Exception broken) {
        try {
            if (process.waitFor(END_SECONDS_MAX, TimeUnit.SECONDS)) {
                finish();
            }
        } catch (FondacoException error) {
            return error;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        return new FondacoException(name + " failed on " + place() + ": " + broken.getMessage(), broken);
    }

    @Override
    public void close() {
        boolean interrupted = Thread.interrupted();
        try {
            if (process.isAlive()) {
                process.destroy();
                if (!process.waitFor(TERMINATE_SECONDS_MAX, TimeUnit.SECONDS)) {
                    process.destroyForcibly();
                }
            }
        } catch (InterruptedException error) {
            process.destroyForcibly();
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The error that the program printed as JSON; missing if it printed none. */
    private JsonNode error() {
        try {
            return Program.JSON.readTree(errors.toString()).path("error");
        } catch (IOException error) {
            return MissingNode.getInstance();
        }
    }

    private String reason(JsonNode error, int code) {
        String text = error.path("message").asText(errors.toString().strip());
        return text.isEmpty() ? "exit code " + code : text.replaceFirst("^error: ", "");
    }

    private void readErrors() {
        byte[] buffer = new byte[4096];
        try (InputStream stream = process.getErrorStream()) {
            for (int count; (count = stream.read(buffer)) >= 0; ) {
                errors.append(new String(buffer, 0, count, StandardCharsets.UTF_8));
                if (errors.length() > ERROR_BYTES_MAX) {
                    errors.delete(0, errors.length() - ERROR_BYTES_MAX);
                }
            }
        } catch (IOException error) {
            // The process was ended.
        }
    }
}
