package fondaco.spark;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** An event as a record of Kafka: its key, its value or null to delete the key, and its time in a header. */
final class EventRecord {
    private static final UTF8String TIME_HEADER = UTF8String.fromString("event-time");

    private EventRecord() {}

    static InternalRow of(InternalRow encoded, boolean timed, boolean partitioned) {
        Long time = timed ? time(encoded.getBinary(RowBatch.ORDER)) : null;
        Object[] headers = time == null ? new Object[0]
                : new Object[] {new GenericInternalRow(new Object[] {TIME_HEADER, time.toString().getBytes(StandardCharsets.US_ASCII)})};
        return new GenericInternalRow(new Object[] {
            encoded.getBinary(RowBatch.KEY),
            encoded.isNullAt(RowBatch.VALUE) ? null : encoded.getBinary(RowBatch.VALUE),
            new GenericArrayData(headers),
            partitioned ? encoded.getInt(RowBatch.TASK) : null
        });
    }

    /**
     * The number in bytes that sort as numbers of 64 bits do, in Arrow's row format: a byte that is 0 for null, then the number in big-endian order
     * with its sign bit flipped.
     */
    static Long time(byte[] order) {
        return order[0] == 0 ? null : (Long) (ByteBuffer.wrap(order, 1, Long.BYTES).getLong() ^ Long.MIN_VALUE);
    }
}
