//! As few nodes as possible.

use fastrand::Rng;
use fondaco_protocol::WireKey;

use super::{Context, Lot, ManyKeys, Strategy, key_count};

/// As few nodes as possible, by the greedy algorithm: again and again the node that holds most of the keys that are
/// left, any of them if several do.
///
/// As Wang, Conrad and Shah, "Using Set Cover to Optimize a Large-Scale Low Latency Distributed Graph". Nodes that are
/// chosen early get many more keys than those chosen late.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetCover;

impl Strategy for SetCover {
    fn choose(&self, _key: &WireKey, lot: &Lot<'_>, _context: &Context<'_>, random: &mut Rng) -> usize {
        random.usize(..lot.candidates.len())
    }

    fn for_many(&self) -> Option<&dyn ManyKeys> {
        Some(self)
    }
}

impl ManyKeys for SetCover {
    fn assign(&self, lots: &[Lot<'_>], context: &Context<'_>, random: &mut Rng) -> Vec<u32> {
        // For each member: the keys that are left and that it holds, and its lots, with its place in each.
        let mut left = vec![0; context.members];
        let mut held: Vec<Vec<(usize, u32)>> = vec![Vec::new(); context.members];
        for (at, lot) in lots.iter().enumerate() {
            for (place, candidate) in (0..).zip(lot.candidates) {
                left[candidate.member as usize] += lot.keys.len();
                held[candidate.member as usize].push((at, place));
            }
        }
        let mut taken: Vec<Option<u32>> = vec![None; lots.len()];
        let mut keys_left = key_count(lots);
        while keys_left > 0 {
            for &(at, place) in &held[most(&left, random)] {
                if taken[at].is_some() {
                    continue;
                }
                taken[at] = Some(place);
                let keys = lots[at].keys.len();
                keys_left -= keys;
                for candidate in lots[at].candidates {
                    left[candidate.member as usize] -= keys;
                }
            }
        }
        let of_lot = |(lot, place): (&Lot<'_>, Option<u32>)| std::iter::repeat_n(place.unwrap_or(0), lot.keys.len());
        lots.iter().zip(taken).flat_map(of_lot).collect()
    }
}

/// The index of the largest number; of several, any.
fn most(numbers: &[usize], random: &mut Rng) -> usize {
    let (mut most, mut ties) = (0, 0);
    for (place, &number) in numbers.iter().enumerate() {
        if ties == 0 || number > numbers[most] {
            (most, ties) = (place, 1);
        } else if number == numbers[most] {
            ties += 1;
            if random.usize(..ties) == 0 {
                most = place;
            }
        }
    }
    most
}
