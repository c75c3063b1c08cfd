//! The process that the test starts and kills: `fondaco-builder-many INPUT OUTPUT` builds a version of many files.

#[path = "generate/mod.rs"]
#[expect(dead_code, reason = "the tests use the rest of it")]
mod generate;

use std::path::Path;

use fondaco_builder::{Progress, build};
use fondaco_storage::Location;

use generate::Place;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output] = &arguments[..] else {
        panic!("not for people: a test starts it with an input and the directory of the output")
    };
    let mut options = Place::new().options();
    options.inputs = vec![input.clone()];
    options.output = Location::local(output);
    options.temporary = Path::new(output).parent().unwrap().join("temporary");
    options.memory_bytes = 1 << 20;
    options.partitions = 256.try_into().unwrap();
    build(&options, &Progress::new()).unwrap();
}
