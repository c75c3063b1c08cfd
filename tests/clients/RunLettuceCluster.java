import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Lettuce's cluster client against three nodes, one of which is killed, with the settings of docs/commands.md. */
class RunLettuceCluster {
    static final int ROWS = 5000;
    /** The longest time in which the cluster and the client must recover from the loss of the node. */
    static final long RECOVERY_MILLIS_MAX = 60_000;
    static final int PASSES_AFTERWARDS = 3;

    public static void main(String[] arguments) throws InterruptedException {
        List<RedisURI> nodes = new ArrayList<>();
        for (String address : System.getenv("FONDACO_NODES").split(",")) {
            nodes.add(RedisURI.create("redis://" + address));
        }
        try (RedisClusterClient client = RedisClusterClient.create(nodes)) {
            client.setOptions(ClusterClientOptions.builder()
                    .topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
                            .enablePeriodicRefresh(Duration.ofSeconds(2))
                            .enableAllAdaptiveRefreshTriggers()
                            .adaptiveRefreshTriggersTimeout(Duration.ofMillis(500))
                            .build())
                    .socketOptions(SocketOptions.builder().connectTimeout(Duration.ofSeconds(1)).build())
                    .timeoutOptions(TimeoutOptions.enabled(Duration.ofSeconds(1)))
                    .build());
            try (StatefulRedisClusterConnection<String, String> connection = client.connect()) {
                connection.setReadFrom(ReadFrom.ANY);
                RedisAdvancedClusterCommands<String, String> redis = connection.sync();
                expect(3, client.getPartitions().size());
                onePass(redis);
                // Of several slots: this client sends each node a request for its own keys.
                expect("[KeyValue[members:m1, value of m1], KeyValue[members:nobody].empty]",
                        redis.mget("members:m1", "members:nobody").toString());
                survives(redis, Long.parseLong(System.getenv("FONDACO_VICTIM")));
            }
        }
    }

    static void survives(RedisAdvancedClusterCommands<String, String> redis, long victim) throws InterruptedException {
        ProcessHandle.of(victim).orElseThrow().destroyForcibly();
        long killed = System.currentTimeMillis();
        int errors = 0;
        while (true) {
            try {
                onePass(redis);
                break;
            } catch (RedisException error) {
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
            onePass(redis);
        }
    }

    static void onePass(RedisAdvancedClusterCommands<String, String> redis) {
        for (int n = 0; n < ROWS; n += 11) {
            expect("value of m" + n, redis.get("members:m" + n));
        }
    }

    static void expect(Object expected, Object found) {
        if (expected == null ? found != null : !expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
