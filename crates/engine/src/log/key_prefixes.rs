//! Prefixes of keys as numbers, and search among sorted prefixes. The numbers are contiguous in memory, while the keys
//! are not. The keys of a store begin with their hashes, so their prefixes are evenly distributed, and an interpolation
//! search can guess the position.

/// The first 16 bytes of a key as a number with the same order; shorter keys are padded with zeros.
pub(super) type Head = u128;

/// The head of a key.
pub(super) fn head_of(key: &[u8]) -> Head {
    let mut bytes = [0; 16];
    let length = key.len().min(bytes.len());
    bytes[..length].copy_from_slice(&key[..length]);
    Head::from_be_bytes(bytes)
}

/// The index of the first head that is not less than `head`. The closer the guess, the fewer heads are read.
pub(super) fn lower_bound(heads: &[Head], guess: usize, head: Head) -> usize {
    let guess = guess.min(heads.len());
    let mut step = 1;
    let (mut from, mut to) = (guess, guess);
    if heads.get(guess).is_some_and(|other| *other < head) {
        while heads.get(to).is_some_and(|other| *other < head) {
            from = to + 1;
            to += step;
            step *= 2;
        }
        to = to.min(heads.len());
    } else {
        while from > 0 && heads[from - 1] >= head {
            to = from - 1;
            from = from.saturating_sub(step);
            step *= 2;
        }
    }
    from + heads[from..to].partition_point(|other| *other < head)
}

/// The approximate index of a head among `count` heads that are evenly distributed between `lower` and `upper`.
pub(super) fn interpolate(head: Head, lower: Head, upper: Head, count: usize) -> usize {
    let (above, all) = (head.saturating_sub(lower), upper.saturating_sub(lower));
    // Keeps the upper bits of both, so that the product with a small number fits into 64 bits.
    let shift = (Head::BITS - all.leading_zeros()).saturating_sub(44);
    let (above, all) = ((above >> shift) as u64, (all >> shift) as u64);
    (above.min(all) * count as u64 / all.max(1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_found_whatever_the_guess() {
        let heads: Vec<Head> = (0..70).map(|number| number / 3 * 2).collect();
        for length in [0, 1, 2, 5, heads.len()] {
            let heads = &heads[..length];
            for head in 0..50 {
                let expected = heads.partition_point(|other| *other < head);
                for guess in 0..=length + 1 {
                    assert_eq!(lower_bound(heads, guess, head), expected, "{head} from {guess}");
                }
            }
        }
        assert_eq!(interpolate(0, 0, Head::MAX, 100), 0);
        assert_eq!(interpolate(Head::MAX / 2, 0, Head::MAX, 100), 49);
        assert_eq!(interpolate(Head::MAX, 5, 6, 100), 100);
        assert_eq!(interpolate(7, 7, 7, 100), 0);
    }
}
