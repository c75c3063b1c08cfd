//! Other clients, while a load is measured.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, ensure};
use fastrand::Rng;

use super::setup::vertices;
use crate::rows::calls::Beside;
use crate::rows::runner::Running;
use crate::servers::redis::connect;

/// How many clients ask the graph, each one question after the other.
const ASKING: u64 = 2;
const LONG_BYTES: usize = 15 << 20;

/// Ask for sizes of networks; count answers.
pub fn graph_questions(running: &Running<'_>) -> Result<Beside> {
    let (address, vertices) = (running.fondaco()?.front().resp(), vertices(running));
    let run = move |seed, stop: &std::sync::atomic::AtomicBool| {
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
    let run = move |_, stop: &std::sync::atomic::AtomicBool| {
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
