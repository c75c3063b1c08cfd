//! The errors of refused inputs and options; a refused build leaves no files.

use std::fs;
use std::sync::Arc;

use crate::generate::{Place, assert_says, get, gzip, table, texts, write_avro, write_parquet, zstd};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, Int64Array, ListArray, StringArray, StructArray, TimestampMicrosecondArray};
use arrow_schema::Field;
use fondaco_builder::{BuildError, BuildOptions, InputFormat, OnDuplicate, Progress, ValueSelection, build};
use fondaco_storage::Location;

#[track_caller]
#[test]
fn null_keys_and_values_are_refused_with_row_and_sample() {
    for avro in [false, true] {
        let rows = [(Some("a"), Some("1")), (None, Some("some value")), (Some("c"), None)];
        let place = Place::new();
        if avro {
            write_avro(&place.input("a.avro"), &[texts(&rows)], None);
        } else {
            write_parquet(&place.input("a.parquet"), &texts(&rows), 2);
        }
        assert_says(&place.refused(|_| {}), &["row", "is null"]);
        assert_says(
            &place.refused(|options| {
                options.bad_rows_max = 1;
                options.threads = 1;
            }),
            &[
                "row 2: \"k\" is null: k=null, v=some value",
                "row 3: \"v\" is null: k=c, v=null",
                "--max-bad-rows",
            ],
        );
        let report = place.build(|options| options.bad_rows_max = 2).unwrap();
        assert_eq!(
            (report.records, report.bad_rows, report.bad_row_samples.len()),
            (1, 2, 2)
        );
    }
}

#[test]
fn a_time_outside_of_the_calendar_is_refused() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["0", "1"]));
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![0, i64::MAX]));
    for (key, value) in [(&texts, &times), (&times, &texts)] {
        let place = Place::new();
        let columns = vec![("k", Arc::clone(key)), ("v", Arc::clone(value))];
        write_parquet(&place.input("a.parquet"), &table(columns), 10);
        assert_says(&place.refused(|_| {}), &["row", "cannot be written as text"]);
        let report = place.build(|options| options.bad_rows_max = 1).unwrap();
        assert_eq!((report.records, report.bad_rows), (1, 1));
    }

    // Also as a part of a value: of an object of columns, of an object column, and of a list in one.
    let lists = [0, i64::MAX].map(|time| Some([Some(time)]));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<TimestampMicrosecondType, _, _>(lists));
    let member = Arc::new(Field::new("member", lists.data_type().clone(), true));
    let objects: ArrayRef = Arc::new(StructArray::from(vec![(member, Arc::clone(&lists))]));
    let column = ValueSelection::Column("at".to_owned());
    for (value, selection) in [
        (&times, ValueSelection::AllOthers),
        (&lists, ValueSelection::AllOthers),
        (&lists, column.clone()),
        (&objects, column),
    ] {
        let place = Place::new();
        let columns = vec![
            ("k", Arc::clone(&texts)),
            ("at", Arc::clone(value)),
            ("v", Arc::clone(&texts)),
        ];
        write_parquet(&place.input("a.parquet"), &table(columns), 10);
        let select = |options: &mut BuildOptions| options.value = selection.clone();
        assert_says(
            &place.refused(select),
            &["a.parquet\" row 2", "cannot be written as text"],
        );
        let built = place.built(|options| {
            select(options);
            options.bad_rows_max = 1;
        });
        let value = get(&built, "0").unwrap();
        assert!(value.contains("\"1970-01-01T00:00:00\""), "{value}");
        assert_eq!(get(&built, "1"), None);
    }
}

#[test]
fn a_bad_line_is_refused_with_number_and_text() {
    for (line, reason) in [
        ("{\"k\":\"x\",\"v\":", "it is not a JSON object"),
        ("[1,2]", "expected an object"),
        ("{\"k\":\"x\",\"v\":1} trailing", "trailing characters"),
        ("{\"v\":1}", "it has no \"k\""),
        ("{\"K\":1,\"v\":1}", "did you mean \"K\"?"),
        ("{\"k\":null,\"v\":1}", "\"k\" is null"),
        ("{\"k\":\"x\",\"v\":null}", "\"v\" is null"),
        ("{\"k\":{\"a\":1},\"v\":1}", "\"k\" is an object"),
        ("{\"k\":[1],\"v\":1}", "\"k\" is a list"),
        ("{\"k\":\"\\ud800\",\"v\":1}", "\"k\" is not a text"),
        ("{\"k\":\"\",\"v\":1}", "the key is empty"),
    ] {
        let place = Place::new();
        place.write(
            "a.jsonl",
            format!("{{\"k\":1,\"v\":1}}\n\n{line}\n{{\"k\":3,\"v\":3}}\n"),
        );
        assert_says(&place.refused(|_| {}), &["1 bad row(s)", "a.jsonl\" row 3", reason]);
        let report = place.build(|options| options.bad_rows_max = 1).unwrap();
        assert_eq!((report.rows, report.records, report.bad_rows), (3, 2, 1));
    }
}

/// Whichever thread finds its bad row first.
#[test]
fn the_error_names_the_first_bad_rows_of_the_input() {
    let good: String = (0..30_000).map(|n| format!("{n},1\n")).collect();
    let place = Place::new();
    // The bad rows of the first file are read last.
    place.write("1.csv", format!("k,v\n{good},bad\n,bad\n"));
    for number in 2..6 {
        place.write(&format!("{number}.csv"), "k,v\n,bad\n,bad\n");
    }
    place.write("9.csv", format!("k,v\n{}", ",bad\n".repeat(100)));
    for threads in [1, 4] {
        for (allowed, named) in [(0, 1), (2, 3), (8, 9), (50, 10)] {
            let message = place.refused(|options| {
                options.threads = threads;
                options.on_duplicate = OnDuplicate::First;
                options.bad_rows_max = allowed;
            });
            assert_says(
                &message,
                &[&format!("{} bad row(s), more than the {allowed} allowed", allowed + 1)],
            );
            let rows: Vec<&str> = message.lines().skip(1).collect();
            assert_eq!(rows.len(), named, "{message}");
            let firsts = [
                "1.csv\" row 30001",
                "1.csv\" row 30002",
                "2.csv\" row 1",
                "2.csv\" row 2",
                "3.csv\" row 1",
            ];
            for (row, first) in rows.iter().zip(firsts) {
                assert_says(row, &[first]);
            }
        }
    }
}

#[test]
fn a_csv_row_with_extra_fields_is_refused() {
    let place = Place::new();
    place.write("a.csv", "k,v\na,1\nb,2,more\nc\n");
    assert_says(
        &place.refused(|_| {}),
        &["a.csv\" row 2", "3 fields, and the header has 2", "b,2,more"],
    );
    let report = place.build(|options| options.bad_rows_max = 2).unwrap();
    assert_eq!(report.records, 1);
}

#[test]
fn csv_that_is_not_utf8_is_refused_only_for_text() {
    let place = Place::new();
    place.write("a.csv", b"k,v\na,\xff\n");
    let all = |options: &mut fondaco_builder::BuildOptions| options.value = ValueSelection::AllOthers;
    assert_says(&place.refused(all), &["row 1", "\"v\" is not UTF-8"]);
    assert_eq!(place.built(|_| {}).get(b"a").unwrap().as_deref(), Some(&b"\xff"[..]));
}

#[test]
fn the_error_for_a_missing_column_suggests_existing_ones() {
    let columns = || -> Vec<(&str, ArrayRef)> {
        vec![
            ("member_id", Arc::new(Int64Array::from(vec![1]))),
            ("score", Arc::new(Int64Array::from(vec![2]))),
        ]
    };
    for name in ["a.parquet", "a.avro", "a.csv", "a.jsonl"] {
        let place = Place::new();
        match name {
            "a.parquet" => write_parquet(&place.input(name), &table(columns()), 10),
            "a.avro" => write_avro(&place.input(name), &[table(columns())], None),
            "a.csv" => drop(place.write(name, "member_id,score\n1,2\n")),
            _ => drop(place.write(name, "{\"member_id\":1,\"score\":2}\n")),
        }
        let message = place.refused(|options| {
            options.key = vec!["member_id".to_owned()];
            options.value = ValueSelection::Columns(vec!["scor".to_owned()]);
        });
        assert_says(
            &message,
            &[
                name,
                "no column \"scor\"",
                "did you mean \"score\"?",
                "\"member_id\", \"score\"",
            ],
        );
        if name != "a.jsonl" {
            let message = place.refused(|options| options.key = vec!["member".to_owned()]);
            assert_says(&message, &[name, "no column \"member\"", "did you mean \"member_id\"?"]);
        }
    }
}

#[test]
fn keys_and_values_over_the_limits_are_refused() {
    let key = "k".repeat(64 * 1024 + 1);
    let value = "v".repeat((64 << 20) + 1);
    let place = Place::new();
    place.write("a.csv", format!("k,v\na,1\n{key},2\nb,{value}\n,4\n"));
    let message = place.refused(|options| options.bad_rows_max = 2);
    assert_says(
        &message,
        &[
            "row 2: the key has 65537 bytes",
            "row 3: the value has 67108865 bytes",
            "row 4: the key is empty",
        ],
    );
    assert!(message.len() < 3000, "samples are bounded");
    let report = place.build(|options| options.bad_rows_max = 3).unwrap();
    assert_eq!(report.records, 1);
}

#[test]
fn keys_and_values_at_the_limits_are_fine() {
    let key = "k".repeat(64 * 1024);
    let value = "v".repeat(64 << 20);
    let place = Place::new();
    place.write("a.csv", format!("k,v\n{key},{value}\n"));
    assert_eq!(get(&place.built(|_| {}), &key).unwrap().len(), 64 << 20);
}

/// Every truncation of a format that can detect it is an error, and never a bad row.
#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let keys: Vec<String> = (0..500).map(|n| format!("key{n}")).collect();
    let rows: Vec<(Option<&str>, Option<&str>)> = keys.iter().map(|key| (Some(&key[..]), Some(&key[..]))).collect();
    let text: String = keys
        .iter()
        .map(|key| format!("{{\"k\":{key:?},\"v\":{key:?}}}\n"))
        .collect();
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &texts(&rows), 100);
    write_avro(&place.input("a.avro"), &[texts(&rows)], None);
    let files = [
        ("a.parquet", fs::read(place.input("a.parquet")).unwrap()),
        ("a.avro", fs::read(place.input("a.avro")).unwrap()),
        ("a.jsonl", gzip(text.as_bytes())),
        ("a.jsonl", zstd(text.as_bytes())),
    ];
    for (name, whole) in files {
        let header = if name == "a.avro" {
            whole.windows(4).position(|w| w == b"key0").unwrap()
        } else {
            8
        };
        for length in (header..whole.len()).step_by(whole.len() / 40).chain([whole.len() - 1]) {
            let place = Place::new();
            place.write(name, &whole[..length]);
            let result = place.build(|options| {
                options.bad_rows_max = u64::MAX;
                options.allow_empty = true;
            });
            let error = result.map(|_| ()).unwrap_err();
            assert!(
                matches!(error, BuildError::Unreadable { .. }),
                "{name} cut to {length}: {error}"
            );
            assert_says(&error.to_string(), &[name]);
        }
    }
}

/// Changing any byte of a container never makes the build panic or hang.
#[test]
fn a_damaged_container_never_causes_a_panic() {
    let keys: Vec<String> = (0..20).map(|n| format!("key{n}")).collect();
    let rows: Vec<(Option<&str>, Option<&str>)> = keys.iter().map(|key| (Some(&key[..]), Some(&key[..]))).collect();
    let place = Place::new();
    write_avro(&place.input("a.avro"), &[texts(&rows)], None);
    let whole = fs::read(place.input("a.avro")).unwrap();
    for (place_in_file, bit) in (0..whole.len()).flat_map(|place| [(place, 1), (place, 0x80)]) {
        let mut damaged = whole.clone();
        damaged[place_in_file] ^= bit;
        place.write("a.avro", &damaged);
        let result = place.build(|options| {
            options.bad_rows_max = u64::MAX;
            options.dry_run = true;
            options.on_duplicate = OnDuplicate::First;
        });
        if let Ok(report) = result {
            assert_eq!(report.rows, 20, "byte {place_in_file}");
        }
    }
}

#[test]
fn a_file_in_another_format_is_refused() {
    for name in ["a.parquet", "a.avro", "a.jsonl"] {
        let place = Place::new();
        place.write(name, "this is a text of some length, and nothing else\n");
        assert_says(&place.refused(|_| {}), &[name]);
    }
    let place = Place::new();
    place.write("a.txt", "k,v\n");
    assert_says(&place.refused(|_| {}), &["does not tell its format", "--format"]);
    assert_says(
        &place.refused(|options| options.format = Some(InputFormat::Csv)),
        &["no row"],
    );
}

#[test]
fn an_empty_input_is_refused_unless_allowed() {
    for (name, content) in [("a.csv", "k,v\n"), ("a.csv", ""), ("a.jsonl", ""), ("a.jsonl", "\n\n")] {
        let place = Place::new();
        place.write(name, content);
        assert_says(&place.refused(|_| {}), &["the input has no row", "--allow-empty"]);
        let version = place.built(|options| options.allow_empty = true);
        assert_eq!(version.records(), 0);
        assert_eq!(get(&version, "x"), None);
    }
}

#[test]
fn a_duplicate_is_refused_with_both_rows() {
    let place = Place::new();
    place.write("a.csv", "k,v\nx,1\ny,2\n");
    place.write("b.csv", "k,v\nz,1\ny,3\n");
    assert_says(
        &place.refused(|_| {}),
        &[
            "key \"y\" occurs twice",
            "a.csv\" row 2",
            "b.csv\" row 2",
            "--on-duplicate",
        ],
    );
}

#[test]
fn columns_with_the_same_name_are_refused() {
    let place = Place::new();
    place.write("a.csv", "k,v,v\nx,1,2\n");
    assert_says(&place.refused(|_| {}), &["have the name \"v\""]);
}

#[test]
fn an_output_in_use_is_refused_and_stays() {
    let place = Place::new();
    place.write("a.csv", "k,v\nx,1\n");
    fs::create_dir(place.output()).unwrap();
    fs::write(place.output().join("p00000-c0000.data"), "precious").unwrap();
    let error = place.build(|_| {}).map(|_| ()).unwrap_err();
    assert_says(&error.to_string(), &["is not empty", "an interrupted build left"]);
    assert_eq!(fs::read(place.output().join("p00000-c0000.data")).unwrap(), b"precious");
    fs::remove_file(place.output().join("p00000-c0000.data")).unwrap();
    assert_eq!(
        get(&place.built(|_| {}), "x").as_deref(),
        Some("1"),
        "an empty directory is fine"
    );
}

#[test]
fn a_failed_build_leaves_an_existing_directory_empty() {
    let place = Place::new();
    place.write("a.csv", "k,v\nx,1\nx,2\n");
    fs::create_dir(place.output()).unwrap();
    assert!(place.build(|_| {}).is_err());
    assert_eq!(fs::read_dir(place.output()).unwrap().count(), 0);
}

#[test]
fn a_cancelled_build_leaves_nothing() {
    let place = Place::new();
    place.write("a.csv", "k,v\nx,1\n");
    let progress = Progress::new();
    progress.cancel();
    assert!(matches!(build(&place.options(), &progress), Err(BuildError::Cancelled)));
    assert!(!place.output().exists());
}

#[test]
fn invalid_options_are_refused() {
    let place = Place::new();
    place.write("a.csv", "k,v\nx,1\n");
    assert_says(&place.refused(|options| options.threads = 0), &["invalid threads 0"]);
    assert_says(
        &place.refused(|options| options.memory_bytes = 1000),
        &["invalid memory 1000", "at least 1 MiB"],
    );
    assert_says(
        &place.refused(|options| options.chunk_bytes_target = 3 << 30),
        &["invalid chunk size"],
    );
    assert_says(
        &place.refused(|options| options.value = ValueSelection::Columns(vec!["v".to_owned(), "v".to_owned()])),
        &["invalid value columns", "each once"],
    );
    let nowhere = place.input("nowhere");
    assert_says(
        &place.refused(|options| options.temporary = nowhere),
        &["temporary directory", "must exist"],
    );
}

#[test]
fn an_unwritable_output_is_refused() {
    let place = Place::new();
    let file = place.write("a.csv", "k,v\nx,1\n");
    let error = place.build(|options| options.output = Location::local(file.join("out")));
    assert_says(&error.map(|_| ()).unwrap_err().to_string(), &["a.csv"]);
}

#[test]
fn a_directory_without_room_for_temporary_files_is_refused() {
    let place = Place::new();
    place.write("a.csv", "k,v\nx,1\n");
    let mut options = place.options();
    options.temporary = "/proc".into();
    options.memory_bytes = 1 << 20;
    let rows: String = (0..40_000).map(|n| format!("key{n},{n:>100}\n")).collect();
    place.write("b.csv", format!("k,v\n{rows}"));
    let error = build(&options, &Progress::new()).map(|_| ()).unwrap_err();
    assert_says(&error.to_string(), &["cannot use temporary files in \"/proc\""]);
    assert!(!place.output().exists());
}
