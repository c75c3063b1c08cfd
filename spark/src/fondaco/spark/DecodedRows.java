package fondaco.spark;

import java.io.IOException;
import java.util.Collections;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows that a child exports. A row is valid until the next one. */
final class DecodedRows implements Iterator<InternalRow>, AutoCloseable {
    private final Child child;
    private final int[] fields;
    private final TaskContext context = TaskContext.get();
    private final BufferAllocator allocator = new RootAllocator();
    private final ArrowStreamReader reader;
    private Iterator<InternalRow> batch = Collections.emptyIterator();
    private boolean ended;

    DecodedRows(Child child, int[] fields) {
        this.child = child;
        this.fields = fields;
        this.reader = new ArrowStreamReader(child.output(), allocator);
    }

    @Override
    public boolean hasNext() {
        while (!batch.hasNext() && !ended) {
            context.killTaskIfInterrupted();
            load();
        }
        return batch.hasNext();
    }

    @Override
    public InternalRow next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return batch.next();
    }

    @Override
    public void close() {
        child.close();
        try {
            reader.close(false);
        } catch (IOException error) {
            // The pipe is not needed any more.
        }
        allocator.close();
    }

    private void load() {
        try {
            if (!reader.loadNextBatch()) {
                child.finish();
                ended = true;
                return;
            }
            VectorSchemaRoot root = reader.getVectorSchemaRoot();
            ColumnVector[] columns = new ColumnVector[fields.length];
            for (int index = 0; index < fields.length; index++) {
                columns[index] = new ArrowColumnVector(root.getVector(fields[index]));
            }
            batch = new ColumnarBatch(columns, root.getRowCount()).rowIterator();
        } catch (IOException error) {
            throw child.failure(error);
        }
    }
}
