//! The limit that the benchmark compares with: a walk over compressed sparse rows in memory, one thread, no server.
//!
//! One file without dependencies (`rustc -O csr.rs`). It reads `edges.bin` of `generate.py`. Subcommands:
//!
//! - `answer EDGES VERTICES QUERIES ANSWERS`: answers each line of `queries.txt`, writes an answer a line, and prints the
//!   latencies as JSON. An answer is `count sum-of-ids` of a network or of common connections, or the distances of badges,
//!   -1 if over 3. The network of a vertex is what is one or two edges away, without the vertex.
//! - `redis EDGES VERTICES`: prints a `SADD` per vertex, for `redis-cli --pipe`.
//! - `pairs EDGES VERTICES`: prints both directions of each edge, sorted, a pair a line, for `COPY`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::time::Instant;

/// The number of times that each query is answered; every latency counts.
const ROUNDS: usize = 3;

type Failure = Box<dyn std::error::Error>;

struct Graph {
    offsets: Vec<usize>,
    targets: Vec<u32>,
}

impl Graph {
    fn load(path: &str, vertices: usize) -> io::Result<Self> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.read_to_end(&mut bytes)?;
        let number = |chunk: &[u8]| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        let pairs = || bytes.chunks_exact(8).map(|pair| (number(&pair[..4]), number(&pair[4..])));
        let mut offsets = vec![0; vertices + 1];
        for (from, to) in pairs() {
            offsets[from as usize + 1] += 1;
            offsets[to as usize + 1] += 1;
        }
        for vertex in 0..vertices {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut next = offsets.clone();
        let mut targets = vec![0; offsets[vertices]];
        for (from, to) in pairs() {
            for (one, other) in [(from, to), (to, from)] {
                targets[next[one as usize]] = other;
                next[one as usize] += 1;
            }
        }
        for vertex in 0..vertices {
            targets[offsets[vertex]..offsets[vertex + 1]].sort_unstable();
        }
        Ok(Self { offsets, targets })
    }

    fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    fn neighbours(&self, vertex: u32) -> &[u32] {
        &self.targets[self.offsets[vertex as usize]..self.offsets[vertex as usize + 1]]
    }
}

/// A set of vertices that is emptied by counting up.
struct Marks {
    stamps: Vec<u32>,
    now: u32,
}

impl Marks {
    fn clear(&mut self) {
        self.now += 1;
    }

    fn add(&mut self, vertex: u32) -> bool {
        let stamp = &mut self.stamps[vertex as usize];
        let new = *stamp != self.now;
        *stamp = self.now;
        new
    }

    fn has(&self, vertex: u32) -> bool {
        self.stamps[vertex as usize] == self.now
    }
}

fn network(graph: &Graph, marks: &mut Marks, source: u32) -> Vec<u32> {
    marks.clear();
    marks.add(source);
    let mut members = Vec::new();
    for &neighbour in graph.neighbours(source) {
        if marks.add(neighbour) {
            members.push(neighbour);
        }
    }
    for &middle in graph.neighbours(source) {
        for &neighbour in graph.neighbours(middle) {
            if marks.add(neighbour) {
                members.push(neighbour);
            }
        }
    }
    members
}

fn distances(graph: &Graph, marks: &mut Marks, source: u32, targets: &[u32]) -> Vec<i8> {
    marks.clear();
    for &neighbour in graph.neighbours(source) {
        marks.add(neighbour);
    }
    let distance = |target: u32| {
        if target == source {
            return 0;
        }
        if marks.has(target) {
            return 1;
        }
        let around = graph.neighbours(target);
        if around.iter().any(|&middle| marks.has(middle)) {
            return 2;
        }
        if around.iter().any(|&middle| graph.neighbours(middle).iter().any(|&second| marks.has(second))) {
            return 3;
        }
        -1
    };
    targets.iter().map(|&target| distance(target)).collect()
}

fn common(graph: &Graph, a: u32, b: u32) -> Vec<u32> {
    let (mut short, mut long) = (graph.neighbours(a), graph.neighbours(b));
    if short.len() > long.len() {
        std::mem::swap(&mut short, &mut long);
    }
    if short.len() * 16 < long.len() {
        return short.iter().copied().filter(|vertex| long.binary_search(vertex).is_ok()).collect();
    }
    let mut found = Vec::new();
    let (mut left, mut right) = (0, 0);
    while left < short.len() && right < long.len() {
        match short[left].cmp(&long[right]) {
            std::cmp::Ordering::Less => left += 1,
            std::cmp::Ordering::Greater => right += 1,
            std::cmp::Ordering::Equal => {
                found.push(short[left]);
                left += 1;
                right += 1;
            }
        }
    }
    found
}

fn summary(members: &[u32]) -> String {
    format!("{} {}", members.len(), members.iter().map(|&member| u64::from(member)).sum::<u64>())
}

/// Answers one query: its class, its answer, and the seconds that it took.
fn answer(graph: &Graph, marks: &mut Marks, query: &str) -> Result<(String, String, f64), Failure> {
    let mut words = query.split(' ');
    let kind = words.next().ok_or("an empty query")?;
    let class = if kind == "network" { format!("network {}", words.next().ok_or("no class")?) } else { kind.into() };
    let ids = words.map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let started = Instant::now();
    let (text, took) = match (kind, &ids[..]) {
        ("network", &[source]) => {
            let members = network(graph, marks, source);
            let took = started.elapsed();
            (summary(&members), took)
        }
        ("badges", [source, targets @ ..]) => {
            let found = distances(graph, marks, *source, targets);
            let took = started.elapsed();
            (found.iter().map(i8::to_string).collect::<Vec<_>>().join(" "), took)
        }
        ("common", &[a, b]) => {
            let members = common(graph, a, b);
            let took = started.elapsed();
            (summary(&members), took)
        }
        _ => return Err(format!("not a query: \"{query}\"").into()),
    };
    Ok((class, text, took.as_secs_f64()))
}

fn answers(graph: &Graph, loaded_s: f64, queries: &str, answers: &str) -> Result<(), Failure> {
    let mut marks = Marks { stamps: vec![0; graph.vertices()], now: 0 };
    let mut latencies = BTreeMap::<String, Vec<f64>>::new();
    let mut text = String::new();
    let queries = fs::read_to_string(queries)?;
    for round in 0..ROUNDS {
        for query in queries.lines() {
            let (class, found, took_s) = answer(graph, &mut marks, query)?;
            latencies.entry(class).or_default().push(took_s);
            if round == 0 {
                writeln!(text, "{found}")?;
            }
        }
    }
    fs::write(answers, text)?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak_kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0").trim().trim_end_matches(" kB");
    let bytes = graph.targets.len() * 4 + graph.offsets.len() * 8;
    println!("{{\"load_s\": {loaded_s}, \"bytes\": {bytes}, \"peak_rss_kib\": {peak_kib}, \"latencies_s\": {{");
    let lines: Vec<_> = latencies.iter().map(|(class, all)| format!("\"{class}\": {all:?}")).collect();
    println!("{}}}}}", lines.join(",\n"));
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let [command, edges, vertices, rest @ ..] = &arguments[..] else {
        return Err("usage: csr answer|redis|pairs EDGES VERTICES [QUERIES ANSWERS]".into());
    };
    let started = Instant::now();
    let graph = Graph::load(edges, vertices.parse()?)?;
    let loaded_s = started.elapsed().as_secs_f64();
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    match (*command, rest) {
        ("answer", [queries, to]) => answers(&graph, loaded_s, queries, to)?,
        ("redis", []) => {
            for vertex in 0..graph.vertices() as u32 {
                let neighbours = graph.neighbours(vertex);
                if neighbours.is_empty() {
                    continue;
                }
                let key = format!("n:{vertex}");
                write!(out, "*{}\r\n$4\r\nSADD\r\n${}\r\n{key}\r\n", neighbours.len() + 2, key.len())?;
                for neighbour in neighbours {
                    let member = neighbour.to_string();
                    write!(out, "${}\r\n{member}\r\n", member.len())?;
                }
            }
        }
        ("pairs", []) => {
            for vertex in 0..graph.vertices() as u32 {
                for neighbour in graph.neighbours(vertex) {
                    writeln!(out, "{vertex}\t{neighbour}")?;
                }
            }
        }
        _ => return Err(format!("unknown subcommand \"{command}\"").into()),
    }
    out.flush()?;
    Ok(())
}
