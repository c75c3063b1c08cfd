//! Measures how many connections to a node are worthwhile: throughput and latency of single look-ups by the number of
//! connections and of tasks that share a client, on one thread and on several.
//!
//! The nodes are small servers in this process with trivial answers, so that the client is measured: its queues, its
//! system calls, its contention.
//!
//! `cargo run --release -p fondaco-client --example connections -- [SECONDS-PER-RUN]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_client::{Client, ReadOptions};
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::{NodeId, PartitionCount};
use fondaco_protocol::WireKey;
use fondaco_resp::{Arguments, Limits, Parse, Protocol, Reply, parse_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

const NODES: usize = 2;
const VALUE: [u8; 100] = [b'v'; 100];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |seconds| seconds.parse())?;
    let period = Duration::from_secs_f64(seconds);
    let addresses = (0..NODES).map(|_| start_node()).collect::<Result<Vec<_>, _>>()?;
    let topology = Arc::new(topology(&addresses)?);
    println!(
        "{:>8} {:>12} {:>6} {:>12} {:>9} {:>9}",
        "threads", "connections", "tasks", "look-ups/s", "p50 µs", "p99 µs"
    );
    for threads in [1, 2] {
        for connections in [1, 2, 4] {
            for tasks in [1, 16, 256] {
                let runtime = runtime(threads)?;
                let run = run(Arc::clone(&topology), connections, tasks, period);
                let (rate, mut latencies) = runtime.block_on(run)?;
                latencies.sort_unstable();
                let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
                println!(
                    "{threads:>8} {connections:>12} {tasks:>6} {rate:>12.0} {:>9} {:>9}",
                    at(0.5),
                    at(0.99)
                );
            }
        }
    }
    Ok(())
}

fn runtime(threads: usize) -> std::io::Result<Runtime> {
    match threads {
        1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}

/// Look-ups per second, and the latency of each in microseconds.
async fn run(
    topology: Arc<Topology>,
    connections: usize,
    tasks: usize,
    period: Duration,
) -> Result<(f64, Vec<u32>), Box<dyn std::error::Error>> {
    let (_keep, receiver) = watch::channel(Some(topology));
    let client = Client::builder()
        .topology(receiver)
        .connections_per_node(connections)
        .connect()
        .await?;
    let connected = |client: &Client| client.stats().nodes.iter().all(|node| node.connections == connections);
    while !connected(&client) {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    let end = began + period;
    let readers = (0..tasks).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            let options = ReadOptions::default();
            let (mut latencies, mut number) = (Vec::new(), task);
            loop {
                let sent = Instant::now();
                if sent >= end {
                    return Ok::<_, fondaco_client::ClientError>(latencies);
                }
                let key = WireKey::parse(format!("s:key-{number}").into())?;
                client.read(vec![key], &options).await?;
                latencies.push(sent.elapsed().as_micros() as u32);
                number += tasks;
            }
        })
    });
    let mut latencies = Vec::new();
    for reader in readers.collect::<Vec<_>>() {
        latencies.extend(reader.await??);
    }
    Ok((latencies.len() as f64 / began.elapsed().as_secs_f64(), latencies))
}

/// Starts a node on a thread of its own, which runs as long as the process.
fn start_node() -> Result<String, Box<dyn std::error::Error>> {
    let (told, address) = oneshot::channel();
    std::thread::spawn(move || {
        let Ok(runtime) = runtime(1) else { return };
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::bind("127.0.0.1:0").await else {
                return;
            };
            let Ok(address) = listener.local_addr() else { return };
            if told.send(address.to_string()).is_err() {
                return;
            }
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    });
    Ok(address.blocking_recv()?)
}

async fn serve(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let (mut input, mut output, mut arguments) = (Vec::new(), Vec::new(), Arguments::new());
    while matches!(stream.read_buf(&mut input).await, Ok(1..)) {
        let mut start = 0;
        while let Ok(Parse::Complete { consumed }) = parse_request(&input[start..], &Limits::default(), &mut arguments)
        {
            start += consumed;
            let mut reply = Reply::new(&mut output, Protocol::Resp2);
            match arguments.len() {
                1 => reply.simple("PONG"),
                length => {
                    reply.array(length - 4);
                    (4..length).for_each(|_| reply.bulk(&VALUE));
                }
            }
        }
        input.drain(..start);
        if stream.write_all(&output).await.is_err() {
            return;
        }
        output.clear();
    }
}

fn topology(addresses: &[String]) -> Result<Topology, Box<dyn std::error::Error>> {
    let id = |number: usize| NodeId::new(number as u32 + 1).unwrap_or(NodeId::FIRST);
    let node = |(number, address): (usize, &String)| (id(number), TopologyNode::live(address, ""));
    Ok(Topology::first(
        PartitionCount::try_from(64)?,
        (0..64).map(|partition| vec![id(partition % addresses.len())]).collect(),
        addresses.iter().enumerate().map(node),
        [("s".parse()?, TopologyStore::batch(1))],
    ))
}
