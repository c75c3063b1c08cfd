//! Integer shares in proportion to weights, each between a minimum and a maximum.
//!
//! A share is the exact proportional one, rounded down or up. The choice of those that are rounded up depends on the present ones,
//! so that a share that may stay does.

/// A taker of a share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taker {
    /// Its weight: shares are proportional to it.
    pub weight: u64,
    /// Its minimum.
    pub min: u64,
    /// Its maximum.
    pub max: u64,
    /// Its present share.
    pub now: u64,
}

/// Divides `total` among the takers. The sum of their `min` must not exceed it, and the sum of their `max` must not be
/// less.
pub(super) fn shares(total: u64, takers: &[Taker]) -> Vec<u64> {
    debug_assert!(takers.iter().map(|t| t.min).sum::<u64>() <= total);
    debug_assert!(takers.iter().map(|t| t.max).sum::<u64>() >= total);
    let mut shares = vec![0; takers.len()];
    let mut open: Vec<usize> = (0..takers.len()).collect();
    let mut left = total;
    // A taker beyond a bound gets that bound, and the rest is divided again: first on the side that exceeds its bounds
    // by more in total, since the other bounds may then hold.
    loop {
        let weight: u64 = open.iter().map(|&i| takers[i].weight).sum();
        // How far its bounds move a taker, times `weight`.
        let moved = |i: usize| {
            let ideal = i128::from(left) * i128::from(takers[i].weight);
            let bound = |bound: u64| i128::from(bound) * i128::from(weight);
            ideal.clamp(bound(takers[i].min), bound(takers[i].max)) - ideal
        };
        let sum: i128 = open.iter().map(|&i| moved(i)).sum();
        let held = |i: usize| match sum {
            1.. => moved(i) > 0,
            0 => moved(i) != 0,
            _ => moved(i) < 0,
        };
        let (now_held, still_open): (Vec<usize>, Vec<usize>) = open.iter().partition(|&&i| held(i));
        if now_held.is_empty() {
            round(left, weight, takers, &open, &mut shares);
            return shares;
        }
        for &i in &now_held {
            shares[i] = if moved(i) > 0 { takers[i].min } else { takers[i].max };
        }
        left -= now_held.iter().map(|&i| shares[i]).sum::<u64>();
        open = still_open;
    }
}

/// Rounds the shares of the takers between their bounds, so that they sum to `left`.
fn round(left: u64, weight: u64, takers: &[Taker], open: &[usize], shares: &mut [u64]) {
    let exact = |i: usize| u128::from(left) * u128::from(takers[i].weight);
    for &i in open {
        shares[i] = (exact(i) / u128::from(weight)) as u64;
    }
    let missing = left - open.iter().map(|&i| shares[i]).sum::<u64>();
    let mut up: Vec<usize> = open.to_vec();
    up.retain(|&i| !exact(i).is_multiple_of(u128::from(weight)));
    up.sort_by_key(|&i| {
        let holds_more = takers[i].now > shares[i];
        (std::cmp::Reverse((holds_more, exact(i) % u128::from(weight))), i)
    });
    for &i in &up[..missing as usize] {
        shares[i] += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taker() -> impl Strategy<Value = Taker> {
        (1..9u64, 0..20u64, 0..20u64, 0..40u64).prop_map(|(weight, min, more, now)| Taker {
            weight,
            min,
            max: min + more,
            now,
        })
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_total_within_their_bounds_in_proportion(
            takers in prop::collection::vec(taker(), 1..9),
            part in 0..=100u64,
        ) {
            let min: u64 = takers.iter().map(|t| t.min).sum();
            let max: u64 = takers.iter().map(|t| t.max).sum();
            let total = min + (max - min) * part / 100;
            let shares = shares(total, &takers);
            prop_assert_eq!(shares.iter().sum::<u64>(), total);
            for (taker, &share) in takers.iter().zip(&shares) {
                prop_assert!((taker.min..=taker.max).contains(&share), "{share} of {taker:?}");
            }
            // No taker could give one to another so that both come closer to one level.
            for (giver, &gives) in takers.iter().zip(&shares).filter(|(t, s)| **s > t.min) {
                for (other, &gets) in takers.iter().zip(&shares).filter(|(t, s)| **s < t.max) {
                    prop_assert!((gives - 1) * other.weight <= (gets + 1) * giver.weight);
                }
            }
        }

        #[test]
        fn shares_that_may_stay_stay(weights in prop::collection::vec(1..9u64, 1..9), total in 0..500u64) {
            let taker = |(&weight, now)| Taker { weight, min: 0, max: total, now };
            let first: Vec<Taker> = weights.iter().zip(std::iter::repeat(0)).map(taker).collect();
            let before = shares(total, &first);
            let second: Vec<Taker> = weights.iter().zip(before.iter().copied()).map(taker).collect();
            prop_assert_eq!(shares(total, &second), before);
        }
    }
}
