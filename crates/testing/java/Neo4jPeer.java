import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.neo4j.configuration.GraphDatabaseSettings;
import org.neo4j.dbms.api.DatabaseManagementServiceBuilder;
import org.neo4j.graphdb.GraphDatabaseService;
import org.neo4j.graphdb.Node;
import org.neo4j.graphdb.Relationship;
import org.neo4j.graphdb.Result;
import org.neo4j.io.ByteUnit;

/**
 * An embedded Neo4j that answers queries: each line of the input is one, and each line of the output is its answer, rows as
 * JSON, or "error" and a message. A float is an object with its text, a vertex one with its property "name".
 */
class Neo4jPeer {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        var service = new DatabaseManagementServiceBuilder(Path.of(arguments[0]))
                .setConfig(GraphDatabaseSettings.pagecache_memory, ByteUnit.mebiBytes(32)).build();
        var database = service.database(GraphDatabaseSettings.DEFAULT_DATABASE_NAME);
        var queries = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String query; (query = queries.readLine()) != null; ) {
            answers.println(answer(database, query));
        }
        service.shutdown();
    }

    static String answer(GraphDatabaseService database, String query) throws Exception {
        try {
            return JSON.writeValueAsString(database.executeTransactionally(query, Map.of(), Neo4jPeer::rows));
        } catch (RuntimeException error) {
            return "error " + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
        }
    }

    static List<Object> rows(Result result) {
        List<Object> rows = new ArrayList<>();
        while (result.hasNext()) {
            Map<String, Object> row = result.next();
            List<Object> values = new ArrayList<>();
            result.columns().forEach(column -> values.add(told(row.get(column))));
            rows.add(values);
        }
        return rows;
    }

    static Object told(Object value) {
        if (value instanceof Double number) {
            return Map.of("float", number.toString());
        }
        if (value instanceof Node vertex) {
            return Map.of("vertex", vertex.getProperty("name"));
        }
        if (value instanceof Relationship edge) {
            return Map.of("edge", List.of(edge.getType().name(), told(edge.getStartNode()), told(edge.getEndNode())));
        }
        if (value instanceof org.neo4j.graphdb.Path path) {
            List<Object> parts = new ArrayList<>();
            path.iterator().forEachRemaining(part -> parts.add(told(part)));
            return Map.of("path", parts);
        }
        if (value instanceof Iterable<?> values) {
            List<Object> list = new ArrayList<>();
            values.forEach(element -> list.add(told(element)));
            return list;
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> entries = new TreeMap<>();
            map.forEach((name, element) -> entries.put((String) name, told(element)));
            return Map.of("map", entries);
        }
        return value;
    }
}
