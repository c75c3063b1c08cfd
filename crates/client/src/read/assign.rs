//! The nodes that keys of a request are asked of: its strategy chooses among their holders.

use std::ops::Range;

use fastrand::Rng;
use fondaco_model::cluster::TopologyStore;
use smallvec::SmallVec;

use super::directory::Member;
use super::machine::Read;
use super::planner::{Candidate, Context, Lot, ManyKeys};
use super::state::Purpose;
use crate::operation::Environment;

/// The holders of some partitions that a strategy may choose among: of one partition without an allocation, unless it
/// has many.
type Candidates = SmallVec<[Candidate; 8]>;

/// For each of some keys, the index of the member to ask; `None` if no member can be asked.
type Members = SmallVec<[Option<u32>; 32]>;

/// The bits of a position among keys, and of a part, when both are packed into a number with the partition.
const POSITION_BITS: u32 = 24;
const PART_BITS: u32 = 16;

impl Read {
    /// The index of the member to ask for a key. Of the nodes not asked yet: a healthy one, not late if possible; else a
    /// late one; and, unless it is a hedge, an unhealthy one.
    pub(super) fn member_for(&self, key: u32, purpose: Purpose, env: &Environment<'_>) -> Option<u32> {
        let mut random = self.random(env);
        // A key that is left of several, as for a retry, is asked for by the rule for several.
        if let Some(strategy) = self.strategy().for_many().filter(|_| self.keys.len() > 1) {
            let members = self.assign(strategy, &[key], purpose, env.now_us, &mut random);
            return members.into_iter().next().flatten();
        }
        let store = self.store_of(self.states[key as usize].part)?;
        self.choose(key, store, purpose, env.now_us, &mut random)
    }

    /// The same for several keys, in their order.
    pub(super) fn members_for(&self, keys: &[u32], purpose: Purpose, env: &Environment<'_>) -> Members {
        let mut random = self.random(env);
        if let Some(strategy) = self.strategy().for_many() {
            return self.assign(strategy, keys, purpose, env.now_us, &mut random);
        }
        // The store of the part that the key before belongs to.
        let mut store_of = None;
        let choose = |&key: &u32| {
            let part = self.states[key as usize].part;
            let store = match store_of {
                Some((known, store)) if known == part => store,
                _ => self.store_of(part)?,
            };
            store_of = Some((part, store));
            self.choose(key, store, purpose, env.now_us, &mut random)
        };
        keys.iter().map(choose).collect()
    }

    fn choose(&self, key: u32, store: &TopologyStore, purpose: Purpose, now_us: u64, random: &mut Rng) -> Option<u32> {
        let mut candidates = Candidates::new();
        let spare = self.holders(key, store, purpose, now_us, &mut candidates);
        match &candidates[..] {
            [] => spare,
            [one] => Some(one.member),
            several => {
                let lot = Lot {
                    partition: self.states[key as usize].partition,
                    keys: &[key],
                    candidates: several,
                };
                let place = self
                    .strategy()
                    .choose(&self.keys[key as usize], &lot, &self.context(), random);
                member_at(&lot, place)
            }
        }
    }

    /// Arranges keys in lots for a strategy, and their members in the order of the keys.
    fn assign(
        &self,
        strategy: &dyn ManyKeys,
        keys: &[u32],
        purpose: Purpose,
        now_us: u64,
        random: &mut Rng,
    ) -> Members {
        let mut members = Members::from_elem(None, keys.len());
        let order = self.by_partition(keys);
        let position = |packed: &u64| (packed & ((1 << POSITION_BITS) - 1)) as usize;
        let asked = |packed: &u64| &self.states[keys[position(packed)] as usize].asked;
        let same_lot = |a: &u64, b: &u64| a >> POSITION_BITS == b >> POSITION_BITS && asked(a) == asked(b);
        let mut stores = SmallVec::<[Option<Option<&TopologyStore>>; 1]>::from_elem(None, self.parts.len());
        let (mut candidates, mut of_lots) = (Candidates::new(), Vec::with_capacity(keys.len()));
        let mut runs = Vec::with_capacity(keys.len());
        for run in order.chunk_by(same_lot) {
            let key = keys[position(&run[0])];
            let part = self.states[key as usize].part;
            let Some(store) = *stores[usize::from(part)].get_or_insert_with(|| self.store_of(part)) else {
                continue;
            };
            let (key_begin, begin) = (of_lots.len(), candidates.len());
            let spare = self.holders(key, store, purpose, now_us, &mut candidates);
            if candidates.len() == begin {
                run.iter().for_each(|packed| members[position(packed)] = spare);
                continue;
            }
            of_lots.extend(run.iter().map(|packed| keys[position(packed)]));
            runs.push((run, key_begin..of_lots.len(), begin..candidates.len()));
        }
        if runs.is_empty() {
            return members;
        }
        let lot = |(_, keys, held): &(&[u64], Range<usize>, Range<usize>)| Lot {
            partition: self.states[of_lots[keys.start] as usize].partition,
            keys: &of_lots[keys.clone()],
            candidates: &candidates[held.clone()],
        };
        let lots: Vec<Lot<'_>> = runs.iter().map(lot).collect();
        let chosen = strategy.assign(&lots, &self.context(), random);
        debug_assert_eq!(chosen.len(), of_lots.len(), "a strategy chooses for every key");
        let mut chosen = chosen.into_iter();
        for (lot, (run, ..)) in lots.iter().zip(&runs) {
            for packed in *run {
                members[position(packed)] = member_at(lot, chosen.next().unwrap_or(0) as usize);
            }
        }
        members
    }

    /// Positions in `keys`, below their partition and part, in the order of these.
    fn by_partition(&self, keys: &[u32]) -> SmallVec<[u64; 32]> {
        let pack = |(position, &key): (u64, &u32)| {
            let state = &self.states[key as usize];
            let place = u64::from(state.partition.get()) << PART_BITS | u64::from(state.part);
            place << POSITION_BITS | position
        };
        let mut order: SmallVec<[u64; 32]> = (0..).zip(keys).map(pack).collect();
        order.sort_unstable();
        order
    }

    /// Adds the nodes that a strategy may choose among for a key. Returns the node to ask if no node is added.
    fn holders(
        &self,
        key: u32,
        store: &TopologyStore,
        purpose: Purpose,
        now_us: u64,
        candidates: &mut Candidates,
    ) -> Option<u32> {
        let state = &self.states[key as usize];
        let members = self.directory.members();
        let (mut late, mut ill) = (None, None);
        let mut consider = |place: usize| {
            let member: &Member = &members[place];
            if state.asked.contains(&member.id) {
            } else if !member.is_well() {
                if ill.is_none_or(|ill: u32| !members[ill as usize].live && member.live) {
                    ill = Some(place as u32);
                }
            } else if member.resting || member.health.is_late(now_us) {
                late = late.or(Some(place as u32));
            } else {
                candidates.push(Candidate {
                    member: place as u32,
                    node: member.id,
                    group: member.group,
                    load: member.health.reported_rate(),
                    near: member.near,
                });
            }
        };
        match self.directory.first_owners(store, state.partition) {
            Some(owners) => owners.iter().for_each(|&place| consider(place as usize)),
            None => self.directory.replicas(store, state.partition).for_each(consider),
        }
        late.or(ill.filter(|_| purpose != Purpose::Hedge))
    }

    fn store_of(&self, part: u16) -> Option<&TopologyStore> {
        let name = self.parts[usize::from(part)].name.as_str();
        self.directory.store(name).map(|(_, store)| store)
    }

    fn context(&self) -> Context<'_> {
        Context {
            keys: &self.keys,
            turn: self.turn,
            fan_out: self.fan_out,
            groups: self.directory.groups(),
            members: self.directory.members().len(),
            turns: self.directory.turns(),
        }
    }

    /// The same for all plans of a request, so that its retries prefer the groups that it chose.
    fn random(&self, env: &Environment<'_>) -> Rng {
        env.steering.random(self.turn)
    }
}

/// The member at a place among the candidates of a lot.
fn member_at(lot: &Lot<'_>, place: usize) -> Option<u32> {
    debug_assert!(place < lot.candidates.len(), "a strategy chooses one of the candidates");
    let candidate = lot.candidates.get(place).or(lot.candidates.last());
    candidate.map(|candidate| candidate.member)
}
