//! CSV with wrong quotes or delimiters.

use std::sync::Arc;

use crate::generate::{Place, assert_says, get, gzip, write_parquet};
use arrow_array::{ArrayRef, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Schema};
use fondaco_builder::ValueSelection;

#[test]
fn an_unclosed_quote_is_refused_with_its_line() {
    let rows: String = (0..100_000).map(|n| format!("key{n},value\n")).collect();
    for end in ["", "\n", "\r\n"] {
        for opened in ["a,\"1", "\"a,1", "a,\"1\"\"", "a,\"", "a,\"x\ny,\"\"\nz"] {
            let text = format!("k,v\n\nfirst,1\n{opened}\n{rows}{}{end}", rows.trim_end());
            for content in [text.clone().into_bytes(), gzip(text.as_bytes())] {
                let place = Place::new();
                place.write("a.csv", content);
                let message = place.refused(|options| options.bad_rows_max = u64::MAX);
                assert_says(&message, &["a.csv", "the quote that line 4 opens is never closed"]);
            }
        }
    }
    let place = Place::new();
    place.write("a.csv", "k,\"v\na,1\n");
    assert_says(&place.refused(|_| {}), &["the quote that line 1 opens is never closed"]);
}

#[test]
fn text_after_a_closing_quote_is_refused_with_its_line() {
    for (row, lines) in [
        ("a,\"1\"2", "line 3: text follows a closing quote in line 3"),
        ("a,\"1\" ", "line 3: text follows a closing quote in line 3"),
        ("\"a\"b,1", "line 3: text follows a closing quote in line 3"),
        ("\"\"x,1", "line 3: text follows a closing quote in line 3"),
        ("a,\"1\r\n2\"3", "lines 3 to 4: text follows a closing quote in line 4"),
        ("a,\"1\nb,\"2\"", "lines 3 to 4: text follows a closing quote in line 4"),
    ] {
        for line_end in ["\n", "\r\n"] {
            let place = Place::new();
            place.write(
                "a.csv",
                format!("k,v{line_end}x,\"0\"{line_end}{row}{line_end}y,\"3\"{line_end}"),
            );
            assert_says(&place.refused(|_| {}), &["a.csv\" row 2", lines]);
            let report = place.build(|options| options.bad_rows_max = 1).unwrap();
            assert_eq!((report.rows, report.records, report.bad_rows), (3, 2, 1), "{row:?}");
        }
    }
    let place = Place::new();
    place.write("a.csv", "k,\"v\"w\na,1\n");
    assert_says(
        &place.refused(|_| {}),
        &["in its header, text follows a closing quote in line 1"],
    );
}

#[test]
fn correct_quotes_are_parsed() {
    // Longer than the read buffer, so that quotes fall on its ends.
    let long = "x\"\"y,\n".repeat(100_000);
    for line_end in ["\n", "\r\n"] {
        let place = Place::new();
        place.write(
            "a.csv",
            [
                "k,v",
                "a,\"1,\n\r\n\"\"2\"\"\"",
                "\"b\",\"\"",
                "c,5\" disk",
                &format!("d,\"{long}\""),
                "e,\"\"\"\"",
            ]
            .join(line_end),
        );
        let version = place.built(|_| {});
        assert_eq!(get(&version, "a").as_deref(), Some("1,\n\r\n\"2\""));
        assert_eq!(get(&version, "b").as_deref(), Some(""));
        assert_eq!(get(&version, "c").as_deref(), Some("5\" disk"));
        assert_eq!(get(&version, "d"), Some(long.replace("\"\"", "\"")));
        assert_eq!(get(&version, "e").as_deref(), Some("\""));
    }
}

#[test]
fn every_bad_row_has_its_line() {
    let place = Place::new();
    place.write("a.csv", "k,v\n\n\"a\nb\",1\nc\n");
    assert_says(&place.refused(|_| {}), &["row 2: line 5: it has 1 fields"]);
}

#[test]
fn an_empty_line_of_one_column_is_a_row() {
    for line_end in ["\n", "\r\n", "\r"] {
        let place = Place::new();
        place.write("a.csv", ["", "k", "a", "", "\"\"", "b", "", ""].join(line_end));
        let all = |options: &mut fondaco_builder::BuildOptions| {
            options.value = ValueSelection::AllOthers;
            options.bad_rows_max = 3;
        };
        let report = place.build(all).unwrap();
        assert_eq!(
            (report.rows, report.records, report.bad_rows),
            (5, 2, 3),
            "{line_end:?}"
        );
        std::fs::remove_dir_all(place.output()).unwrap();
        let message = place.refused(|options| {
            all(options);
            options.bad_rows_max = 0;
        });
        assert_says(&message, &["a.csv\" row 2: the key is empty"]);
    }
    // With several columns, an empty line is no row.
    let place = Place::new();
    place.write("a.csv", "k,v\n\na,1\n\n\nb,2\n\n");
    assert_eq!(place.build(|_| {}).unwrap().rows, 2);
}

#[test]
fn columns_with_the_same_name_are_refused_at_any_level() {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let column: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let fields = vec![text("k"), text("v"), text("v")];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![Arc::clone(&column); 3]).unwrap();
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &batch, 10);
    for value in [ValueSelection::AllOthers, ValueSelection::Column("v".to_owned())] {
        let message = place.refused(|options| options.value = value);
        assert_says(&message, &["two columns", "a.parquet", "have the name \"v\""]);
    }

    let members = vec![text("m"), text("m")].into();
    let object: ArrayRef = Arc::new(StructArray::new(members, vec![Arc::clone(&column); 2], None));
    let fields = vec![text("k"), Field::new("v", object.data_type().clone(), true)];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![column, object]).unwrap();
    let place = Place::new();
    write_parquet(&place.input("a.parquet"), &batch, 10);
    assert_says(&place.refused(|_| {}), &["a.parquet", "have the name \"v.m\""]);
}
