package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkEnv;

/**
 * The native program, which knows the format of versions and the protocols of a cluster. The JVM knows neither.
 *
 * <p>The jar carries the program. Each process of Spark writes it to its local directory once.
 */
final class Program implements Serializable {
    static final ObjectMapper JSON = new ObjectMapper();

    private static final String RESOURCE = "/fondaco/native/fondaco";
    private static Path extracted;

    /** The path that the user named; null for the program of the jar, or of the PATH. */
    private final String named;

    /** Variables that say where the cluster is and who asks, since arguments are visible to other users. */
    private final Map<String, String> environment;

    Program(String named, Map<String, String> environment) {
        this.named = named;
        this.environment = environment;
    }

    /** Starts a child. The caller closes it. */
    Child start(String... arguments) {
        List<String> command = new ArrayList<>();
        command.add(named != null ? named : fromJar());
        command.addAll(Arrays.asList(arguments));
        return Child.start(command, environment);
    }

    /** Runs a command to its end, and returns its standard output. */
    String run(byte[] input, String... arguments) {
        return new String(runForBytes(input, arguments), StandardCharsets.UTF_8);
    }

    byte[] runForBytes(byte[] input, String... arguments) {
        try (Child child = start(arguments)) {
            try {
                child.input().write(input);
                child.input().close();
                byte[] output = child.output().readAllBytes();
                child.finish();
                return output;
            } catch (IOException error) {
                throw child.failure(error);
            }
        }
    }

    /** Runs a command that prints JSON. */
    JsonNode json(String... arguments) {
        String output = run(new byte[0], arguments);
        try {
            return JSON.readTree(output);
        } catch (IOException error) {
            throw new FondacoException("fondaco " + arguments[0] + " printed no JSON: " + output, error);
        }
    }

    private static synchronized String fromJar() {
        if (extracted != null && Files.exists(extracted)) {
            return extracted.toString();
        }
        try (InputStream program = Program.class.getResourceAsStream(RESOURCE)) {
            if (program == null) {
                return "fondaco";
            }
            // Spark deletes this directory, also after an executor was killed.
            Path directory = SparkEnv.get().blockManager().diskBlockManager().localDirs()[0].toPath();
            Path file = Files.createTempFile(
                    directory, "fondaco", "", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
            Files.copy(program, file, StandardCopyOption.REPLACE_EXISTING);
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwx------"));
            file.toFile().deleteOnExit();
            extracted = file;
            return file.toString();
        } catch (IOException error) {
            throw new FondacoException("cannot write the program of the jar to a local directory: " + error.getMessage(), error);
        }
    }
}
