//! The union of many sets, in four ways.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::iter::Peekable;

use fondaco_ids::{Budget, IdSet, Iter, encode, multiplicities, union};
use roaring::{MultiOps, RoaringTreemap};

use super::{Ids, nanoseconds};

/// With a heap of the next ids of all sets.
fn with_heap(sets: &[IdSet<'_>]) -> Vec<u64> {
    let mut iterators: Vec<Peekable<Iter<'_>>> = sets.iter().map(|set| set.iter().peekable()).collect();
    let firsts = iterators.iter_mut().enumerate();
    let firsts = firsts.filter_map(|(index, ids)| ids.peek().map(|&id| Reverse((id, index))));
    let mut heap: BinaryHeap<_> = firsts.collect();
    let mut out = Vec::new();
    while let Some(mut next) = heap.peek_mut() {
        let Reverse((id, index)) = *next;
        if out.last() != Some(&id) {
            out.push(id);
        }
        iterators[index].next();
        match iterators[index].peek() {
            Some(&id) => *next = Reverse((id, index)),
            None => {
                std::collections::binary_heap::PeekMut::pop(next);
            }
        }
    }
    out
}

/// By the sort of the standard library, which merges ascending runs: no bound of memory but the length of all sets.
fn with_sort(sets: &[IdSet<'_>]) -> Vec<u64> {
    let mut out = Vec::new();
    for set in sets {
        set.decode_into(&mut out);
    }
    out.sort();
    out.dedup();
    out
}

/// The union as pairs of neighbours, then pairs of these, and so on.
fn in_pairs(sets: &[IdSet<'_>]) -> Vec<u64> {
    let decoded = sets.iter().map(|set| {
        let mut ids = Vec::new();
        set.decode_into(&mut ids);
        ids
    });
    let mut level: Vec<Vec<u64>> = decoded.collect();
    while level.len() > 1 {
        let merge = |pair: &[Vec<u64>]| match pair {
            [a, b] => merge(a, b),
            _ => pair.concat(),
        };
        level = level.chunks(2).map(merge).collect();
    }
    level.pop().unwrap_or_default()
}

fn merge(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        out.push(x.min(y));
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
    out
}

fn with_roaring(values: &[Vec<u8>]) -> Vec<u64> {
    let sets = values
        .iter()
        .map(|value| RoaringTreemap::deserialize_unchecked_from(&value[..]));
    let sets = sets.map(|set| set.expect("as it was written"));
    sets.union().iter().collect()
}

pub(super) fn measure(random: &mut fastrand::Rng) {
    println!("\nUnion, ns an id of the sets:\n");
    println!("| ids in | sets | ids a set | windows | heap | pairs | one sort | Roaring | windows, counted |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, from) in Ids::ALL {
        for (count, length) in [(2, 30_000), (20, 3000), (300, 300), (5000, 10), (5000, 100), (0, 0)] {
            // A power law: 2000 sets, few of them long.
            let lengths: Vec<usize> = match count {
                0 => (1..=2000).map(|rank| (30_000 / rank).max(1)).collect(),
                _ => vec![length; count],
            };
            let lists: Vec<Vec<u64>> = lengths.iter().map(|&length| from.set(length, random)).collect();
            let ids: usize = lengths.iter().sum();
            let values: Vec<Vec<u8>> = lists.iter().map(|ids| encode(ids).expect("ascending")).collect();
            let sets: Vec<IdSet<'_>> = values
                .iter()
                .map(|value| IdSet::open(value).expect("as it was written"))
                .collect();
            let treemaps = lists.iter().map(|ids| {
                let treemap = RoaringTreemap::from_sorted_iter(ids.iter().copied()).expect("ascending");
                let mut bytes = Vec::new();
                treemap.serialize_into(&mut bytes).expect("into memory");
                bytes
            });
            let treemaps: Vec<Vec<u8>> = treemaps.collect();
            let expected = with_heap(&sets);
            let windows = || union(&sets, &mut Budget::of_ids(usize::MAX)).unwrap_or_default();
            assert!(windows() == expected && with_sort(&sets) == expected && in_pairs(&sets) == expected);
            let time = |work: &dyn Fn() -> Vec<u64>| {
                nanoseconds(ids, || {
                    black_box(work());
                })
            };
            let counted = nanoseconds(ids, || {
                let _ = black_box(multiplicities(&sets, &mut Budget::of_ids(usize::MAX)));
            });
            println!(
                "| {name} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {counted:.1} |",
                lengths.len(),
                ids / lengths.len(),
                time(&windows),
                time(&|| with_heap(&sets)),
                time(&|| in_pairs(&sets)),
                time(&|| with_sort(&sets)),
                time(&|| with_roaring(&treemaps)),
            );
        }
    }
}
