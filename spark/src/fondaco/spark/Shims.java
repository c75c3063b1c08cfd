package fondaco.spark;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/** Methods of Spark whose signatures differ between Spark 3.5 and 4. */
final class Shims {
    private Shims() {}

    static Dataset<Row> dataFrame(SparkSession session, JavaRDD<InternalRow> rows, StructType schema) {
        @SuppressWarnings("unchecked")
        Dataset<Row> frame = (Dataset<Row>) call(session, session.getClass(), "internalCreateDataFrame", rows.rdd(), schema, false);
        return frame;
    }

    /** The Arrow schema of rows, with times in UTC. */
    static Schema arrowSchema(StructType schema) {
        Method method = Arrays.stream(ArrowUtils.class.getMethods())
                .filter(each -> each.getName().equals("toArrowSchema") && each.getParameterCount() >= 4)
                .findAny()
                .orElseThrow(() -> new FondacoException("this version of Spark has no known conversion to Arrow"));
        Object[] arguments = new Object[method.getParameterCount()];
        Arrays.fill(arguments, false);
        arguments[0] = schema;
        arguments[1] = "UTC";
        arguments[2] = true;
        return (Schema) invoke(method, null, arguments);
    }

    private static Object call(Object target, Class<?> type, String name, Object... arguments) {
        Method method = Arrays.stream(type.getMethods())
                .filter(each -> each.getName().equals(name) && each.getParameterCount() == arguments.length
                        && each.getParameterTypes()[0].isAssignableFrom(RDD.class))
                .findAny()
                .orElseThrow(() -> new FondacoException("this version of Spark has no " + type.getName() + "." + name));
        return invoke(method, target, arguments);
    }

    private static Object invoke(Method method, Object target, Object... arguments) {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new FondacoException(error.getCause().getMessage(), error.getCause());
        } catch (IllegalAccessException error) {
            throw new FondacoException("cannot call " + method + ": " + error.getMessage(), error);
        }
    }
}
