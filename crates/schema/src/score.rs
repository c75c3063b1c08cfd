//! Computations over vectors of 32-bit floats, read where they lie: little-endian, at any address.
//!
//! Sums have [`LANES`] parts, which the compiler keeps in vector registers: no `unsafe`, no choice at run time. The parts are added up
//! as 64-bit floats.

/// The parts of a sum.
const LANES: usize = 16;
/// The bytes of as many floats.
const LANES_BYTES: usize = 4 * LANES;

#[inline(always)]
fn float(bytes: [u8; 4]) -> f32 {
    f32::from_le_bytes(bytes)
}

/// The sum of `term` over both vectors, which are of one length.
#[inline(always)]
fn sum(bytes: &[u8], vector: &[f32], term: impl Fn(f32, f32) -> f32) -> f64 {
    debug_assert_eq!(bytes.len(), 4 * vector.len());
    let (chunks, bytes) = bytes.as_chunks::<LANES_BYTES>();
    let (parts, vector) = vector.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for (chunk, part) in chunks.iter().zip(parts) {
        let stored = chunk.as_chunks::<4>().0;
        for at in 0..LANES {
            lanes[at] += term(float(stored[at]), part[at]);
        }
    }
    // Not added to the lanes: the compiler would take these out of their registers, which doubles the time.
    let rest = bytes.as_chunks::<4>().0.iter().zip(vector);
    let rest: f64 = rest
        .map(|(stored, given)| f64::from(term(float(*stored), *given)))
        .sum();
    rest + lanes.into_iter().map(f64::from).sum::<f64>()
}

/// The dot product of a stored vector and one of the same length.
pub fn dot(bytes: &[u8], vector: &[f32]) -> f64 {
    sum(bytes, vector, |stored, given| stored * given)
}

/// The length of a vector: the root of the sum of its squares.
pub fn norm(vector: &[f32]) -> f64 {
    let squares = vector.iter().map(|value| f64::from(*value) * f64::from(*value));
    squares.sum::<f64>().sqrt()
}

/// The cosine of the angle between a stored vector and one of the same length, whose [`norm`] is known. `None` if one of them has no
/// direction: all its floats are 0.
pub fn cosine(bytes: &[u8], vector: &[f32], vector_norm: f64) -> Option<f64> {
    let stored_norm = sum(bytes, vector, |stored, _| stored * stored).sqrt();
    let lengths = stored_norm * vector_norm;
    (lengths > 0.0).then(|| dot(bytes, vector) / lengths)
}

/// The products of the floats of a stored vector with those of one of the same length, as they would be stored.
pub fn hadamard(bytes: &[u8], vector: &[f32]) -> Vec<u8> {
    let floats = bytes.as_chunks::<4>().0.iter().zip(vector);
    floats
        .flat_map(|(stored, given)| (float(*stored) * given).to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(vector: &[f32]) -> Vec<u8> {
        vector.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    proptest! {
        #[test]
        fn products_of_any_length_are_those_of_64_bits(pairs in prop::collection::vec((-10f32..10.0, -10f32..10.0), 0..200), odd in any::<bool>()) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
            // At an address that no float has, too.
            let shifted = [vec![0; usize::from(odd)], stored(&a)].concat();
            let bytes = &shifted[usize::from(odd)..];
            let expected: f64 = pairs.iter().map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            prop_assert!((dot(bytes, &b) - expected).abs() < 1e-3, "{} {expected}", dot(bytes, &b));
            match cosine(bytes, &b, norm(&b)) {
                Some(cosine) => prop_assert!((cosine - expected / (norm(&a) * norm(&b))).abs() < 1e-4),
                None => prop_assert!(norm(&a) * norm(&b) == 0.0),
            }
            let products: Vec<f32> = pairs.iter().map(|(a, b)| a * b).collect();
            prop_assert_eq!(hadamard(bytes, &b), stored(&products));
        }
    }
}
