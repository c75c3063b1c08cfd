//! The process that the test of crashes starts and kills: `fondaco-engine-writer DIR KIND` writes batches without end,
//! and prints the number of each when it is acknowledged.

mod batches;
mod engines;

use std::io::Write;
use std::path::Path;

use fondaco_engine::WriteBatch;

use batches::{KEYS, last, once, open, value};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, kind] = &arguments[..] else {
        panic!("not for people: a test starts it with a directory and the kind of an engine")
    };
    let engine = open(kind.parse().unwrap(), Path::new(dir));
    let (one, two) = (engine.open_table("one").unwrap(), engine.open_table("two").unwrap());
    let mut said = std::io::stdout().lock();
    for number in last(&*one) + 1.. {
        let mut batch = WriteBatch::new();
        for table in [&*one, &*two] {
            batch.put(
                table,
                (number % KEYS).to_be_bytes().to_vec().into(),
                value(number).into(),
            );
            batch.put(table, "last".into(), value(number).into());
            // Of two neighbours, one is there at a time.
            batch.put(table, format!("neighbour-{}", number % 2).into(), value(number).into());
            batch.delete(table, format!("neighbour-{}", (number + 1) % 2).into());
            batch.put(table, once(number), value(number).into());
            batch.delete(table, once(number - 1));
        }
        engine.write(batch).unwrap();
        if number % 64 == 0 {
            engine.sync().unwrap();
        }
        writeln!(said, "{number}").unwrap();
    }
}
