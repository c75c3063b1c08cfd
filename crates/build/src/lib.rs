//! the offline builder: Parquet, Avro, JSON lines and CSV in, one immutable version out
