//! The figures of docs/decisions/0020-ids.md: `cargo run --release -p fondaco-ids --example measure`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bitpacking::{BitPacker, BitPacker4x};
use fondaco_ids::{Budget, IdSet, encode, intersection};
use roaring::RoaringTreemap;

mod merges;

/// The sizes of the lists of a graph, whose degrees follow a power law.
const SIZES: [usize; 5] = [1, 10, 100, 1000, 30_000];
/// Sets of each size, so that no branch is predicted because the set was seen before: as many as have this number of
/// ids together.
const IDS_OF_A_SIZE: usize = 60_000;
const SETS_MAX: usize = 100;

/// Where ids come from.
#[derive(Clone, Copy)]
enum Ids {
    Uniform(u64),
    /// Runs of some twenty neighbours with small gaps, as of ids that were given in the order of time.
    Clustered(u64),
}

impl Ids {
    const ALL: [(&'static str, Ids); 4] = [
        ("10⁶", Ids::Uniform(1_000_000)),
        ("10⁹", Ids::Uniform(1_000_000_000)),
        ("10⁹ in clusters", Ids::Clustered(1_000_000_000)),
        ("2⁶³", Ids::Uniform(1 << 63)),
    ];

    fn set(self, length: usize, random: &mut fastrand::Rng) -> Vec<u64> {
        let mut ids = std::collections::BTreeSet::new();
        while ids.len() < length {
            match self {
                Ids::Uniform(range) => {
                    ids.insert(random.u64(0..range));
                }
                Ids::Clustered(range) => {
                    let mut id = random.u64(0..range - 200);
                    for _ in 0..random.usize(1..40).min(length - ids.len()) {
                        ids.insert(id);
                        id += random.u64(1..5);
                    }
                }
            }
        }
        ids.into_iter().collect()
    }
}

/// One set in both encodings, and as Roaring has it in memory.
struct Sample {
    ids: Vec<u64>,
    ours: Vec<u8>,
    roaring: Vec<u8>,
    treemap: RoaringTreemap,
}

impl Sample {
    fn new(ids: Vec<u64>) -> Self {
        let ours = encode(&ids).expect("ascending");
        let mut treemap = RoaringTreemap::from_sorted_iter(ids.iter().copied()).expect("ascending");
        treemap.optimize();
        let mut roaring = Vec::new();
        treemap.serialize_into(&mut roaring).expect("into memory");
        Self {
            ids,
            ours,
            roaring,
            treemap,
        }
    }

    fn view(&self) -> IdSet<'_> {
        IdSet::open(&self.ours).expect("as it was written")
    }

    fn deserialized(&self) -> RoaringTreemap {
        RoaringTreemap::deserialize_unchecked_from(&self.roaring[..]).expect("as it was written")
    }
}

fn samples(from: Ids, length: usize, random: &mut fastrand::Rng) -> Vec<Sample> {
    let count = (IDS_OF_A_SIZE / length).clamp(2, SETS_MAX);
    (0..count).map(|_| Sample::new(from.set(length, random))).collect()
}

/// Nanoseconds for one part of some work: the best of several rounds, since other work only adds to it.
fn nanoseconds(parts: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let (start, mut runs) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(3) {
            work();
            runs += 1;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (runs * parts) as f64);
    }
    best
}

fn sizes_and_decoding(random: &mut fastrand::Rng) {
    println!(
        "\n| ids in | ids a set | bytes an id | Roaring | decode, ns an id | Roaring | parse, ns an id | Roaring |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, from) in Ids::ALL {
        for length in SIZES {
            let samples = samples(from, length, random);
            let ids = samples.len() * length;
            let bytes = |bytes: fn(&Sample) -> usize| samples.iter().map(bytes).sum::<usize>() as f64 / ids as f64;
            let mut out = Vec::with_capacity(length);
            let ours = nanoseconds(ids, || {
                for sample in &samples {
                    out.clear();
                    sample.view().decode_into(&mut out);
                    black_box(&out);
                }
            });
            let roaring = nanoseconds(ids, || {
                for sample in &samples {
                    out.clear();
                    out.extend(sample.deserialized().iter());
                    black_box(&out);
                }
            });
            let parse = nanoseconds(ids, || {
                for sample in &samples {
                    black_box(IdSet::parse(&sample.ours).is_ok());
                }
            });
            let checked = nanoseconds(ids, || {
                for sample in &samples {
                    black_box(RoaringTreemap::deserialize_from(&sample.roaring[..]).is_ok());
                }
            });
            println!(
                "| {name} | {length} | {:.2} | {:.2} | {ours:.2} | {roaring:.2} | {parse:.2} | {checked:.2} |",
                bytes(|sample| sample.ours.len()),
                bytes(|sample| sample.roaring.len()),
            );
        }
    }
}

/// Each set with the next one.
fn pairs<'a>(a: &'a [Sample], b: &'a [Sample]) -> impl Iterator<Item = (&'a Sample, &'a Sample)> {
    (0..a.len().max(b.len())).map(|index| (&a[index % a.len()], &b[(index + 1) % b.len()]))
}

fn look_ups(random: &mut fastrand::Rng) {
    println!("\n| ids in | sets of | and of | intersection, µs | Roaring, from bytes | Roaring, in memory |");
    println!("|---|---|---|---|---|---|");
    for (name, from) in Ids::ALL {
        for (small, large) in [(10, 30_000), (100, 1000), (100, 30_000), (1000, 1000), (30_000, 30_000)] {
            let (a, b) = (samples(from, small, random), samples(from, large, random));
            let count = pairs(&a, &b).count() * 1000;
            let ours = nanoseconds(count, || {
                for (a, b) in pairs(&a, &b) {
                    let budget = &mut Budget::of_ids(usize::MAX);
                    let _ = black_box(intersection(&[a.view(), b.view()], budget));
                }
            });
            let from_bytes = nanoseconds(count, || {
                for (a, b) in pairs(&a, &b) {
                    black_box((a.deserialized() & b.deserialized()).iter().collect::<Vec<u64>>());
                }
            });
            let in_memory = nanoseconds(count, || {
                for (a, b) in pairs(&a, &b) {
                    black_box((&a.treemap & &b.treemap).iter().collect::<Vec<u64>>());
                }
            });
            println!("| {name} | {small} | {large} | {ours:.2} | {from_bytes:.2} | {in_memory:.2} |");
        }
    }
    println!("\n| ids in | ids | contains, ns | Roaring, from bytes | Roaring, in memory |");
    println!("|---|---|---|---|---|");
    for (name, from) in Ids::ALL {
        for length in [100, 30_000] {
            let samples = samples(from, length, random);
            let probes: Vec<u64> = samples
                .iter()
                .map(|sample| sample.ids[random.usize(0..length)] + 1)
                .collect();
            let of_all = |contains: &dyn Fn(&Sample, u64) -> bool| {
                nanoseconds(samples.len(), || {
                    for (sample, &probe) in samples.iter().zip(&probes) {
                        black_box(contains(sample, probe));
                    }
                })
            };
            let ours = of_all(&|sample, probe| sample.view().contains(probe));
            let from_bytes = of_all(&|sample, probe| sample.deserialized().contains(probe));
            let in_memory = of_all(&|sample, probe| sample.treemap.contains(probe));
            println!("| {name} | {length} | {ours:.0} | {from_bytes:.0} | {in_memory:.0} |");
        }
    }
}

/// The crate `bitpacking`, which has vector instructions and ids of 32 bits.
fn vector_instructions(random: &mut fastrand::Rng) {
    println!("\n| ids in | decode, ns an id | `bitpacking`, ids of 32 bits | … widened to 64 |\n|---|---|---|---|");
    let packer = BitPacker4x::new();
    for (name, from) in &Ids::ALL[..3] {
        let ids = from.set(128 * 256, random);
        let bytes = encode(&ids).expect("ascending");
        let set = IdSet::open(&bytes).expect("as it was written");
        let (mut packed, mut initial) = (Vec::new(), None);
        for block in ids.chunks(128) {
            let block: Vec<u32> = block.iter().map(|&id| id as u32).collect();
            let bits = packer.num_bits_strictly_sorted(initial, &block);
            let mut out = vec![0; 512];
            let length = packer.compress_strictly_sorted(initial, &block, &mut out, bits);
            out.truncate(length);
            packed.push((initial, bits, out));
            initial = block.last().copied();
        }
        let mut out = Vec::with_capacity(ids.len());
        let ours = nanoseconds(ids.len(), || {
            out.clear();
            set.decode_into(&mut out);
            black_box(&out);
        });
        let mut block_ids = [0; 128];
        let narrow = nanoseconds(ids.len(), || {
            for (initial, bits, block) in &packed {
                packer.decompress_strictly_sorted(*initial, block, &mut block_ids, *bits);
                black_box(&block_ids);
            }
        });
        let wide = nanoseconds(ids.len(), || {
            out.clear();
            for (initial, bits, block) in &packed {
                packer.decompress_strictly_sorted(*initial, block, &mut block_ids, *bits);
                out.extend(block_ids.iter().map(|&id| u64::from(id)));
            }
            black_box(&out);
        });
        println!("| {name} | {ours:.2} | {narrow:.2} | {wide:.2} |");
    }
}

fn main() {
    let mut random = fastrand::Rng::with_seed(20);
    sizes_and_decoding(&mut random);
    look_ups(&mut random);
    vector_instructions(&mut random);
    merges::measure(&mut random);
}
