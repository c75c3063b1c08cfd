import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPoolConfig;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis against a fondaco that serves the stores "members" and "carts", in both versions of the protocol. */
class RunJedis {
    static final int ROWS = 5000;

    public static void main(String[] arguments) {
        HostAndPort address = HostAndPort.from(System.getenv("FONDACO_RESP"));
        for (RedisProtocol protocol : RedisProtocol.values()) {
            var config = DefaultJedisClientConfig.builder()
                    .protocol(protocol).clientName("test").socketTimeoutMillis(30_000).build();
            try (Jedis jedis = new Jedis(address, config)) {
                reads(jedis);
                pipelines(jedis);
                scans(jedis);
                writes(jedis);
                refuses(jedis);
            }
        }
        try (JedisPool pool = new JedisPool(new JedisPoolConfig(), address.getHost(), address.getPort());
                Jedis jedis = pool.getResource()) {
            expect("value of m1", jedis.get("members:m1"));
        }
    }

    static void reads(Jedis jedis) {
        expect("PONG", jedis.ping());
        expect("value of m7", jedis.get("members:m7"));
        expect(null, jedis.get("members:nobody"));
        List<String> many = jedis.mget("members:m1", "members:nobody", "members:m2");
        expect("[value of m1, null, value of m2]", many.toString());
        expect(2L, jedis.exists("members:m1", "members:nobody", "members:m1"));
        expect(11L, jedis.strlen("members:m7"));
        expect("m7", jedis.getrange("members:m7", -2, -1));
        expect("string", jedis.type("members:m7"));
        expect(true, jedis.dbSize() >= ROWS);
        expect("test", jedis.clientGetname());
    }

    static void pipelines(Jedis jedis) {
        Pipeline pipeline = jedis.pipelined();
        List<Response<String>> answers = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            answers.add(pipeline.get("members:m" + n));
        }
        pipeline.sync();
        for (int n = 0; n < 1000; n++) {
            expect("value of m" + n, answers.get(n).get());
        }
    }

    static void scans(Jedis jedis) {
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> result = jedis.scan(cursor, new ScanParams().match("members:*").count(500));
            found.addAll(result.getResult());
            cursor = result.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        expect(ROWS, found.size());
    }

    static void writes(Jedis jedis) {
        jedis.del("carts:j", "carts:n");
        expect("OK", jedis.set("carts:j", "a", SetParams.setParams().nx().ex(100)));
        expect(null, jedis.set("carts:j", "b", SetParams.setParams().nx()));
        expect("a", jedis.setGet("carts:j", "b", SetParams.setParams().xx().keepTtl()));
        expect(true, jedis.ttl("carts:j") > 90);
        expect(2L, jedis.append("carts:j", "c"));
        expect("bc", jedis.getDel("carts:j"));
        expect(5L, jedis.incrBy("carts:n", 5));
        expect("OK", jedis.mset("carts:x", "1", "carts:y", "2"));
        expect("[1, 2]", jedis.mget("carts:x", "carts:y").toString());
        Pipeline pipeline = jedis.pipelined();
        Response<Long> last = null;
        for (int n = 0; n < 1000; n++) {
            pipeline.set("carts:" + n, "value " + n);
            last = pipeline.incr("carts:n");
        }
        pipeline.sync();
        expect(1005L, last.get());
        expect("value 999", jedis.get("carts:999"));
        expect(2L, jedis.unlink("carts:x", "carts:y"));
    }

    static void refuses(Jedis jedis) {
        try {
            jedis.set("members:m1", "x");
            throw new AssertionError("a write was not refused");
        } catch (JedisDataException error) {
            expect(true, error.getMessage().startsWith("READONLY"));
        }
    }

    static void expect(Object expected, Object found) {
        if (expected == null ? found != null : !expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
