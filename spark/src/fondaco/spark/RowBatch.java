package fondaco.spark;

import java.util.Arrays;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;

/** Encoded rows in the form in which Spark shuffles them, in one array of bytes. */
final class RowBatch {
    static final int TASK = 0;
    static final int POSITION = 1;
    static final int KEY = 2;
    static final int VALUE = 3;
    static final int ORDER = 4;

    static final StructType SCHEMA = new StructType()
            .add("task", DataTypes.IntegerType, false)
            .add("position", DataTypes.LongType, false)
            .add("key", DataTypes.BinaryType, false)
            .add("value", DataTypes.BinaryType, true);

    static final StructType SCHEMA_WITH_ORDER = SCHEMA.add("order", DataTypes.BinaryType, true);

    private final int fields;
    private final int[] ends;
    private byte[] bytes;

    private RowBatch(int fields, int rows) {
        this.fields = fields;
        this.ends = new int[rows];
    }

    /** Copies a batch from the output of {@code fondaco task encode}. */
    static RowBatch copyOf(VectorSchemaRoot root, Grouping grouping) {
        BigIntVector position = (BigIntVector) root.getVector("position");
        IntVector partition = (IntVector) root.getVector("partition");
        VarBinaryVector key = (VarBinaryVector) root.getVector("key");
        VarBinaryVector value = (VarBinaryVector) root.getVector("value");
        VarBinaryVector order = (VarBinaryVector) root.getVector("order");

        int rows = root.getRowCount();
        RowBatch batch = new RowBatch(order == null ? 4 : 5, rows);
        batch.bytes = new byte[rows * 64 + key.sizeOfValueBuffer() + value.sizeOfValueBuffer()];
        UnsafeRowWriter writer = new UnsafeRowWriter(batch.fields);
        int end = 0;
        for (int row = 0; row < rows; row++) {
            writer.reset();
            writer.zeroOutNullBytes();
            writer.write(TASK, grouping.salt(partition.get(row)));
            writer.write(POSITION, position.get(row));
            writer.write(KEY, key.get(row));
            write(writer, VALUE, value, row);
            if (order != null) {
                write(writer, ORDER, order, row);
            }
            int size = writer.totalSize();
            if (end + size > batch.bytes.length) {
                batch.bytes = Arrays.copyOf(batch.bytes, Math.max(end + size, batch.bytes.length / 2 * 3));
            }
            System.arraycopy(writer.getBuffer(), 0, batch.bytes, end, size);
            end += size;
            batch.ends[row] = end;
        }
        return batch;
    }

    int rows() {
        return ends.length;
    }

    /** Points {@code row} at a row of the batch. */
    void point(UnsafeRow row, int index) {
        int start = index == 0 ? 0 : ends[index - 1];
        row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + start, ends[index] - start);
    }

    int fields() {
        return fields;
    }

    private static void write(UnsafeRowWriter writer, int field, VarBinaryVector vector, int row) {
        if (vector.isNull(row)) {
            writer.setNullAt(field);
        } else {
            writer.write(field, vector.get(row));
        }
    }
}
