//! Values of every type are read back as they were, through `fondaco-typed`.

use std::sync::Arc;

use crate::generate::{Place, write_avro, write_parquet};
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, Schema, TimeUnit, UnionFields};
use fondaco_builder::{NonFinite, Numbers, ValueSelection};
use fondaco_format::Version;
use fondaco_model::ValueType;
use fondaco_typed::{TypedSchema, canonical, type_text};

const ROWS: usize = 40;
const UNITS: [TimeUnit; 4] = [
    TimeUnit::Second,
    TimeUnit::Millisecond,
    TimeUnit::Microsecond,
    TimeUnit::Nanosecond,
];

/// Random types, and random columns of them.
struct Random(fastrand::Rng);

impl Random {
    /// A column of canonical form.
    fn field(&mut self, name: &str, depth: usize) -> Field {
        let data_type = match self.0.usize(..if depth > 0 { 26 } else { 22 }) {
            0 => DataType::Boolean,
            1 => DataType::Int8,
            2 => DataType::Int16,
            3 => DataType::Int32,
            4 => DataType::Int64,
            5 => DataType::UInt8,
            6 => DataType::UInt16,
            7 => DataType::UInt32,
            8 => DataType::UInt64,
            9 => DataType::Float16,
            10 => DataType::Float32,
            11 => DataType::Float64,
            12 => {
                let precision = self.0.u8(1..=38);
                DataType::Decimal128(precision, self.0.i8(0..=precision as i8))
            }
            13 => DataType::Decimal256(self.0.u8(39..=76), self.0.i8(0..=39)),
            14 => DataType::Utf8,
            15 => DataType::Binary,
            16 => match self.0.bool() {
                true => DataType::FixedSizeBinary(3),
                false => {
                    let uuid = Field::new(name, DataType::FixedSizeBinary(16), true);
                    return uuid.with_metadata([("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())]);
                }
            },
            17 => match self.0.bool() {
                true => DataType::Date32,
                false => DataType::Date64,
            },
            18 => match self.0.usize(..4) {
                unit @ (0 | 1) => DataType::Time32(UNITS[unit]),
                unit => DataType::Time64(UNITS[unit]),
            },
            19 => DataType::Timestamp(UNITS[self.0.usize(..4)], self.0.bool().then(|| "UTC".into())),
            20 => DataType::Duration(UNITS[self.0.usize(..4)]),
            21 => match self.0.bool() {
                true => DataType::Interval(IntervalUnit::YearMonth),
                false => DataType::Interval(IntervalUnit::DayTime),
            },
            22 => DataType::List(Arc::new(self.field("item", depth - 1))),
            23 => DataType::FixedSizeList(Arc::new(self.field("item", depth - 1)), 2),
            24 => DataType::Struct(
                ["a", "ä \"\\", "c"]
                    .map(|name| Arc::new(self.field(name, depth - 1)))
                    .into(),
            ),
            _ => {
                let key = self.field("key", 0).with_nullable(false);
                let entry = Fields::from(vec![key, self.field("value", depth - 1)]);
                let entries = Field::new("entries", DataType::Struct(entry), false);
                DataType::Map(Arc::new(entries), false)
            }
        };
        Field::new(name, data_type, true)
    }

    /// The same logical type as another library may write it.
    fn variant(&mut self, field: &Field) -> Field {
        let mut inner = |field: &FieldRef, name: &str| {
            let nullable = field.is_nullable();
            Arc::new(self.variant(field).with_name(name).with_nullable(nullable))
        };
        let data_type = match field.data_type() {
            DataType::List(item) => match inner(item, "element") {
                item if self.0.bool() => DataType::LargeList(item),
                item => DataType::List(item),
            },
            DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inner(item, "array"), *length),
            DataType::Struct(fields) => {
                DataType::Struct(fields.iter().map(|field| inner(field, field.name())).collect())
            }
            DataType::Utf8 => [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View][self.0.usize(..3)].clone(),
            DataType::Binary => {
                [DataType::Binary, DataType::LargeBinary, DataType::BinaryView][self.0.usize(..3)].clone()
            }
            DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+02:00".into())),
            DataType::Decimal128(precision, scale) if *precision <= 18 => DataType::Decimal64(*precision, *scale),
            other => other.clone(),
        };
        field.clone().with_data_type(data_type)
    }

    fn nulls(&mut self, rows: usize, nullable: bool) -> Option<NullBuffer> {
        nullable.then(|| (0..rows).map(|_| self.0.usize(..5) > 0).collect())
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        field: &Field,
        (rows, nullable): (usize, bool),
        mut value: impl FnMut(&mut fastrand::Rng) -> T::Native,
    ) -> ArrayRef {
        let values: Vec<T::Native> = (0..rows).map(|_| value(&mut self.0)).collect();
        let array = PrimitiveArray::<T>::new(values.into(), self.nulls(rows, nullable));
        // Equal to what a decoder makes, whose null rows have no value.
        let array: PrimitiveArray<T> = array.iter().collect();
        Arc::new(array.with_data_type(field.data_type().clone()))
    }

    fn column(&mut self, field: &Field, rows: usize, nullable: bool) -> ArrayRef {
        let size = (rows, nullable);
        // Edges are as likely as everything else.
        fn integer<T>(rng: &mut fastrand::Rng, edges: [T; 3], other: fn(&mut fastrand::Rng) -> T) -> T {
            let mut edges = edges.into_iter();
            match rng.usize(..6) {
                edge @ 0..3 => edges.nth(edge).unwrap(),
                _ => other(rng),
            }
        }
        macro_rules! integers {
            ($($array:ty, $native:ident);+ for $of:expr) => {
                match $of {
                    $(ty if *ty == <$array>::DATA_TYPE => Some(self.primitive::<$array>(field, size, |rng| {
                        integer(rng, [$native::MIN, $native::MAX, 0], |rng| rng.$native(..))
                    })),)+
                    _ => None,
                }
            };
        }
        let integers = integers!(
            Int8Type, i8; Int16Type, i16; Int32Type, i32; Int64Type, i64;
            UInt8Type, u8; UInt16Type, u16; UInt32Type, u32; UInt64Type, u64 for field.data_type()
        );
        if let Some(integers) = integers {
            return integers;
        }
        const DAYS: i64 = 70_000_000;
        // In seconds, within the years that the calendar of chrono has.
        let second = |rng: &mut fastrand::Rng| {
            integer(rng, [0, -1, 253_402_300_800], |rng| {
                rng.i64(-DAYS * 86_400..DAYS * 86_400)
            })
        };
        match field.data_type() {
            DataType::Boolean => {
                let values: BooleanArray = (0..rows).map(|_| Some(self.0.bool())).collect();
                let nulls = self.nulls(rows, nullable);
                Arc::new(BooleanArray::new(values.values().clone(), nulls))
            }
            DataType::Float16 => self.primitive::<Float16Type>(field, size, |rng| {
                let half = <Float16Type as ArrowPrimitiveType>::Native::from_bits(rng.u16(..));
                if half.is_nan() {
                    <Float16Type as ArrowPrimitiveType>::Native::NAN
                } else {
                    half
                }
            }),
            DataType::Float32 => self.primitive::<Float32Type>(field, size, |rng| {
                let float = f32::from_bits(rng.u32(..));
                if float.is_nan() { f32::NAN } else { float }
            }),
            DataType::Float64 => self.primitive::<Float64Type>(field, size, |rng| {
                let float = f64::from_bits(rng.u64(..));
                if float.is_nan() { f64::NAN } else { float }
            }),
            &DataType::Decimal128(precision, _) => self.primitive::<Decimal128Type>(field, size, |rng| {
                let limit = 10_i128.pow(u32::from(precision));
                integer(rng, [0, -1, 7], |rng| rng.i128(..)) % limit
            }),
            DataType::Decimal256(_, _) => {
                self.primitive::<Decimal256Type>(field, size, |rng| i256::from_i128(rng.i128(..) % 10_i128.pow(38)))
            }
            DataType::Utf8 => {
                let text = |rng: &mut fastrand::Rng| {
                    let length = rng.usize(..8);
                    (0..length)
                        .map(|_| ['a', '"', '\\', '\n', 'ä', '\u{0}', '𝄞', '/'][rng.usize(..8)])
                        .collect::<String>()
                };
                let values: Vec<Option<String>> = (0..rows)
                    .map(|_| Some(text(&mut self.0)).filter(|_| !nullable || self.0.usize(..5) > 0))
                    .collect();
                Arc::new(StringArray::from(values))
            }
            DataType::Binary => {
                let values: Vec<Option<Vec<u8>>> = (0..rows)
                    .map(|_| {
                        let length = self.0.usize(..5);
                        let bytes = (0..length).map(|_| self.0.u8(..)).collect();
                        Some(bytes).filter(|_| !nullable || self.0.usize(..5) > 0)
                    })
                    .collect();
                Arc::new(values.iter().map(|value| value.as_deref()).collect::<BinaryArray>())
            }
            &DataType::FixedSizeBinary(length) => {
                let values = (0..rows)
                    .map(|_| {
                        let bytes: Vec<u8> = (0..length).map(|_| self.0.u8(..)).collect();
                        Some(bytes).filter(|_| !nullable || self.0.usize(..5) > 0)
                    })
                    .collect::<Vec<_>>();
                Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), length).unwrap())
            }
            DataType::Date32 => self.primitive::<Date32Type>(field, size, |rng| second(rng).div_euclid(86_400) as i32),
            DataType::Date64 => {
                self.primitive::<Date64Type>(field, size, |rng| second(rng).div_euclid(86_400) * 86_400_000)
            }
            DataType::Time32(TimeUnit::Second) => {
                self.primitive::<Time32SecondType>(field, size, |rng| rng.i32(0..86_400))
            }
            DataType::Time32(_) => self.primitive::<Time32MillisecondType>(field, size, |rng| rng.i32(0..86_400_000)),
            DataType::Time64(TimeUnit::Microsecond) => {
                self.primitive::<Time64MicrosecondType>(field, size, |rng| rng.i64(0..86_400_000_000))
            }
            DataType::Time64(_) => {
                self.primitive::<Time64NanosecondType>(field, size, |rng| rng.i64(0..86_400_000_000_000))
            }
            DataType::Timestamp(TimeUnit::Second, _) => self.primitive::<TimestampSecondType>(field, size, second),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                self.primitive::<TimestampMillisecondType>(field, size, |rng| second(rng) * 1000 + rng.i64(0..1000))
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                self.primitive::<TimestampMicrosecondType>(field, size, |rng| {
                    second(rng) * 1_000_000 + rng.i64(0..1_000_000)
                })
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                self.primitive::<TimestampNanosecondType>(field, size, |rng| {
                    integer(rng, [i64::MIN, i64::MAX, -1], |rng| rng.i64(..))
                })
            }
            DataType::Duration(TimeUnit::Second) => self.primitive::<DurationSecondType>(field, size, second),
            DataType::Duration(TimeUnit::Millisecond) => self.primitive::<DurationMillisecondType>(field, size, second),
            DataType::Duration(TimeUnit::Microsecond) => {
                self.primitive::<DurationMicrosecondType>(field, size, |rng| rng.i64(..))
            }
            DataType::Duration(TimeUnit::Nanosecond) => self.primitive::<DurationNanosecondType>(field, size, |rng| {
                integer(rng, [i64::MIN, i64::MAX, -1], |rng| rng.i64(..))
            }),
            DataType::Interval(IntervalUnit::YearMonth) => {
                self.primitive::<IntervalYearMonthType>(field, size, |rng| rng.i32(..))
            }
            DataType::Interval(IntervalUnit::DayTime) => {
                self.primitive::<IntervalDayTimeType>(field, size, |rng| IntervalDayTime::new(rng.i32(..), rng.i32(..)))
            }
            DataType::List(item) => {
                let lengths: Vec<usize> = (0..rows).map(|_| self.0.usize(..4)).collect();
                let nulls = self.nulls(rows, nullable);
                // A list that is null has no items once it has been written.
                let lengths = lengths.iter().enumerate().map(|(row, &length)| match &nulls {
                    Some(nulls) if nulls.is_null(row) => 0,
                    _ => length,
                });
                let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
                let items = self.column(item, offsets[offsets.len() - 1] as usize, true);
                Arc::new(ListArray::new(Arc::clone(item), offsets, items, nulls))
            }
            DataType::FixedSizeList(item, length) => {
                let items = self.column(item, rows * *length as usize, true);
                Arc::new(FixedSizeListArray::new(
                    Arc::clone(item),
                    *length,
                    items,
                    self.nulls(rows, nullable),
                ))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|field| self.column(field, rows, true)).collect();
                Arc::new(StructArray::new(fields.clone(), columns, self.nulls(rows, nullable)))
            }
            DataType::Map(entries, _) => {
                let nulls = self.nulls(rows, nullable);
                let lengths: Vec<usize> = (0..rows)
                    .map(|row| match &nulls {
                        Some(nulls) if nulls.is_null(row) => 0,
                        _ => self.0.usize(..3),
                    })
                    .collect();
                let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
                let count = offsets[offsets.len() - 1] as usize;
                let DataType::Struct(parts) = entries.data_type() else {
                    unreachable!()
                };
                let columns = vec![
                    self.column(&parts[0], count, false),
                    self.column(&parts[1], count, true),
                ];
                let pairs = StructArray::new(parts.clone(), columns, None);
                Arc::new(MapArray::new(Arc::clone(entries), offsets, pairs, nulls, false))
            }
            other => panic!("no values of {other}"),
        }
    }
}

/// The rows with the keys 0, 1, … of a version.
fn decoded(version: &Version, rows: usize) -> RecordBatch {
    let manifest = version.manifest();
    let schema = TypedSchema::of(&manifest.schema, manifest.value_type);
    assert_eq!(schema.notes(), [""; 0]);
    let keys: Vec<String> = (0..rows).map(|row| row.to_string()).collect();
    let values: Vec<Option<Vec<u8>>> = keys
        .iter()
        .map(|key| version.get(key.as_bytes()).unwrap().map(|value| value.to_vec()))
        .collect();
    schema.decoder().decode(&keys, &values).unwrap()
}

fn numbered(fields: Vec<Field>, columns: Vec<ArrayRef>) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..columns[0].len() as i64));
    let fields = [vec![Field::new("k", DataType::Int64, false)], fields].concat();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), [vec![keys], columns].concat()).unwrap()
}

#[test]
fn random_columns_of_every_type_are_read_back_bit_for_bit() {
    for seed in 0..60 {
        let mut random = Random(fastrand::Rng::with_seed(seed));
        let fields: Vec<Field> = (0..6).map(|number| random.field(&format!("c{number}"), 2)).collect();
        let columns: Vec<ArrayRef> = fields.iter().map(|field| random.column(field, ROWS, true)).collect();
        let written: Vec<Field> = fields.iter().map(|field| random.variant(field)).collect();
        let cast: Vec<ArrayRef> = columns
            .iter()
            .zip(&written)
            .map(|(column, field)| arrow_cast::cast(column, field.data_type()).unwrap())
            .collect();
        let place = Place::new();
        write_parquet(&place.input("a.parquet"), &numbered(written.clone(), cast), 17);
        let version = place.built(|options| {
            options.value = ValueSelection::AllOthers;
            options.reading.non_finite = NonFinite::Text;
            options.reading.numbers = if seed % 2 == 0 { Numbers::Text } else { Numbers::Number };
        });
        let batch = decoded(&version, ROWS);
        for (number, (field, column)) in fields.iter().zip(&columns).enumerate() {
            assert_eq!(&canonical(&written[number]), field);
            assert_eq!(version.manifest().schema.values[number].r#type, type_text(field));
            assert_eq!(batch.column(number + 1), column, "seed {seed}: {}", type_text(field));
        }

        // One column as the whole value.
        let field = &fields[0];
        let column = random.column(field, ROWS, false);
        let place = Place::new();
        write_parquet(
            &place.input("a.parquet"),
            &numbered(vec![field.clone()], vec![Arc::clone(&column)]),
            17,
        );
        let version = place.built(|options| {
            options.value = ValueSelection::Column("c0".to_owned());
            options.reading.non_finite = NonFinite::Text;
        });
        let batch = decoded(&version, ROWS);
        assert_eq!(batch.column(1), &column, "seed {seed}: {}", type_text(field));
        assert_eq!(
            batch.column(0).as_ref(),
            &Int64Array::from_iter_values(0..ROWS as i64) as &dyn Array
        );
    }
}

#[test]
fn intervals_and_unions_of_avro_are_read_back() {
    let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
        Some(IntervalMonthDayNano::new(14, 3, 500_000_000)),
        None,
        Some(IntervalMonthDayNano::new(0, 0, 0)),
    ]));
    let members = UnionFields::try_new(
        [0, 1, 2],
        [
            Field::new("int", DataType::Int32, false),
            Field::new("string", DataType::Utf8, false),
            Field::new("array", DataType::new_list(DataType::Int32, false), false),
        ],
    );
    let mut list =
        builder::ListBuilder::new(builder::Int32Builder::new()).with_field(Field::new("item", DataType::Int32, false));
    list.append_value([Some(1), Some(2)]);
    let union = UnionArray::try_new(
        members.unwrap(),
        ScalarBuffer::from(vec![1_i8, 0, 2]),
        Some(ScalarBuffer::from(vec![0, 0, 0])),
        vec![
            Arc::new(Int32Array::from(vec![5])),
            Arc::new(StringArray::from(vec!["5 \"ä\""])),
            Arc::new(list.finish()),
        ],
    );
    let union: ArrayRef = Arc::new(union.unwrap());
    let fields = vec![
        Field::new("i", intervals.data_type().clone(), true),
        Field::new("u", union.data_type().clone(), false),
    ];
    let place = Place::new();
    write_avro(
        &place.input("a.avro"),
        &[numbered(fields, vec![Arc::clone(&intervals), union])],
        None,
    );
    let version = place.built(|options| options.value = ValueSelection::AllOthers);
    let batch = decoded(&version, 3);
    assert_eq!(batch.column(1), &intervals);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["5 \"ä\"", "5", "[1,2]"]));
    assert_eq!(batch.column(2), &texts, "a union is read as text");
}

#[test]
fn a_key_of_several_columns_is_split_again() {
    let place = Place::new();
    let countries: ArrayRef = Arc::new(StringArray::from(vec!["de", "it"]));
    let numbers: ArrayRef = Arc::new(
        Decimal128Array::from(vec![150, -1])
            .with_precision_and_scale(10, 2)
            .unwrap(),
    );
    let paths: ArrayRef = Arc::new(StringArray::from(vec!["a:b:", "c"]));
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let columns = vec![("country", countries), ("n", numbers), ("path", paths), ("v", values)];
    let table = crate::generate::table(columns);
    write_parquet(&place.input("a.parquet"), &table, 10);
    let version = place.built(|options| {
        options.key = ["country", "n", "path"].map(str::to_owned).to_vec();
    });
    let manifest = version.manifest();
    assert_eq!(manifest.schema.key.r#type, "Utf8,Decimal128(10, 2),Utf8");
    let schema = TypedSchema::of(&manifest.schema, ValueType::Bytes);
    assert_eq!(schema.key_columns(), 3);
    let keys = ["de:1.50:a:b:", "it:-0.01:c"];
    let values = keys.map(|key| version.get(key.as_bytes()).unwrap().map(|value| value.to_vec()));
    let batch = schema.decoder().decode(&keys, &values).unwrap();
    assert_eq!(batch.columns(), table.columns());
    let error = schema
        .decoder()
        .decode(&["de:1.50"], &[None::<&[u8]>])
        .unwrap_err()
        .to_string();
    crate::generate::assert_says(&error, &["\"de:1.50\"", "\"path\"", "fewer parts"]);
}
