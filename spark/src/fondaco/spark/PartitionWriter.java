package fondaco.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;

/** Sends the sorted rows of a task to a child, which writes the chunks of the task's partitions. */
final class PartitionWriter {
    private static final int BATCH_ROWS_MAX = 16 << 10;
    private static final int BATCH_BYTES_MAX = 4 << 20;

    private PartitionWriter() {}

    /** Returns the line that {@code fondaco task commit} needs. */
    static String write(Iterator<InternalRow> rows, boolean ordered, Child child) {
        try (BufferAllocator allocator = new RootAllocator();
                VectorSchemaRoot root = VectorSchemaRoot.create(schema(ordered), allocator);
                ArrowStreamWriter stream = new ArrowStreamWriter(root, null, child.input())) {
            try {
                stream.start();
                while (rows.hasNext()) {
                    TaskContext.get().killTaskIfInterrupted();
                    fill(root, rows);
                    stream.writeBatch();
                }
                stream.end();
                child.input().close();
                String line = new String(child.output().readAllBytes(), StandardCharsets.UTF_8).strip();
                child.finish();
                return line;
            } catch (IOException error) {
                throw child.failure(error);
            }
        }
    }

    private static void fill(VectorSchemaRoot root, Iterator<InternalRow> rows) {
        BigIntVector position = (BigIntVector) root.getVector(0);
        VarBinaryVector key = (VarBinaryVector) root.getVector(1);
        VarBinaryVector value = (VarBinaryVector) root.getVector(2);
        VarBinaryVector order = root.getFieldVectors().size() > 3 ? (VarBinaryVector) root.getVector(3) : null;
        root.getFieldVectors().forEach(each -> each.reset());
        int bytes = 0;
        int count = 0;
        for (; count < BATCH_ROWS_MAX && bytes < BATCH_BYTES_MAX && rows.hasNext(); count++) {
            InternalRow row = rows.next();
            position.setSafe(count, row.getLong(RowBatch.POSITION));
            bytes += set(key, count, row, RowBatch.KEY) + set(value, count, row, RowBatch.VALUE);
            if (order != null) {
                bytes += set(order, count, row, RowBatch.ORDER);
            }
        }
        root.setRowCount(count);
    }

    private static int set(VarBinaryVector vector, int index, InternalRow row, int field) {
        if (row.isNullAt(field)) {
            vector.setNull(index);
            return 0;
        }
        byte[] bytes = row.getBinary(field);
        vector.setSafe(index, bytes);
        return bytes.length;
    }

    private static Schema schema(boolean ordered) {
        List<Field> fields = new ArrayList<>();
        fields.add(new Field("position", FieldType.notNullable(new ArrowType.Int(64, true)), null));
        fields.add(new Field("key", FieldType.notNullable(new ArrowType.Binary()), null));
        fields.add(new Field("value", FieldType.nullable(new ArrowType.Binary()), null));
        if (ordered) {
            fields.add(new Field("order", FieldType.nullable(new ArrowType.Binary()), null));
        }
        return new Schema(fields);
    }
}
