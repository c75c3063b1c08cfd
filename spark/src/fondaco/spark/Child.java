package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
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
            return new Child(name, builder.start());
        } catch (IOException error) {
            throw new FondacoException("cannot run " + command.get(0) + " on " + place() + ": " + error.getMessage()
                    + "; name the program by the option \"binary\"", error);
        }
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
                throw new FondacoException(name + " failed on " + place() + ": " + reason(code));
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
                if (!process.waitFor(END_SECONDS_MAX, TimeUnit.SECONDS)) {
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

    private String reason(int code) {
        String text = errors.toString().strip();
        if (text.startsWith("{")) {
            try {
                JsonNode message = Program.JSON.readTree(text).path("error").path("message");
                if (message.isTextual()) {
                    return message.asText();
                }
            } catch (IOException error) {
                // Not JSON: the text as it is.
            }
        }
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
