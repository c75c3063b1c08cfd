package fondaco.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.sources.PrunedScan;
import org.apache.spark.sql.types.StructType;

/** A version or a store as a table of Spark. */
final class Relation extends BaseRelation implements PrunedScan, InsertableRelation {
    private final SQLContext context;
    private final Options options;
    private final StructType declared;
    private Scan scan;

    /** The schema of the version is read if {@code declared} is null. */
    Relation(SQLContext context, Options options, StructType declared) {
        this.context = context;
        this.options = options;
        this.declared = declared;
    }

    static boolean hasVersion(Options options) {
        if (options.text("store") == null || !options.hasCluster() && !options.flag("deploy", true)) {
            return false;
        }
        for (JsonNode store : options.program().json("status", "--json").path("stores")) {
            if (store.path("name").asText().equals(options.text("store"))) {
                return Target.current(store) != null;
            }
        }
        return false;
    }

    @Override
    public SQLContext sqlContext() {
        return context;
    }

    @Override
    public StructType schema() {
        return declared != null ? declared : scan().schema();
    }

    /** Rows are in Spark's own form. */
    @Override
    public boolean needConversion() {
        return false;
    }

    @Override
    @SuppressWarnings("unchecked")
    public RDD<Row> buildScan(String[] columns) {
        return (RDD<Row>) (RDD<?>) scan().rows(context.sparkSession(), columns, schema()).rdd();
    }

    @Override
    public void insert(Dataset<Row> data, boolean overwrite) {
        Push.write(context.sparkSession(), options, data, !overwrite);
        scan = null;
    }

    private Scan scan() {
        if (scan == null) {
            scan = Scan.of(options);
        }
        return scan;
    }
}
