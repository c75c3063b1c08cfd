//! Queries over the sets of many keys, in two halves: what each part of the keys is asked for, and how the answers of all
//! parts become the answer.
//!
//! The answer is always that over all keys together, however they are divided.

use std::fmt;
use std::sync::Arc;

use crate::bits::as_set;
use crate::counted::Multiplicity;
use crate::merge::{alone, part_of_union, union_of_parts};
use crate::{
    Budget, IdSet, IdsError, difference, encode, encode_multiplicities, intersection, intersects, membership,
    merge_multiplicities, multiplicities, parse_multiplicities, top,
};

/// A query over the sets of several keys. A key without a value has the empty set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetQuery {
    /// The ids in any set.
    Union,
    /// The ids in all sets.
    Intersection,
    /// The ids of the first set that are in no other one.
    Difference,
    /// Whether there is an id that is in all sets.
    Intersects,
    /// The number of ids of each set.
    Counts,
    /// The ids that are in the most sets, this many of them.
    Top(usize),
    /// For each set, which of these ids are in it.
    Contains(Arc<[u64]>),
    /// The keys are pairs with the same hash tag: the ids that are in both sets of any pair.
    Pairs,
}

/// The answer to a [`SetQuery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetAnswer {
    /// Ids in ascending order.
    Ids(Vec<u64>),
    /// Yes or no.
    Flag(bool),
    /// A number for each key.
    Counts(Vec<u64>),
    /// Ids by the number of sets that they are in, descending.
    Top(Vec<Multiplicity>),
    /// For each key, one flag for each candidate.
    Contains(Vec<Vec<bool>>),
}

/// The computation over a part of the keys, for instance the keys of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Computation {
    /// The union of the part's sets.
    Union,
    /// The intersection of the part's sets.
    Intersection,
    /// The ids of the part's first set that are in no other set of the part.
    Difference,
    /// All ids of the part's sets, each with the number of sets that it is in.
    Multiplicities,
    /// The number of ids of each set.
    Counts,
    /// For each set, which of these ids are in it.
    Contains(Arc<[u64]>),
    /// The intersection of each pair of sets, in the place of the first.
    Pairs,
    /// Not over sets: those values that are wanted, by a selection in the encoding of crate `graph`, which carries it out.
    Select(Arc<[u8]>),
    /// Not over sets: fields of values, or scores over them, by a query in the encoding of crate `schema`, which carries it out.
    Fields(Arc<[u8]>),
}

/// The answer of one part: an element for each of its keys. A computation that [merges](Computation::merges) its sets has
/// the result in the first, and nothing in the others.
pub type Partial = Vec<Option<Vec<u8>>>;

impl Computation {
    /// Its name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Union => "union",
            Self::Intersection => "intersection",
            Self::Difference => "difference",
            Self::Multiplicities => "multiplicities",
            Self::Counts => "counts",
            Self::Contains(_) => "contains",
            Self::Pairs => "pairs",
            Self::Select(_) => "select",
            Self::Fields(_) => "fields",
        }
    }

    /// Its parameter in messages: the candidates in their order, 8 bytes each, little-endian; a selection; a query over fields; or nothing.
    pub fn parameter(&self) -> Vec<u8> {
        match self {
            Self::Contains(candidates) => candidates.iter().flat_map(|id| id.to_le_bytes()).collect(),
            Self::Select(parameter) | Self::Fields(parameter) => parameter.to_vec(),
            _ => Vec::new(),
        }
    }

    /// The computation of a message.
    ///
    /// # Errors
    /// An unknown name, or a parameter that is not what the name wants.
    pub fn parse(name: &[u8], parameter: &[u8]) -> Result<Self, InvalidComputation> {
        let computation = match name {
            b"union" => Self::Union,
            b"intersection" => Self::Intersection,
            b"difference" => Self::Difference,
            b"multiplicities" => Self::Multiplicities,
            b"counts" => Self::Counts,
            b"pairs" => Self::Pairs,
            b"select" => return Ok(Self::Select(parameter.into())),
            b"fields" => return Ok(Self::Fields(parameter.into())),
            b"contains" => {
                let (ids, rest) = parameter.as_chunks::<8>();
                return match rest.is_empty() {
                    true => Ok(Self::Contains(ids.iter().map(|&id| u64::from_le_bytes(id)).collect())),
                    false => Err(InvalidComputation(name.to_vec())),
                };
            }
            _ => return Err(InvalidComputation(name.to_vec())),
        };
        match parameter.is_empty() {
            true => Ok(computation),
            false => Err(InvalidComputation(name.to_vec())),
        }
    }

    /// The computation over one part, which depends on whether it begins with the first key of the query.
    pub fn of_part(&self, has_first: bool) -> &Self {
        match self {
            Self::Difference if !has_first => &Self::Union,
            same => same,
        }
    }

    /// Whether one result stands for all keys of the part.
    pub fn merges(&self) -> bool {
        match self {
            Self::Union | Self::Intersection | Self::Difference | Self::Multiplicities => true,
            Self::Counts | Self::Contains(_) | Self::Pairs | Self::Select(_) | Self::Fields(_) => false,
        }
    }

    /// Carries it out over the sets of the part's keys, in their order; `None` for a key without a value.
    ///
    /// # Errors
    /// More ids than the budget allows, or the caller stopped it.
    pub fn apply(&self, sets: &[Option<IdSet<'_>>], budget: &mut Budget<'_>) -> Result<Partial, IdsError> {
        self.apply_in(sets, false, budget)
    }

    /// Carries it out like [`apply`](Self::apply), for a reader of this release that passes the result to [`SetQuery::merge`]: the
    /// union of dense sets is bits in the place of a set, which are faster to write and to merge.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn apply_for_merge(&self, sets: &[Option<IdSet<'_>>], budget: &mut Budget<'_>) -> Result<Partial, IdsError> {
        self.apply_in(sets, true, budget)
    }

    fn apply_in(
        &self,
        sets: &[Option<IdSet<'_>>],
        may_be_bits: bool,
        budget: &mut Budget<'_>,
    ) -> Result<Partial, IdsError> {
        let present: Vec<IdSet<'_>> = sets.iter().flatten().copied().collect();
        let merged = match self {
            Self::Union => part_of_union(&present, may_be_bits, budget)?,
            Self::Intersection if present.len() < sets.len() => encode(&[])?,
            Self::Intersection => match present[..] {
                [one] => alone(one, budget)?,
                _ => encode(&intersection(&present, budget)?)?,
            },
            Self::Difference => encode(&match (sets.first(), &present[..]) {
                (Some(Some(_)), [first, others @ ..]) => difference(*first, others, budget)?,
                _ => Vec::new(),
            })?,
            Self::Multiplicities => encode_multiplicities(&multiplicities(&present, budget)?)?,
            Self::Counts => {
                let count = |set: &Option<IdSet<'_>>| set.map_or(0, |set| set.len());
                return Ok(sets
                    .iter()
                    .map(|set| Some(count(set).to_string().into_bytes()))
                    .collect());
            }
            Self::Pairs => return pairs(sets, budget),
            Self::Select(_) | Self::Fields(_) => return Err(IdsError::NotOverSets),
            Self::Contains(candidates) => {
                let flags = |set: &Option<IdSet<'_>>| -> Result<Option<Vec<u8>>, IdsError> {
                    let flags = match set {
                        Some(set) => membership(*set, candidates, budget)?,
                        None => {
                            budget.check_length(candidates.len())?;
                            budget.spend(candidates.len())?;
                            vec![false; candidates.len()]
                        }
                    };
                    Ok(Some(flags.into_iter().map(u8::from).collect()))
                };
                return sets.iter().map(flags).collect();
            }
        };
        let mut partial = vec![None; sets.len()];
        if let Some(first) = partial.first_mut() {
            *first = Some(merged);
        }
        Ok(partial)
    }
}

/// A message asks for something that is no computation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidComputation(Vec<u8>);

impl fmt::Display for InvalidComputation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.0);
        write!(
            f,
            "unknown computation {name:?}, or an invalid parameter of it: use a matching release"
        )
    }
}

impl std::error::Error for InvalidComputation {}

impl SetQuery {
    /// The computation over all keys, which may be divided into parts in any way: see [`Computation::of_part`].
    pub fn computation(&self) -> Computation {
        match self {
            Self::Union => Computation::Union,
            Self::Intersection | Self::Intersects => Computation::Intersection,
            Self::Difference => Computation::Difference,
            Self::Counts => Computation::Counts,
            Self::Top(_) => Computation::Multiplicities,
            Self::Contains(candidates) => Computation::Contains(Arc::clone(candidates)),
            Self::Pairs => Computation::Pairs,
        }
    }

    /// The answer, from what was computed over the parts: an element for each key, as its part has it.
    ///
    /// # Errors
    /// A malformed element, more ids than the budget allows, or the caller stopped it.
    pub fn merge<B: AsRef<[u8]>>(
        &self,
        elements: &[Option<B>],
        budget: &mut Budget<'_>,
    ) -> Result<SetAnswer, IdsError> {
        let present = || elements.iter().flatten().map(AsRef::as_ref);
        // They were encoded for this answer, here or by a node. So only their heads are checked: `parse` takes several times
        // as long as the merge.
        let sets = || present().map(IdSet::open).collect::<Result<Vec<_>, _>>();
        Ok(match self {
            Self::Union | Self::Pairs => SetAnswer::Ids(union_of_parts(present(), budget)?),
            Self::Intersection => SetAnswer::Ids(intersection(&sets()?, budget)?),
            Self::Intersects => SetAnswer::Flag(match sets()?[..] {
                [one] => !one.is_empty(),
                [one, other] => intersects(one, other, budget)?,
                ref all => !intersection(all, budget)?.is_empty(),
            }),
            Self::Difference => {
                let parts = present().map(as_set).collect::<Result<Vec<_>, _>>()?;
                let sets = parts.iter().map(|part| IdSet::open(part));
                let sets = sets.collect::<Result<Vec<_>, _>>()?;
                // The first key is the first of its part, and has that part's result.
                SetAnswer::Ids(match (elements.first(), &sets[..]) {
                    (Some(Some(_)), [first, others @ ..]) => difference(*first, others, budget)?,
                    _ => Vec::new(),
                })
            }
            Self::Counts => {
                let count = |text: &[u8]| str::from_utf8(text).ok()?.parse().ok();
                let counts = present().map(|text| count(text).ok_or_else(not_a_number));
                SetAnswer::Counts(counts.collect::<Result<_, _>>()?)
            }
            Self::Top(length) => {
                let parts = present().map(parse_multiplicities).collect::<Result<Vec<_>, _>>()?;
                SetAnswer::Top(top(merge_multiplicities(&parts, budget)?, *length))
            }
            Self::Contains(_) => {
                let flags = |bytes: &[u8]| bytes.iter().map(|&flag| flag != 0).collect();
                SetAnswer::Contains(present().map(flags).collect())
            }
        })
    }
}

fn pairs(sets: &[Option<IdSet<'_>>], budget: &mut Budget<'_>) -> Result<Partial, IdsError> {
    let mut partial = vec![None; sets.len()];
    for (pair, result) in sets.chunks(2).zip(partial.chunks_mut(2)) {
        if let [Some(one), Some(other)] = pair {
            result[0] = Some(encode(&intersection(&[*one, *other], budget)?)?);
        }
    }
    Ok(partial)
}

fn not_a_number() -> IdsError {
    IdsError::invalid(0, "a number of ids is expected")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    type Sets = Vec<Option<BTreeSet<u64>>>;

    fn sets() -> impl Strategy<Value = Sets> {
        vec(proptest::option::weighted(0.9, btree_set(0..200_u64, 0..60)), 1..12)
    }

    fn query() -> impl Strategy<Value = SetQuery> {
        prop_oneof![
            Just(SetQuery::Union),
            Just(SetQuery::Intersection),
            Just(SetQuery::Difference),
            Just(SetQuery::Intersects),
            Just(SetQuery::Counts),
            (0..20_usize).prop_map(SetQuery::Top),
            vec(0..250_u64, 0..20).prop_map(|ids| SetQuery::Contains(ids.into())),
            Just(SetQuery::Pairs),
        ]
    }

    /// The answer by the book.
    fn expected(query: &SetQuery, sets: &Sets) -> SetAnswer {
        let sets: Vec<BTreeSet<u64>> = sets.iter().map(|set| set.clone().unwrap_or_default()).collect();
        let all: BTreeSet<u64> = sets.iter().flatten().copied().collect();
        let count = |id: u64| sets.iter().filter(|set| set.contains(&id)).count();
        let common = || all.iter().copied().filter(|&id| count(id) == sets.len());
        match query {
            SetQuery::Union => SetAnswer::Ids(all.into_iter().collect()),
            SetQuery::Intersection => SetAnswer::Ids(common().collect()),
            SetQuery::Intersects => SetAnswer::Flag(common().next().is_some()),
            SetQuery::Difference => {
                let others: BTreeSet<u64> = sets[1..].iter().flatten().copied().collect();
                SetAnswer::Ids(sets[0].difference(&others).copied().collect())
            }
            SetQuery::Counts => SetAnswer::Counts(sets.iter().map(|set| set.len() as u64).collect()),
            SetQuery::Top(length) => {
                let counted = all.iter().map(|&id| Multiplicity {
                    id,
                    count: count(id) as u64,
                });
                let mut counted: Vec<Multiplicity> = counted.collect();
                counted.sort_by_key(|one| (std::cmp::Reverse(one.count), one.id));
                counted.truncate(*length);
                SetAnswer::Top(counted)
            }
            SetQuery::Pairs => {
                let pairs = sets.as_chunks::<2>().0.iter();
                let common: BTreeSet<u64> = pairs.flat_map(|[one, other]| one & other).collect();
                SetAnswer::Ids(common.into_iter().collect())
            }
            SetQuery::Contains(ids) => {
                let flags = |set: &BTreeSet<u64>| ids.iter().map(|id| set.contains(id)).collect();
                SetAnswer::Contains(sets.iter().map(flags).collect())
            }
        }
    }

    proptest! {
        #[test]
        fn partial_results_merge_to_the_result_over_all(
            sets in sets(),
            query in query(),
            parts in vec(0..4_usize, 12),
            reads_bits in any::<bool>(),
        ) {
            let encoded: Vec<Option<Vec<u8>>> = sets
                .iter()
                .map(|set| set.as_ref().map(|set| encode(&set.iter().copied().collect::<Vec<_>>()).unwrap()))
                .collect();
            let mut elements: Vec<Option<Vec<u8>>> = vec![None; sets.len()];
            for part in 0..4 {
                // Both keys of a pair are in one part.
                let part_of = |key: usize| parts[if query == SetQuery::Pairs { key & !1 } else { key }];
                let keys: Vec<usize> = (0..sets.len()).filter(|&key| part_of(key) == part).collect();
                let computation = query.computation();
                let computation = computation.of_part(keys.first() == Some(&0));
                let sent = Computation::parse(computation.name().as_bytes(), &computation.parameter()).unwrap();
                prop_assert_eq!(&sent, computation);
                let own: Vec<Option<IdSet<'_>>> = keys
                    .iter()
                    .map(|&key| encoded[key].as_ref().map(|bytes| IdSet::parse(bytes).unwrap()))
                    .collect();
                let budget = &mut Budget::of_ids(1000);
                let partial = match reads_bits {
                    true => sent.apply_for_merge(&own, budget),
                    false => sent.apply(&own, budget),
                };
                let partial = partial.unwrap();
                for (key, element) in keys.into_iter().zip(partial) {
                    elements[key] = element;
                }
            }
            let merged = query.merge(&elements, &mut Budget::of_ids(1000)).unwrap();
            prop_assert_eq!(merged, expected(&query, &sets));
        }
    }

    #[test]
    fn messages_that_are_no_computations_are_refused() {
        for (name, parameter) in [(&b"sum"[..], &b""[..]), (b"union", b"x"), (b"contains", b"1234567")] {
            assert!(Computation::parse(name, parameter).is_err());
        }
    }
}
