package fondaco.spark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/**
 * The attempts of tasks of one run. Spark ends a job when each task has succeeded once. Attempts that it started by speculation may
 * still run then, and write. The run waits for them before it commits or deletes the output.
 */
final class Attempts extends SparkListener implements AutoCloseable {
    /** The local property that jobs of a run have. */
    private static final String PROPERTY = "fondaco.run";

    private static final long WAIT_MS_MAX = 60_000;
    /** Events come late, but not by more than this: without a job until then, Spark refused the plan before it started one. */
    private static final long FIRST_JOB_MS_MAX = 5_000;

    private final SparkContext context;
    private final String run;
    private final Set<Integer> jobs = new HashSet<>();
    private final Set<Integer> stages = new HashSet<>();
    private final Set<Long> running = new HashSet<>();
    private int jobsSeen;

    Attempts(SparkContext context, String run) {
        this.context = context;
        this.run = run;
        context.setLocalProperty(PROPERTY, run);
        context.addSparkListener(this);
    }

    @Override
    public void close() {
        context.setLocalProperty(PROPERTY, null);
        context.removeSparkListener(this);
    }

    /** Waits until no attempt runs. Returns false if one still runs after a minute. */
    synchronized boolean awaitEnd() throws InterruptedException {
        long begun = System.currentTimeMillis();
        while (jobsSeen == 0 || !jobs.isEmpty() || !running.isEmpty()) {
            long left = begun + (jobsSeen == 0 ? FIRST_JOB_MS_MAX : WAIT_MS_MAX) - System.currentTimeMillis();
            if (left <= 0) {
                return jobsSeen == 0;
            }
            wait(left);
        }
        return true;
    }

    @Override
    public synchronized void onJobStart(SparkListenerJobStart event) {
        if (event.properties() != null && run.equals(event.properties().getProperty(PROPERTY))) {
            jobs.add(event.jobId());
            jobsSeen++;
        }
    }

    @Override
    public synchronized void onJobEnd(SparkListenerJobEnd event) {
        jobs.remove(event.jobId());
        notifyAll();
    }

    @Override
    public synchronized void onStageSubmitted(SparkListenerStageSubmitted event) {
        if (event.properties() != null && run.equals(event.properties().getProperty(PROPERTY))) {
            stages.add(event.stageInfo().stageId());
        }
    }

    @Override
    public synchronized void onTaskStart(SparkListenerTaskStart event) {
        if (stages.contains(event.stageId())) {
            running.add(event.taskInfo().taskId());
        }
    }

    @Override
    public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
        if (event.taskInfo() != null) {
            running.remove(event.taskInfo().taskId());
        }
        notifyAll();
    }
}
