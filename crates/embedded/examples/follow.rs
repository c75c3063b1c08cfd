//! Follows a store of a cluster, and looks up the keys that it reads from the standard input.
//!
//! ```text
//! cargo run -p fondaco-embedded --example follow -- 127.0.0.1:6580 cities /var/lib/app/cities [BYTES_PER_SECOND]
//! ```
//!
//! It prints each swap, and for each key the version and the value.

use std::error::Error;
use std::io::{BufRead, stdin};
use std::sync::Arc;

use fondaco_embedded::{Endpoint, FollowOptions, Reader};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(http), Some(store), Some(directory)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: follow HOST:PORT STORE DIRECTORY [BYTES_PER_SECOND]".into());
    };
    let mut options = FollowOptions::new(Endpoint::of_http(http), store.parse()?, directory);
    options.rate_limit_bytes_per_second = arguments.next().map(|rate| rate.parse()).transpose()?;
    options.on_swap = Some(Arc::new(|swap| println!("swapped to {}", swap.to)));
    let reader = Reader::follow(options)?;
    if let Some(version) = reader.version() {
        println!("opened {version}");
    }
    for key in stdin().lock().lines() {
        let snapshot = match reader.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                println!("{error}");
                continue;
            }
        };
        let value = snapshot.get_owned(key?)?;
        let value = value.as_deref().map_or("(absent)".into(), String::from_utf8_lossy);
        println!("{}: {value}", snapshot.version().map_or(0, |version| version.get()));
    }
    Ok(())
}
