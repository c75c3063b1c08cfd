//! A whole node in a few lines: `embedded_node DATA_DIR`.
//!
//! It prints where it serves RESP and HTTP, and runs until its standard input ends. The tests kill it.

use std::io::Read;
use std::time::Duration;

use fondaco_roles::{Config, Fondaco};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data_dir = std::env::args_os().nth(1).ok_or("usage: embedded_node DATA_DIR")?;
    let mut config = Config::local(data_dir, 4u32.try_into()?);
    config.resp_listen = ([127, 0, 0, 1], 0).into();
    config.http_listen = ([127, 0, 0, 1], 0).into();
    config.loops = 1;
    config.disk_reserve_bytes = 0;
    // The tests wait until deleted files are gone.
    config.keep_deleted = Duration::ZERO;

    let node = Fondaco::start(config)?;
    let resp = node.resp_addr().ok_or("a node serves RESP")?;
    println!("{resp} {}", node.http_addr());

    std::io::stdin().read_to_end(&mut Vec::new())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(node.shutdown());
    Ok(())
}
