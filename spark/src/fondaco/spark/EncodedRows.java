package fondaco.spark;

import java.io.IOException;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of a task, encoded by a child: key, value, and position in the version.
 *
 * <p>The task's own thread reads the rows of the DataFrame, as Spark expects, and sends them to the child in batches. Another thread
 * decodes the child's output. The task's thread sends a batch only if no output is there. So the memory of a batch or two is used, and no
 * pipe can be full at both ends.
 */
final class EncodedRows implements Iterator<InternalRow>, AutoCloseable {
    private static final int BATCH_ROWS_MAX = 16 << 10;
    private static final long BATCH_BYTES_MAX = 4 << 20;
    private static final Object END = new Object();

    private final Iterator<InternalRow> rows;
    private final Grouping grouping;
    private final TaskContext context = TaskContext.get();
    private final Child child;
    private final BufferAllocator allocator = new RootAllocator();
    private final VectorSchemaRoot root;
    private final ArrowWriter arrow;
    private final ArrowStreamWriter stream;
    private final UnsafeProjection toUnsafe;
    private final Thread reader;
    /** Batches, then {@code END} or the exception that ended the output. */
    private final LinkedBlockingQueue<Object> output = new LinkedBlockingQueue<>();

    private boolean inputEnded;
    private boolean outputEnded;
    private RowBatch batch;
    private int next;
    private final UnsafeRow row;

    EncodedRows(Iterator<InternalRow> rows, StructType schema, Grouping grouping, int fields, Child child) {
        this.rows = rows;
        this.grouping = grouping;
        this.child = child;
        Schema arrowSchema = Shims.arrowSchema(schema);
        this.root = VectorSchemaRoot.create(arrowSchema, allocator);
        this.arrow = ArrowWriter.create(root);
        this.stream = new ArrowStreamWriter(root, null, child.input());
        this.toUnsafe = UnsafeProjection.create(schema);
        this.row = new UnsafeRow(fields);
        this.reader = new Thread(this::readOutput, "encoded rows of task " + context.taskAttemptId());
        reader.setDaemon(true);
        reader.start();
    }

    @Override
    public boolean hasNext() {
        while (batch == null || next == batch.rows()) {
            if (outputEnded) {
                return false;
            }
            advance();
        }
        return true;
    }

    @Override
    public InternalRow next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        batch.point(row, next++);
        return row;
    }

    @Override
    public void close() {
        child.close();
        try {
            reader.join();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return;
        }
        root.close();
        allocator.close();
    }

    private void advance() {
        batch = null;
        next = 0;
        try {
            Object item = inputEnded ? output.take() : output.poll();
            if (item instanceof RowBatch encoded) {
                batch = encoded;
            } else if (item instanceof Exception error) {
                throw child.failure(error);
            } else if (item == END) {
                child.finish();
                if (!inputEnded) {
                    throw new FondacoException("fondaco task encode ended before its input on " + Child.place());
                }
                outputEnded = true;
            } else {
                send();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new FondacoException("the task was interrupted", error);
        }
    }

    private void send() {
        context.killTaskIfInterrupted();
        long bytes = 0;
        int count = 0;
        while (count < BATCH_ROWS_MAX && bytes < BATCH_BYTES_MAX && rows.hasNext()) {
            InternalRow each = rows.next();
            UnsafeRow unsafe = each instanceof UnsafeRow already ? already : toUnsafe.apply(each);
            arrow.write(unsafe);
            bytes += unsafe.getSizeInBytes();
            count++;
        }
        try {
            if (count > 0) {
                arrow.finish();
                stream.writeBatch();
                child.input().flush();
                arrow.reset();
            } else {
                stream.end();
                child.input().close();
                inputEnded = true;
            }
        } catch (IOException error) {
            throw child.failure(error);
        }
    }

    private void readOutput() {
        try (BufferAllocator mine = new RootAllocator(); ArrowStreamReader decoder = new ArrowStreamReader(child.output(), mine)) {
            while (decoder.loadNextBatch()) {
                output.add(RowBatch.copyOf(decoder.getVectorSchemaRoot(), grouping));
            }
            output.add(END);
        } catch (IOException | RuntimeException error) {
            output.add(error);
        }
    }
}
