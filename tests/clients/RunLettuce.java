import io.lettuce.core.ClientOptions;
import io.lettuce.core.GetExArgs;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Lettuce against a fondaco that serves the stores "members" and "carts", in both versions of the protocol. */
class RunLettuce {
    static final int ROWS = 5000;

    public static void main(String[] arguments) throws Exception {
        String[] address = System.getenv("FONDACO_RESP").split(":");
        RedisURI uri = RedisURI.builder().withHost(address[0]).withPort(Integer.parseInt(address[1]))
                .withClientName("test").withTimeout(Duration.ofSeconds(30)).build();
        for (ProtocolVersion version : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            try (RedisClient client = RedisClient.create(uri)) {
                client.setOptions(ClientOptions.builder().protocolVersion(version).build());
                try (StatefulRedisConnection<String, String> connection = client.connect()) {
                    reads(connection.sync());
                    pipelines(connection);
                    writes(connection.sync());
                    refuses(connection.sync());
                }
            }
        }
    }

    static void reads(RedisCommands<String, String> redis) {
        expect("PONG", redis.ping());
        expect("test", redis.clientGetname());
        expect("value of m7", redis.get("members:m7"));
        expect(null, redis.get("members:nobody"));
        expect("[KeyValue[members:m1, value of m1], KeyValue[members:nobody].empty, KeyValue[members:m2, value of m2]]",
                redis.mget("members:m1", "members:nobody", "members:m2").toString());
        expect(2L, redis.exists("members:m1", "members:nobody", "members:m1"));
        Set<String> found = new HashSet<>();
        ScanIterator.scan(redis, ScanArgs.Builder.matches("members:*").limit(500)).forEachRemaining(found::add);
        expect(ROWS, found.size());
    }

    static void pipelines(StatefulRedisConnection<String, String> connection) throws Exception {
        connection.setAutoFlushCommands(false);
        List<RedisFuture<String>> answers = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            answers.add(connection.async().get("members:m" + n));
        }
        connection.flushCommands();
        expect(true, LettuceFutures.awaitAll(Duration.ofSeconds(30), answers.toArray(new RedisFuture[0])));
        connection.setAutoFlushCommands(true);
        for (int n = 0; n < 1000; n++) {
            expect("value of m" + n, answers.get(n).get());
        }
    }

    static void writes(RedisCommands<String, String> redis) {
        redis.del("carts:l", "carts:ln");
        expect("OK", redis.set("carts:l", "a", SetArgs.Builder.nx().ex(100)));
        expect(null, redis.set("carts:l", "b", SetArgs.Builder.nx()));
        expect(true, redis.ttl("carts:l") > 90);
        expect("a", redis.getex("carts:l", GetExArgs.Builder.persist()));
        expect(-1L, redis.ttl("carts:l"));
        expect(3L, redis.append("carts:l", "bc"));
        expect("abc", redis.getdel("carts:l"));
        expect(5L, redis.incrby("carts:ln", 5));
        expect("OK", redis.mset(Map.of("carts:lx", "1", "carts:ly", "2")));
        expect(2L, redis.unlink("carts:lx", "carts:ly"));
    }

    static void refuses(RedisCommands<String, String> redis) {
        try {
            redis.set("members:m1", "x");
            throw new AssertionError("a write was not refused");
        } catch (RedisCommandExecutionException error) {
            expect(true, error.getMessage().startsWith("READONLY"));
        }
    }

    static void expect(Object expected, Object found) {
        if (expected == null ? found != null : !expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
