//! Files that other programs wrote: DuckDB, Spark with parquet-mr, fastavro, Apache's Avro, delta-rs and PyIceberg.
//! `producers/make.py` made them.

use std::path::{Path, PathBuf};

use crate::generate::{Place, assert_says, get};
use fondaco_builder::{BuildOptions, ReadOptions, ValueSelection};
use fondaco_format::Version;

#[track_caller]
fn producer(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/builds/producers")
        .join(name);
    path.to_str().unwrap().to_owned()
}

fn columns(names: &[&str]) -> ValueSelection {
    ValueSelection::Columns(names.iter().map(|&name| name.to_owned()).collect())
}

fn excluding(names: &[&str]) -> ReadOptions {
    ReadOptions {
        exclude: names.iter().map(|&name| name.to_owned()).collect(),
        ..ReadOptions::default()
    }
}

/// The options of a build of a file with these columns as the value.
fn of(name: &str, value: ValueSelection) -> impl FnOnce(&mut BuildOptions) {
    let input = producer(name);
    move |options| {
        options.inputs = vec![input];
        options.value = value;
    }
}

fn built(name: &str, value: ValueSelection) -> Version {
    Place::new().built(of(name, value))
}

#[test]
fn a_uuid_of_duckdb_is_text_at_any_depth() {
    let uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f";
    let version = built("duckdb.parquet", columns(&["u", "us", "o"]));
    assert_eq!(
        get(&version, "a").unwrap(),
        format!(r#"{{"u":"{uuid}","us":["{uuid}"],"o":{{"id":"{uuid}"}}}}"#)
    );
    let version = built("duckdb.parquet", ValueSelection::Column("u".to_owned()));
    assert_eq!(get(&version, "a").unwrap(), uuid);
    let version = Place::new().built(|options| {
        of("duckdb.parquet", columns(&["d", "at"]))(options);
        options.key = vec!["o.id".to_owned()];
    });
    assert_eq!(
        get(&version, uuid).unwrap(),
        r#"{"d":12.50,"at":"2026-01-31T12:00:00Z"}"#
    );
}

#[test]
fn types_that_would_be_read_wrongly_are_refused_only_if_they_are_used() {
    for (file, column, of_type) in [
        ("duckdb.parquet", "i", "INTERVAL"),
        ("duckdb.parquet", "oi", "INTERVAL"),
        ("duckdb.parquet", "oi.i", "INTERVAL"),
        ("duckdb.parquet", "v", "VARIANT"),
        ("spark/part-0.parquet", "v", "VARIANT"),
        ("spark/part-0.parquet", "o.v", "VARIANT"),
    ] {
        let message = Place::new().refused(of(file, columns(&[column])));
        assert_says(&message, &[&format!("column {column:?}"), "has type ", of_type]);
    }
    let version = built("duckdb.parquet", columns(&["oi.n"]));
    assert_eq!(get(&version, "a").unwrap(), r#"{"oi.n":7}"#);
    // A map whose keys are no text.
    let version = built("duckdb.parquet", columns(&["m"]));
    assert_eq!(get(&version, "a").unwrap(), r#"{"m":[[1,"x"]]}"#);
    let version = Place::new().built(|options| {
        of("duckdb.parquet", ValueSelection::AllOthers)(options);
        options.reading = excluding(&["u", "us", "o", "f", "i", "oi", "v", "m", "h"]);
    });
    assert_eq!(
        get(&version, "a").unwrap(),
        r#"{"d":12.50,"at":"2026-01-31T12:00:00Z"}"#
    );
}

#[test]
fn a_96_bit_time_of_spark_is_an_instant() {
    // 12:00 in Berlin.
    let version = built("spark", columns(&["at", "ats"]));
    assert_eq!(
        get(&version, "a").unwrap(),
        r#"{"at":"2026-01-31T11:00:00Z","ats":["2026-01-31T11:00:00Z"]}"#
    );
}

#[test]
fn partition_columns_of_spark_are_values_and_keys() {
    let version = built("spark-partitioned", ValueSelection::AllOthers);
    assert_eq!(
        get(&version, "a").unwrap(),
        r#"{"v":1,"dt":"2026-11-27","city":"x/y:z","n":7}"#
    );
    assert_eq!(
        get(&version, "b").unwrap(),
        r#"{"v":2,"dt":"2026-11-28","city":null,"n":8}"#
    );

    let version = Place::new().built(|options| {
        of("spark-partitioned", columns(&["city", "k"]))(options);
        options.key = vec!["n".to_owned(), "dt".to_owned()];
    });
    assert_eq!(get(&version, "7:2026-11-27").unwrap(), r#"{"city":"x/y:z","k":"a"}"#);
    assert_eq!(get(&version, "8:2026-11-28").unwrap(), r#"{"city":null,"k":"b"}"#);

    let message = Place::new().refused(of("spark-partitioned", ValueSelection::Column("city".to_owned())));
    assert_says(&message, &["row 1", "\"city\" is null"]);
    let one = of("spark-partitioned/dt=2026-11-27", columns(&["dt"]));
    assert_eq!(get(&Place::new().built(one), "a").unwrap(), r#"{"dt":"2026-11-27"}"#);
}

#[test]
fn csv_of_spark_has_no_header() {
    let message = Place::new().refused(of("spark-csv", ValueSelection::AllOthers));
    assert_says(
        &message,
        &["no column \"k\"", "name its 3 columns: --no-header --columns c1,c2,c3"],
    );
    let version = Place::new().built(|options| {
        of("spark-csv", ValueSelection::AllOthers)(options);
        options.reading.csv_columns = Some(["k", "v", "t"].map(str::to_owned).to_vec());
    });
    assert_eq!(get(&version, "a").unwrap(), r#"{"v":"1.50","t":"x, y"}"#);
}

#[test]
fn avro_of_fastavro_is_read_with_every_codec() {
    for codec in ["null", "xz", "bzip2"] {
        let file = format!("fastavro-{codec}.avro");
        let version = built(&file, columns(&["place", "u", "color", "lasts"]));
        assert_eq!(version.records(), 5);
        for (key, u) in [
            ("k0", "null"),
            ("k1", "5"),
            ("k2", r#""text""#),
            ("k3", r#""BLUE""#),
            ("k4", r#"{"city":"Köln"}"#),
        ] {
            let expected = format!(r#"{{"place":{{"city":"Köln"}},"u":{u},"color":"RED","lasts":"P1M2DT3.500S"}}"#);
            assert_eq!(get(&version, key), Some(expected), "{codec}");
        }
    }
}

#[test]
fn an_avro_record_that_contains_itself_is_refused_only_if_it_is_used() {
    let file = "fastavro-null.avro";
    for value in [ValueSelection::AllOthers, columns(&["tree"]), columns(&["tree.label"])] {
        let message = Place::new().refused(of(file, value));
        assert_says(&message, &["column \"tree\"", "contains itself", "--exclude"]);
    }
    let version = Place::new().built(|options| {
        of(file, ValueSelection::AllOthers)(options);
        options.reading = excluding(&["tree", "place", "u"]);
    });
    assert_eq!(
        get(&version, "k4").unwrap(),
        r#"{"color":"RED","lasts":"P1M2DT3.500S"}"#
    );
}

#[test]
fn a_union_as_the_whole_value_is_the_value_that_it_has() {
    let version = Place::new().built(|options| {
        of("fastavro-null.avro", ValueSelection::Column("u".to_owned()))(options);
        options.bad_rows_max = 1;
    });
    let values = ["k0", "k1", "k2", "k3", "k4"].map(|key| get(&version, key));
    let expected = [None, Some("5"), Some("text"), Some("BLUE"), Some(r#"{"city":"Köln"}"#)];
    assert_eq!(values, expected.map(|value| value.map(str::to_owned)));

    let version = built("apache.avro", ValueSelection::Column("v".to_owned()));
    assert_eq!(version.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(version.get(b"b").unwrap().as_deref(), Some(&[0, 1, 2, 3][..]));
    assert_eq!(
        version.get(b"c").unwrap().as_deref(),
        Some(&br#"{"id":"/////w=="}"#[..])
    );
}

#[test]
fn files_of_a_table_format_are_refused_however_they_are_named() {
    let hudi = Place::new();
    hudi.write(".hoodie/hoodie.properties", "hoodie.table.name=t\n");
    hudi.write("dt=2026-11-27/a.csv", "k,v\nx,1\n");
    let hudi = hudi.input("").to_str().unwrap().trim_end_matches('/').to_owned();
    let delta_file = std::fs::read_dir(producer("delta")).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension().is_some().then(|| path.to_str().unwrap().to_owned())
    });
    for (input, format, remedy) in [
        (producer("delta"), "Delta Lake", "DeltaTable("),
        (producer("delta/*.parquet"), "Delta Lake", "DeltaTable("),
        (producer("delt[a]"), "Delta Lake", "DeltaTable("),
        (producer("delta/_delta_log/*.json"), "Delta Lake", "DeltaTable("),
        (delta_file.unwrap(), "Delta Lake", "DeltaTable("),
        (producer("iceberg"), "Apache Iceberg", "StaticTable.from_metadata("),
        (producer("iceberg/n/t"), "Apache Iceberg", "StaticTable.from_metadata("),
        (
            producer("iceberg/n/t/data"),
            "Apache Iceberg",
            "StaticTable.from_metadata(",
        ),
        (
            producer("iceberg/n/t/data/*.parquet"),
            "Apache Iceberg",
            "StaticTable.from_metadata(",
        ),
        (hudi.clone(), "Apache Hudi", "format(\"hudi\")"),
        (format!("{hudi}/*/a.csv"), "Apache Hudi", "format(\"hudi\")"),
    ] {
        let place = Place::new();
        let message = place.refused(|options| options.inputs = vec![input.clone()]);
        assert_says(&message, &[format, remedy, "or with Spark"]);
    }
    // A link to a file of a table is no way around.
    let place = Place::new();
    let real = std::fs::read_dir(Path::new(&producer("iceberg/n/t/data")))
        .unwrap()
        .next()
        .unwrap();
    std::os::unix::fs::symlink(real.unwrap().path(), place.input("a.parquet")).unwrap();
    assert_says(&place.refused(|_| {}), &["Apache Iceberg"]);
}
