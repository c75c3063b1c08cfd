import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisException;

/** JedisCluster against three nodes, one of which is killed while it reads. */
class RunJedisCluster {
    static final int ROWS = 5000;
    static final int ATTEMPTS = 5;
    /**
     * Before Jedis requests the slots again, it waits for a random part of this time; it waits longer when fewer
     * attempts are left. The default is the number of attempts times the timeout of a socket.
     */
    static final Duration RETRIES_MAX = Duration.ofSeconds(2);
    /** The longest time in which the cluster and the client must recover from the loss of the node. */
    static final long RECOVERY_MILLIS_MAX = 60_000;
    static final int PASSES_AFTERWARDS = 3;

    public static void main(String[] arguments) throws InterruptedException {
        Set<HostAndPort> nodes = new HashSet<>();
        for (String address : System.getenv("FONDACO_NODES").split(",")) {
            nodes.add(HostAndPort.from(address));
        }
        var config = DefaultJedisClientConfig.builder()
                .protocol(RedisProtocol.RESP3).socketTimeoutMillis(5_000).build();
        try (JedisCluster cluster = new JedisCluster(nodes, config, ATTEMPTS, RETRIES_MAX)) {
            expect(3, cluster.getClusterNodes().size());
            reads(cluster);
            pipelines(cluster);
            survives(cluster, Long.parseLong(System.getenv("FONDACO_VICTIM")));
        }
    }

    static void reads(JedisCluster cluster) {
        onePass(cluster);
        expect(null, cluster.get("members:nobody"));
        expect(11L, cluster.strlen("members:m7"));
        expect(true, cluster.exists("members:m7"));
        // Keys of one slot, by their hash tag; this client sends no request for keys of several slots.
        expect("[null, null]", cluster.mget("members:{m7}a", "members:{m7}b").toString());
    }

    static void pipelines(JedisCluster cluster) {
        List<Response<String>> answers = new ArrayList<>();
        try (ClusterPipeline pipeline = cluster.pipelined()) {
            for (int n = 0; n < 1000; n++) {
                answers.add(pipeline.get("members:m" + n));
            }
        }
        for (int n = 0; n < 1000; n++) {
            expect("value of m" + n, answers.get(n).get());
        }
    }

    static void survives(JedisCluster cluster, long victim) throws InterruptedException {
        ProcessHandle.of(victim).orElseThrow().destroyForcibly();
        long killed = System.currentTimeMillis();
        int errors = 0;
        while (true) {
            try {
                onePass(cluster);
                break;
            } catch (JedisException error) {
                errors++;
                if (System.currentTimeMillis() - killed > RECOVERY_MILLIS_MAX) {
                    throw new AssertionError("still without all keys", error);
                }
                Thread.sleep(100);
            }
        }
        System.out.printf(
                "all keys again %.1f s after the kill, %d errors before%n",
                (System.currentTimeMillis() - killed) / 1000.0, errors);
        for (int pass = 0; pass < PASSES_AFTERWARDS; pass++) {
            onePass(cluster);
        }
    }

    static void onePass(JedisCluster cluster) {
        for (int n = 0; n < ROWS; n += 11) {
            expect("value of m" + n, cluster.get("members:m" + n));
        }
    }

    static void expect(Object expected, Object found) {
        if (expected == null ? found != null : !expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
