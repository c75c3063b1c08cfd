package fondaco.spark;

import java.io.Serializable;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * Which task of Spark writes which partitions: each task a contiguous range.
 *
 * <p>Spark sends a row to the task {@code pmod(murmur3(column), tasks)}. So each task has a number, its salt, that Spark's hash sends there.
 */
final class Grouping implements Serializable {
    /** The seed of Spark's hash partitioning. */
    private static final int SEED = 42;

    private final int partitions;
    private final int tasks;
    private final int[] saltOfPartition;

    Grouping(int partitions, int tasks) {
        this.partitions = partitions;
        this.tasks = Math.min(tasks, partitions);
        int[] salts = salts(this.tasks);
        this.saltOfPartition = IntStream.range(0, partitions).map(partition -> salts[task(partition)]).toArray();
    }

    private Grouping(int partitions) {
        this.partitions = partitions;
        this.tasks = partitions;
        this.saltOfPartition = IntStream.range(0, partitions).toArray();
    }

    /** Each partition is its own salt: the rows are not shuffled. */
    static Grouping identity(int partitions) {
        return new Grouping(partitions);
    }

    int tasks() {
        return tasks;
    }

    int salt(int partition) {
        return saltOfPartition[partition];
    }

    /** The partitions of a task, as the command line takes them. */
    String partitionsOf(int task) {
        return IntStream.range(0, partitions).filter(each -> task(each) == task).mapToObj(Integer::toString).collect(Collectors.joining(","));
    }

    private int task(int partition) {
        return (int) ((long) partition * tasks / partitions);
    }

    private static int[] salts(int tasks) {
        int[] salts = new int[tasks];
        boolean[] found = new boolean[tasks];
        for (int salt = 0, missing = tasks; missing > 0; salt++) {
            int task = Math.floorMod(Murmur3_x86_32.hashInt(salt, SEED), tasks);
            if (!found[task]) {
                found[task] = true;
                salts[task] = salt;
                missing--;
            }
        }
        return salts;
    }
}
