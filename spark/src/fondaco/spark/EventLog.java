package fondaco.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.Serializable;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;

/** Appends events to the log of a store, over HTTP. Only a process that is a whole cluster has one, for development and tests. */
final class EventLog implements Serializable {
    private static final int EVENTS_MAX = 500;

    private final String url;
    private final String token;

    EventLog(Options options, String store) {
        String http = options.text("http", System.getenv().getOrDefault("FONDACO_HTTP", "127.0.0.1:6580"));
        this.url = (http.contains("://") ? http : "http://" + http) + "/v1/stores/" + store + "/events";
        this.token = options.text("token", System.getenv("FONDACO_TOKEN"));
    }

    void append(Iterator<InternalRow> encoded, boolean timed) {
        HttpClient client = HttpClient.newHttpClient();
        while (encoded.hasNext()) {
            ObjectNode body = Program.JSON.createObjectNode();
            ArrayNode events = body.putArray("events");
            while (encoded.hasNext() && events.size() < EVENTS_MAX) {
                InternalRow row = encoded.next();
                ObjectNode event = events.addObject();
                event.put("key", text(row.getBinary(RowBatch.KEY)));
                event.put("value", row.isNullAt(RowBatch.VALUE) ? null : text(row.getBinary(RowBatch.VALUE)));
                Long time = timed ? EventRecord.time(row.getBinary(RowBatch.ORDER)) : null;
                if (time != null) {
                    event.put("time_unix_ms", time);
                }
            }
            send(client, body);
        }
    }

    private void send(HttpClient client, ObjectNode body) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url)).header("Content-Type", "application/json");
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        try {
            HttpResponse<String> response =
                    client.send(request.POST(HttpRequest.BodyPublishers.ofString(body.toString())).build(), HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() / 100 != 2) {
                throw new FondacoException("cannot append events at " + url + " from " + Child.place() + ": " + response.body());
            }
        } catch (IOException error) {
            throw new FondacoException("cannot reach " + url + " from " + Child.place() + ": " + error, error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new FondacoException("the task was interrupted", error);
        }
    }

    private static String text(byte[] bytes) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException error) {
            throw new FondacoException("the log of a store takes only text: use a topic of Kafka for binary keys and values", error);
        }
    }
}
