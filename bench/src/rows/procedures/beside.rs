//! Other clients, while a load is measured.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::setup::vertices;
use crate::rows::calls::Beside;
use crate::rows::runner::Running;
use crate::servers::control::PUSH_LIMIT;
use crate::servers::fondaco::STORE;
use crate::servers::redis::connect;

/// How many clients ask the graph, each one question after the other.
const ASKING: u64 = 2;
const LONG_BYTES: usize = 15 << 20;

/// Ask for sizes of networks; count answers.
pub fn graph_questions(running: &Running<'_>) -> Result<Beside> {
    let (address, vertices) = (running.fondaco()?.front().resp(), vertices(running));
    let run = move |seed, stop: &AtomicBool| {
        let mut random = Rng::with_seed(seed);
        let mut stream = TcpStream::connect(address)?;
        let mut replies = BufReader::new(stream.try_clone()?);
        let mut answered = 0;
        while !stop.load(Relaxed) {
            let vertex = random.usize(..vertices);
            stream.write_all(format!("FONDACO.GRAPH SIZE social EDGE {vertex}\r\n").as_bytes())?;
            // An array of two numbers.
            for _ in 0..3 {
                let mut line = String::new();
                replies.read_line(&mut line)?;
                ensure!(line.starts_with(['*', ':']), "the answer is {line:?}");
            }
            answered += 1;
        }
        Ok(answered)
    };
    Ok(Beside {
        count: ASKING,
        run: Box::new(run),
    })
}

/// Write and read values near the limit through the front; count mebibytes.
pub fn long_values(running: &Running<'_>) -> Result<Beside> {
    let address = running.fondaco()?.front().resp();
    let run = move |_, stop: &AtomicBool| {
        let mut connection = connect(address)?;
        let value = vec![b'x'; LONG_BYTES];
        let mut moved = 0;
        while !stop.load(Relaxed) {
            redis::cmd("SET").arg("values:long").arg(&value).exec(&mut connection)?;
            let found: Vec<u8> = redis::cmd("GET").arg("values:long").query(&mut connection)?;
            ensure!(found == value, "another value was read");
            moved += 2;
        }
        Ok(moved * (LONG_BYTES >> 20) as u64)
    };
    Ok(Beside {
        count: 1,
        run: Box::new(run),
    })
}

/// List the keys of the default store, all of them again and again; count keys.
pub fn scans(running: &Running<'_>) -> Result<Beside> {
    let address = running.fondaco()?.front().resp();
    let run = move |_, stop: &AtomicBool| {
        let mut connection = connect(address)?;
        let (mut cursor, mut listed) = ("0".to_owned(), 0);
        while !stop.load(Relaxed) {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(format!("{STORE}:*"));
            let keys: Vec<Vec<u8>>;
            (cursor, keys) = scan.arg("COUNT").arg(1000).query(&mut connection)?;
            listed += keys.len() as u64;
        }
        Ok(listed)
    };
    Ok(Beside {
        count: 1,
        run: Box::new(run),
    })
}

/// Ask for the vertices within three edges of one: a million edges; count answers.
pub fn three_hops(running: &Running<'_>) -> Result<Beside> {
    let (address, vertices) = (running.fondaco()?.front().resp(), vertices(running));
    let run = move |seed, stop: &AtomicBool| {
        let mut random = Rng::with_seed(seed);
        let mut connection = connect(address)?;
        let mut answered = 0;
        while !stop.load(Relaxed) {
            let name = random.usize(..vertices);
            let query = format!("MATCH (a {{name: '{name}'}})-[:EDGE*1..3]-(b) RETURN count(DISTINCT b)");
            let answer: redis::Value = redis::cmd("GRAPH.RO_QUERY")
                .arg("social")
                .arg(query)
                .query(&mut connection)?;
            ensure!(matches!(answer, redis::Value::Array(_)), "the answer is {answer:?}");
            answered += 1;
        }
        Ok(answered)
    };
    Ok(Beside {
        count: 1,
        run: Box::new(run),
    })
}

/// Back up the store `kept` as fast as the disk allows, again and again; count backups.
pub fn backups(running: &Running<'_>) -> Result<Beside> {
    let control = running.fondaco()?.control().clone();
    let dir = running.bench.work.join("backups");
    let run = move |_, stop: &AtomicBool| {
        let mut done = 0;
        while !stop.load(Relaxed) {
            let output = dir.join(done.to_string());
            let path = output.to_str().context("a path that is not text")?;
            let backup = ["backup", "kept", "--output", path, "--bytes-per-second", "0"];
            control.command(&backup).run(PUSH_LIMIT)?;
            std::fs::remove_dir_all(&output).with_context(|| format!("could not delete {output:?}"))?;
            done += 1;
        }
        Ok(done)
    };
    Ok(Beside {
        count: 1,
        run: Box::new(run),
    })
}
