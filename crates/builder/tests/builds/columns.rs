//! Files with different columns, columns that are left out, numbers, and CSV without a header.

use std::sync::Arc;

use crate::generate::{Place, assert_says, get, table, write_avro, write_parquet};
use arrow_array::{
    ArrayRef, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, NullArray, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use fondaco_builder::{BuildOptions, NonFinite, Numbers, ReadOptions, ValueSelection};

#[track_caller]
fn texts(texts: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

fn all(options: &mut BuildOptions) {
    options.value = ValueSelection::AllOthers;
}

#[test]
fn files_whose_columns_have_other_types_are_refused() {
    let integers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let decimals = |scale| -> ArrayRef {
        Arc::new(
            Decimal128Array::from(vec![100])
                .with_precision_and_scale(9, scale)
                .unwrap(),
        )
    };
    let time = TimestampMicrosecondArray::from(vec![0]);
    for (first, second, kinds) in [
        (integers.clone(), texts(&["1"]), ["integer", "text"]),
        (
            integers.clone(),
            Arc::new(Float64Array::from(vec![1.0])) as ArrayRef,
            ["integer", "float"],
        ),
        (decimals(2), decimals(0), ["decimal of scale 2", "decimal of scale 0"]),
        (
            Arc::new(time.clone()) as ArrayRef,
            Arc::new(time.with_timezone("UTC")) as ArrayRef,
            ["time without zone", "time with zone"],
        ),
    ] {
        let place = Place::new();
        write_parquet(
            &place.input("1.parquet"),
            &table(vec![("k", texts(&["a"])), ("v", first)]),
            10,
        );
        write_avro(
            &place.input("2.avro"),
            &[table(vec![("k", texts(&["b"])), ("v", second)])],
            None,
        );
        let message = place.refused(|options| options.threads = 1);
        assert_says(
            &message,
            &[
                "2.avro\" has other columns than",
                "1.parquet\"",
                "\"v\" is of type",
                "--allow-drift",
            ],
        );
        assert_says(&message, &kinds);
        assert_eq!(place.built(|options| options.reading.allow_drift = true).records(), 2);
    }
}

#[test]
fn types_of_the_same_text_and_null_columns_are_alike() {
    let place = Place::new();
    let columns: [ArrayRef; 4] = [
        Arc::new(NullArray::new(1)),
        Arc::new(Int32Array::from(vec![1])),
        Arc::new(Int64Array::from(vec![2])),
        Arc::new(UInt64Array::from(vec![3])),
    ];
    for (number, column) in columns.into_iter().enumerate() {
        let batch = table(vec![("k", texts(&[&number.to_string()])), ("v", column)]);
        write_parquet(&place.input(&format!("{number}.parquet")), &batch, 10);
    }
    let version = place.built(all);
    assert_eq!(get(&version, "0").as_deref(), Some("{\"v\":null}"));
    assert_eq!(get(&version, "3").as_deref(), Some("{\"v\":3}"));
}

#[test]
fn files_that_lack_a_column_are_refused() {
    let place = Place::new();
    write_parquet(
        &place.input("1.parquet"),
        &table(vec![("k", texts(&["a"])), ("v", texts(&["1"])), ("w", texts(&["2"]))]),
        10,
    );
    place.write("2.csv", "k,x,v\nb,4,3\n");
    let one_thread = |options: &mut BuildOptions| {
        all(options);
        options.threads = 1;
    };
    let message = place.refused(one_thread);
    assert_says(
        &message,
        &[
            "2.csv\" has other columns than",
            "it lacks \"w\"; only it has \"x\"",
            "--allow-drift",
        ],
    );
    let version = place.built(|options| {
        all(options);
        options.reading.allow_drift = true;
    });
    assert_eq!(get(&version, "a").as_deref(), Some("{\"v\":\"1\",\"w\":\"2\"}"));
    assert_eq!(get(&version, "b").as_deref(), Some("{\"x\":\"4\",\"v\":\"3\"}"));

    // A column that is named is null in the rows of a file that lacks it.
    let place_of_chosen = Place::new();
    std::fs::copy(place.input("1.parquet"), place_of_chosen.input("1.parquet")).unwrap();
    std::fs::copy(place.input("2.csv"), place_of_chosen.input("2.csv")).unwrap();
    let chosen = |options: &mut BuildOptions| options.value = ValueSelection::Columns(vec!["w".into(), "v".into()]);
    assert_says(&place_of_chosen.refused(chosen), &["2.csv\" has no column \"w\""]);
    let version = place_of_chosen.built(|options| {
        chosen(options);
        options.reading.allow_drift = true;
    });
    assert_eq!(get(&version, "a").as_deref(), Some("{\"w\":\"2\",\"v\":\"1\"}"));
    assert_eq!(get(&version, "b").as_deref(), Some("{\"w\":null,\"v\":\"3\"}"));
}

#[test]
fn partition_columns_are_read_in_every_format() {
    let batch = table(vec![("k", texts(&["a"])), ("v", texts(&["1"]))]);
    for format in ["parquet", "avro", "csv", "jsonl"] {
        let place = Place::new();
        for folder in ["n=7/_city=K%C3%B6ln", "n=8/_city=__HIVE_DEFAULT_PARTITION__"] {
            let name = format!("{folder}/a.{format}");
            place.write(&name, "k,v\na,1\n");
            match format {
                "parquet" => write_parquet(&place.input(&name), &batch, 10),
                "avro" => write_avro(&place.input(&name), std::slice::from_ref(&batch), None),
                "jsonl" => drop(place.write(&name, "{\"k\":\"a\",\"v\":\"1\"}\n")),
                _ => {}
            }
        }
        let build = |value: ValueSelection| {
            let version = place.built(|options| {
                options.key = vec!["k".to_owned(), "n".to_owned()];
                options.value = value;
            });
            std::fs::remove_dir_all(place.output()).unwrap();
            version
        };
        let version = build(ValueSelection::AllOthers);
        assert_eq!(
            get(&version, "a:7").as_deref(),
            Some("{\"v\":\"1\",\"_city\":\"Köln\"}"),
            "{format}"
        );
        assert_eq!(
            get(&version, "a:8").as_deref(),
            Some("{\"v\":\"1\",\"_city\":null}"),
            "{format}"
        );
        let version = build(ValueSelection::Columns(vec!["n".to_owned(), "_city".to_owned()]));
        assert_eq!(
            get(&version, "a:7").as_deref(),
            Some("{\"n\":7,\"_city\":\"Köln\"}"),
            "{format}"
        );
        let version = build(ValueSelection::Column("n".to_owned()));
        assert_eq!(get(&version, "a:8").as_deref(), Some("8"), "{format}");
    }
}

#[test]
fn a_column_of_the_file_takes_precedence_over_its_partition() {
    let place = Place::new();
    place.write("n=7/a.csv", "k,n\na,007\n");
    place.write("n=7/b.jsonl", "{\"k\":\"b\",\"n\":[1]}\n");
    let version = place.built(all);
    assert_eq!(get(&version, "a").as_deref(), Some("{\"n\":\"007\"}"));
    assert_eq!(get(&version, "b").as_deref(), Some("{\"n\":[1]}"));
}

#[test]
fn a_float_that_json_does_not_have_is_refused_with_row_and_column() {
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![
        1.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ]));
    let singles: ArrayRef = Arc::new(Float32Array::from(vec![
        1.5,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ]));
    for (column, avro) in [(&doubles, false), (&singles, false), (&doubles, true)] {
        let place = Place::new();
        let batch = table(vec![("k", texts(&["a", "b", "c", "d"])), ("v", Arc::clone(column))]);
        match avro {
            true => write_avro(&place.input("a.avro"), &[batch], None),
            false => write_parquet(&place.input("a.parquet"), &batch, 10),
        }
        let with = |value: ValueSelection, non_finite, bad_rows_max| {
            let version = place.built(|options| {
                options.value = value;
                options.reading.non_finite = non_finite;
                options.bad_rows_max = bad_rows_max;
            });
            std::fs::remove_dir_all(place.output()).unwrap();
            ["a", "b", "c", "d"].map(|key| get(&version, key))
        };
        let some = |values: [&str; 4]| values.map(|value| Some(value.to_owned()));
        let raw = || ValueSelection::Column("v".to_owned());
        for value in [ValueSelection::AllOthers, raw()] {
            let message = place.refused(|options| options.value = value);
            assert_says(
                &message,
                &["row 2", "\"v\" is NaN, which JSON does not have", "--non-finite"],
            );
        }
        assert_eq!(
            with(raw(), NonFinite::Fail, 3),
            [Some("1.5".to_owned()), None, None, None]
        );
        assert_eq!(
            with(raw(), NonFinite::Text, 0),
            some(["1.5", "NaN", "Infinity", "-Infinity"])
        );
        let objects = ValueSelection::AllOthers;
        let null = "{\"v\":null}";
        assert_eq!(
            with(objects.clone(), NonFinite::Null, 0),
            some(["{\"v\":1.5}", null, null, null])
        );
        let named = [
            "{\"v\":1.5}",
            "{\"v\":\"NaN\"}",
            "{\"v\":\"Infinity\"}",
            "{\"v\":\"-Infinity\"}",
        ];
        assert_eq!(with(objects, NonFinite::Text, 0), some(named));
    }
}

#[test]
fn numbers_that_doubles_round_are_written_as_text_if_asked() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", texts(&["a"])),
        ("i", Arc::new(Int64Array::from(vec![i64::MAX]))),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX]))),
        (
            "d",
            Arc::new(
                Decimal128Array::from(vec![1250])
                    .with_precision_and_scale(9, 2)
                    .unwrap(),
            ),
        ),
        ("s", Arc::new(Int32Array::from(vec![7]))),
        ("f", Arc::new(Float64Array::from(vec![1.5]))),
    ];
    let place = Place::new();
    let file = place.write("n=5/a.parquet", "");
    write_parquet(&file, &table(columns), 10);
    let version = place.built(|options| {
        all(options);
        options.reading.numbers = Numbers::Text;
    });
    assert_eq!(
        get(&version, "a").unwrap(),
        r#"{"i":"9223372036854775807","u":"18446744073709551615","d":"12.50","s":7,"f":1.5,"n":"5"}"#
    );
    let place = Place::new();
    place.write("a.jsonl", "{\"k\":1,\"v\":1}\n");
    assert_says(
        &place.refused(|options| options.reading.numbers = Numbers::Text),
        &["invalid numbers", "taken as they are written"],
    );
}

#[test]
fn an_excluded_column_is_left_out_in_every_format() {
    let batch = table(vec![("k", texts(&["a"])), ("v", texts(&["1"])), ("w", texts(&["2"]))]);
    let place = || {
        let place = Place::new();
        place.write("1.csv", "k,v,w\na,1,2\n");
        place
    };
    let parquet = Place::new();
    write_parquet(&parquet.input("a.parquet"), &batch, 10);
    let avro = Place::new();
    write_avro(&avro.input("a.avro"), &[batch], None);
    let jsonl = Place::new();
    jsonl.write("a.jsonl", "{\"k\":\"a\",\"v\":\"1\",\"w\":\"2\"}\n");
    let without = |names: &[&str]| {
        let exclude = names.iter().map(|&name| name.to_owned()).collect();
        move |options: &mut BuildOptions| {
            all(options);
            options.reading = ReadOptions {
                exclude,
                ..ReadOptions::default()
            };
        }
    };
    for place in [place(), parquet, avro, jsonl] {
        assert_eq!(
            get(&place.built(without(&["w"])), "a").as_deref(),
            Some("{\"v\":\"1\"}")
        );
    }
    assert_says(
        &place().refused(without(&["W"])),
        &["no column \"W\"", "did you mean \"w\"?"],
    );
    let message = place().refused(|options| options.reading.exclude = vec!["w".to_owned()]);
    assert_says(&message, &["invalid columns to exclude", "all columns"]);
}

#[test]
fn csv_without_a_header_is_read_with_names() {
    let names = |names: &[&str]| {
        let names = Some(names.iter().map(|&name| name.to_owned()).collect());
        move |options: &mut BuildOptions| options.reading.csv_columns = names
    };
    let place = Place::new();
    place.write("a.csv", "x,1\ny,1\n");
    assert_says(
        &place.refused(|_| {}),
        &["no column \"k\"", "--no-header --columns c1,c2"],
    );
    assert_says(
        &place.refused(names(&["k", "v", "w"])),
        &["row 1", "it has 2 fields, and --columns names 3"],
    );
    let version = place.built(names(&["k", "v"]));
    assert_eq!((version.records(), get(&version, "x").as_deref()), (2, Some("1")));

    // A first row of equal fields would be a header with two columns of one name.
    let place = Place::new();
    place.write("a.csv", "1,1\n");
    assert_says(&place.refused(|_| {}), &["--no-header --columns c1,c2"]);

    let place = Place::new();
    write_parquet(
        &place.input("a.parquet"),
        &table(vec![("k", texts(&["a"])), ("v", texts(&["1"]))]),
        10,
    );
    assert_says(&place.refused(names(&["k", "v"])), &["only CSV has no header"]);
}

#[test]
fn other_columnar_formats_are_refused_with_a_way() {
    for (name, magic, format, reader) in [
        ("a.orc", &b"ORC\x01"[..], "ORC", "pyarrow.orc.read_table"),
        (
            "a.parquet",
            b"FEA1\0\0\0\0",
            "Feather, version 1",
            "pyarrow.feather.read_table",
        ),
    ] {
        let place = Place::new();
        place.write(name, [magic, &[0; 100]].concat());
        assert_says(
            &place.refused(|_| {}),
            &[name, format, reader, "pyarrow.parquet.write_table"],
        );
    }
}
