//! The process that the test of kills starts and kills: `fondaco-coordination-writer DIR` writes two entries in each
//! transaction without end, and prints the number of each transaction that is acknowledged.

use std::path::Path;

use fondaco_coordination::{Change, EmbeddedCoordination, EntryPath};

fn main() {
    let dir = std::env::args_os()
        .nth(1)
        .expect("not for people: a test starts it with a directory");
    let session = EmbeddedCoordination::open(Path::new(&dir)).unwrap().session();
    let [a, b]: [EntryPath; 2] = ["a", "b/c"].map(|path| path.parse().unwrap());
    loop {
        let entry = session.read(&a).unwrap();
        let (count, expected) = entry.map_or((0, None), |entry| {
            let count: usize = String::from_utf8(entry.bytes).unwrap().parse().unwrap();
            (count, Some(entry.revision))
        });
        let change = |path: &EntryPath| Change::Write {
            path: path.clone(),
            bytes: (count + 1).to_string().into_bytes(),
            expected,
        };
        session.transact(&[change(&a), change(&b)]).unwrap();
        println!("{}", count + 1);
    }
}
