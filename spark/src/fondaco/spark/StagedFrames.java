package fondaco.spark;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * DataFrames as Parquet files, for a program that runs on the driver.
 *
 * <p>Spark writes them to a directory that executors and the driver share. If it is not a local one, the driver copies them. Closing deletes
 * both, whatever happened before.
 */
final class StagedFrames implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StagedFrames.class);

    private final SparkSession session;
    private final Attempts attempts;
    private final String location;
    private final String run;
    private final Path directory;
    private final FileSystem files;
    /** The copies; null if the directory is local. */
    private final File copies;

    StagedFrames(SparkSession session, String location, String run, String temporary) {
        this.session = session;
        this.location = location;
        this.run = run;
        try {
            this.directory = location.contains("://") || location.startsWith("file:") ? new Path(URI.create(location))
                    : new Path("file", null, new File(location).getAbsolutePath());
            this.files = directory.getFileSystem(session.sparkContext().hadoopConfiguration());
            // Those of a driver that died, if there are any.
            files.delete(directory, true);
        } catch (IOException | IllegalArgumentException error) {
            throw new FondacoException("Spark cannot write to " + location + ": " + error.getMessage()
                    + "; name a directory for edges and vertices that Spark can write to by option \"staging\"", error);
        }
        this.copies = files.getScheme().equals("file") ? null : localDirectory(temporary);
        SharedDirectory.mark(location, run);
        this.attempts = new Attempts(session.sparkContext(), run);
    }

    private static File localDirectory(String temporary) {
        try {
            return (temporary == null ? Files.createTempDirectory("fondaco-graph")
                    : Files.createTempDirectory(java.nio.file.Path.of(temporary), "fondaco-graph")).toFile();
        } catch (IOException | IllegalArgumentException error) {
            throw new FondacoException("cannot make a directory on the driver for copies of edges and vertices: " + error
                    + "; name another one by option \"temporary\"", error);
        }
    }

    /** Writes the rows, and returns the local directory of their files. */
    String write(String name, Dataset<Row> frame) {
        Path target = new Path(directory, name);
        String location = this.location;
        String run = this.run;
        // An executor that does not see the directory would write to one of its own, and the rows would be missing.
        JavaRDD<InternalRow> rows = frame.queryExecution().toRdd().toJavaRDD().mapPartitions(each -> {
            SharedDirectory.check(location, run);
            return each;
        });
        Shims.dataFrame(session, rows, frame.schema()).write().parquet(target.toString());
        if (copies == null) {
            return target.toUri().getPath();
        }
        try {
            File copy = new File(copies, name);
            files.copyToLocalFile(false, target, new Path("file", null, copy.getPath()), true);
            return copy.getPath();
        } catch (IOException error) {
            throw new FondacoException("cannot copy " + target + " to " + copies + " on the driver: " + error.getMessage()
                    + "; name a directory with more space by option \"temporary\"", error);
        }
    }

    @Override
    public void close() {
        try (attempts) {
            // Tasks that still write would make directories again.
            attempts.awaitEnd();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        if (copies != null) {
            FileUtil.fullyDelete(copies);
        }
        try {
            files.delete(directory, true);
        } catch (IOException error) {
            LOG.warn("cannot delete {}: {}", directory, error.getMessage());
        }
    }
}
