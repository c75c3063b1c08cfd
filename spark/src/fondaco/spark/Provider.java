package fondaco.spark;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.SchemaRelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;

/** {@code format("fondaco")}: the entry of Spark. */
public final class Provider implements DataSourceRegister, RelationProvider, SchemaRelationProvider, CreatableRelationProvider, StreamSinkProvider {
    @Override
    public String shortName() {
        return "fondaco";
    }

    @Override
    public BaseRelation createRelation(SQLContext context, Map<String, String> parameters) {
        return new Relation(context, options(context, parameters), null);
    }

    @Override
    public BaseRelation createRelation(SQLContext context, Map<String, String> parameters, StructType schema) {
        return new Relation(context, options(context, parameters), schema);
    }

    @Override
    public BaseRelation createRelation(SQLContext context, SaveMode mode, Map<String, String> parameters, Dataset<Row> data) {
        Options options = options(context, parameters);
        if (mode == SaveMode.Append || mode == SaveMode.Overwrite || !Relation.hasVersion(options)) {
            Push.write(context.sparkSession(), options, data, mode == SaveMode.Append);
        } else if (mode == SaveMode.ErrorIfExists) {
            throw new FondacoException("store \"" + options.text("store") + "\" has a version: write with mode(\"overwrite\") to replace it, or"
                    + " mode(\"append\") to change it");
        }
        return new Relation(context, options, data.schema());
    }

    @Override
    public Sink createSink(
            SQLContext context, Map<String, String> parameters, scala.collection.immutable.Seq<String> partitionColumns, OutputMode mode) {
        return sink(context, parameters, mode);
    }

    /** The same, as Spark 3.5 calls it: its sequences are of another type. */
    public Sink createSink(SQLContext context, Map<String, String> parameters, scala.collection.Seq<String> partitionColumns, OutputMode mode) {
        return sink(context, parameters, mode);
    }

    /** The native program refuses types that have no form, and names their columns. */
    @Override
    public boolean supportsDataType(DataType type) {
        return true;
    }

    private static Sink sink(SQLContext context, Map<String, String> parameters, OutputMode mode) {
        if (mode.equals(OutputMode.Complete())) {
            throw new FondacoException("a stream of events cannot be written with outputMode(\"complete\"): use \"append\" or \"update\"");
        }
        return new EventSink(context.sparkSession(), options(context, parameters));
    }

    private static Options options(SQLContext context, Map<String, String> parameters) {
        return new Options(parameters, context.sparkSession().conf().getAll());
    }
}
