package fondaco.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Checks that executors see the driver's directory, if versions are built in a directory: the driver puts a file there, and tasks look for it. The
 * commit deletes it, as every file of an attempt.
 */
final class SharedDirectory {
    private SharedDirectory() {}

    static void mark(String output, String run) {
        Path directory = local(output);
        if (directory == null) {
            return;
        }
        try {
            Files.createDirectories(directory);
            Files.createFile(directory.resolve(marker(run)));
        } catch (IOException error) {
            throw new FondacoException("cannot write to " + directory + " on the driver: " + error, error);
        }
    }

    static void check(String output, String run) {
        Path directory = local(output);
        if (directory != null && !Files.exists(directory.resolve(marker(run)))) {
            throw new FondacoException(Child.place() + " does not see the directory " + directory
                    + " that the driver made: give an \"output\" that the driver, the executors and the nodes share (hdfs://…, s3://…, or a shared file system)");
        }
    }

    private static String marker(String run) {
        return "attempt-driver-" + run.replaceAll("[^A-Za-z0-9._-]", "_");
    }

    /** The path of a local directory; null for other locations. */
    private static Path local(String output) {
        if (output.startsWith("file:")) {
            return Path.of(output.replaceFirst("^file:/*", "/"));
        }
        return output.contains("://") ? null : Path.of(output).toAbsolutePath();
    }
}
