//! Giving each partition some distinct takers, and each taker exactly its quota, with few changes.
//!
//! This is a flow from partitions to takers. Nearly all of it goes by a direct choice: the taker with the least of its
//! quota that is not yet in the list; if there are several, the one that shares the fewest lists with those in it. If
//! every taker that lacks something is in the list already, others pass theirs on, along the path that moves the fewest
//! replicas.

use std::collections::VecDeque;

/// In how many lists two takers stand together. Low and even numbers are good: when one taker is gone, many others take
/// over for it.
#[derive(Debug)]
pub(super) struct Together {
    takers: usize,
    counts: Vec<u16>,
}

impl Together {
    pub(super) fn new(takers: usize) -> Self {
        Self {
            takers,
            counts: vec![0; takers * takers],
        }
    }

    /// How often `one` shares a list with the members of a list.
    fn with(&self, list: &[usize], one: usize) -> u32 {
        let row = &self.counts[one * self.takers..][..self.takers];
        list.iter().map(|&other| u32::from(row[other])).sum()
    }

    fn join(&mut self, list: &[usize], one: usize) {
        for &other in list {
            self.counts[one * self.takers + other] += 1;
            self.counts[other * self.takers + one] += 1;
        }
    }

    fn part(&mut self, list: &[usize], one: usize) {
        for &other in list.iter().filter(|&&other| other != one) {
            self.counts[one * self.takers + other] -= 1;
            self.counts[other * self.takers + one] -= 1;
        }
    }
}

/// The input of a deal.
#[derive(Debug)]
pub(super) struct Deal<'a> {
    /// The nodes that take.
    pub takers: &'a [usize],
    /// How many lists each taker should be in, in the order of `takers`. At most the number of lists.
    pub quotas: &'a [u64],
    /// How many takers each list should have. Their sum equals that of the quotas, and they differ by at most one, so
    /// there is always a solution.
    pub demands: &'a [usize],
    /// The places that takers give up first, if they have too many. Lists in no pile come last.
    pub piles: Vec<Pile>,
}

/// Places in lists that a taker may give up. If a taker has several piles, it gives from the highest.
#[derive(Debug)]
pub(super) struct Pile {
    /// The taker that has it.
    pub taker: usize,
    /// How high it is. It sinks with each place that is given up, whether or not it consists of more.
    pub height: u64,
    /// How much a place counts: with weight 2, half as much.
    pub weight: u64,
    /// The lists, the last of them to be given up first.
    pub lists: Vec<usize>,
}

impl Pile {
    fn level(&self) -> u64 {
        (self.height << 32) / self.weight
    }
}

impl Deal<'_> {
    /// Deals, beginning with the current lists: lists may lack takers, and takers may have too many places. Adds the
    /// result to `lists`, which may contain others already.
    pub(super) fn onto(self, lists: &mut [Vec<usize>], held: Vec<Vec<usize>>, together: &mut Together) {
        let quota_of = |&taker: &usize| {
            let at = self.takers.iter().position(|&t| t == taker);
            at.map_or(0, |at| self.quotas[at])
        };
        let size = self.takers.iter().max().map_or(0, |max| max + 1);
        let mut table = Table {
            takers: self.takers,
            quotas: (0..size).map(|taker| quota_of(&taker)).collect(),
            quota_max: self.quotas.iter().copied().max().unwrap_or(0),
            loads: vec![0; size],
            others: lists,
            together,
            lists: held.clone(),
            held,
        };
        table.count();
        for (at, &demand) in self.demands.iter().enumerate() {
            while table.lists[at].len() < demand {
                table.fill(at);
            }
        }
        table.level(self.piles);
        debug_assert_eq!(table.loads, table.quotas);
        let dealt = table.lists;
        for (list, mut dealt) in lists.iter_mut().zip(dealt) {
            list.append(&mut dealt);
        }
    }
}

/// The lists while they are dealt.
struct Table<'a> {
    takers: &'a [usize],
    /// By taker.
    quotas: Vec<u64>,
    quota_max: u64,
    /// For each taker, the number of its lists.
    loads: Vec<u64>,
    /// Members of the lists that were dealt before.
    others: &'a [Vec<usize>],
    together: &'a mut Together,
    lists: Vec<Vec<usize>>,
    /// The lists before: their members should stay.
    held: Vec<Vec<usize>>,
}

impl Table<'_> {
    fn count(&mut self) {
        for (list, others) in self.lists.iter().zip(self.others) {
            for (at, &taker) in list.iter().enumerate() {
                self.loads[taker] += 1;
                self.together.join(&list[..at], taker);
                self.together.join(others, taker);
            }
        }
    }

    fn lacks(&self, taker: usize) -> bool {
        self.loads[taker] < self.quotas[taker]
    }

    fn add(&mut self, at: usize, taker: usize) {
        self.together.join(&self.lists[at], taker);
        self.together.join(&self.others[at], taker);
        self.lists[at].push(taker);
        self.loads[taker] += 1;
    }

    fn remove(&mut self, at: usize, taker: usize) {
        self.together.part(&self.lists[at], taker);
        self.together.part(&self.others[at], taker);
        self.lists[at].retain(|&t| t != taker);
        self.loads[taker] -= 1;
    }

    /// The next taker for this list: the one with the least of its quota, then the one that least often shares a list
    /// with those already there, then the next in turn.
    fn choice(&self, at: usize) -> Option<usize> {
        let turn = |index: usize| (index + self.takers.len() - at % self.takers.len()) % self.takers.len();
        let candidates = self.takers.iter().enumerate();
        let lacking = candidates.filter(|&(_, &taker)| self.lacks(taker) && !self.lists[at].contains(&taker));
        // How often each was dealt to, in rounds of the taker with the largest quota: within one round, the taker that
        // shares the fewest lists with the others may be chosen.
        let round = |taker: usize| self.loads[taker] * self.quota_max / self.quotas[taker];
        let with = |t: usize| self.together.with(&self.lists[at], t) + self.together.with(&self.others[at], t);
        let best = lacking.min_by(|&(i, &a), &(j, &b)| {
            round(a)
                .cmp(&round(b))
                .then_with(|| with(a).cmp(&with(b)))
                .then_with(|| turn(i).cmp(&turn(j)))
        });
        best.map(|(_, &taker)| taker)
    }

    /// Adds one taker to a list.
    fn fill(&mut self, at: usize) {
        match self.choice(at) {
            Some(taker) => self.add(at, taker),
            None => self.fill_by_path(at),
        }
    }

    /// Takes places from takers that have too many.
    fn level(&mut self, mut piles: Vec<Pile>) {
        let has_too_many = |table: &Self, taker: usize| table.loads[taker] > table.quotas[taker];
        piles.sort_by_key(|pile| pile.taker);
        for piles in piles.chunk_by_mut(|a, b| a.taker == b.taker) {
            let giver = piles[0].taker;
            while has_too_many(self, giver) {
                let filled = piles.iter_mut().filter(|pile| !pile.lists.is_empty());
                let Some(highest) = filled.max_by_key(|pile| pile.level()) else {
                    break;
                };
                // A taker that a list cannot give to now, it cannot give to later either: no taker begins to lack
                // something.
                while let Some(at) = highest.lists.pop() {
                    if let (true, Some(taker)) = (self.lists[at].contains(&giver), self.choice(at)) {
                        self.remove(at, giver);
                        self.add(at, taker);
                        highest.height = highest.height.saturating_sub(1);
                        break;
                    }
                }
            }
        }
        // Rarely is anything left: only if all takers that lack something are in each list of those that have too many.
        for at in 0..self.lists.len() {
            while let Some(giver) = self.lists[at].iter().copied().find(|&t| has_too_many(self, t)) {
                self.remove(at, giver);
                self.fill(at);
            }
        }
    }

    /// Adds a taker to a list; it passes on one of its other lists, and so on, until a taker that lacks something is
    /// reached. Of all such paths, takes one that moves the fewest from where they were before.
    fn fill_by_path(&mut self, start: usize) {
        let mut lists_of: Vec<Vec<usize>> = vec![Vec::new(); self.loads.len()];
        for (at, list) in self.lists.iter().enumerate() {
            list.iter().for_each(|&taker| lists_of[taker].push(at));
        }
        // The least number of moves on the path to each taker, and the list and the taker that it replaces there.
        let mut costs = vec![usize::MAX; self.loads.len()];
        let mut replaces: Vec<Option<(usize, usize)>> = vec![None; self.loads.len()];
        let mut queue = VecDeque::new();
        for &taker in self.takers.iter().filter(|&taker| !self.lists[start].contains(taker)) {
            costs[taker] = 0;
            queue.push_back((0, taker));
        }
        let mut far: Vec<usize> = self.takers.iter().copied().filter(|&t| costs[t] > 0).collect();
        while let Some((cost, taker)) = queue.pop_front() {
            if cost > costs[taker] {
                continue;
            }
            if self.lacks(taker) {
                self.pass_on(start, taker, &replaces);
                return;
            }
            for &at in &lists_of[taker] {
                let step = usize::from(self.held[at].contains(&taker));
                for &next in &far {
                    if cost + step < costs[next] && !self.lists[at].contains(&next) {
                        costs[next] = cost + step;
                        replaces[next] = Some((at, taker));
                        match step {
                            0 => queue.push_front((cost, next)),
                            _ => queue.push_back((cost + step, next)),
                        }
                    }
                }
            }
            far.retain(|&t| costs[t] > 0);
        }
        unreachable!("quotas of at most one for each list, and demands that differ by one, can always be met");
    }

    /// Goes back along a path from the taker that lacks something. No list is on it twice: its first occurrence could
    /// have led to the target of the second, at no more cost.
    fn pass_on(&mut self, start: usize, last: usize, replaces: &[Option<(usize, usize)>]) {
        let mut taker = last;
        while let Some((at, giver)) = replaces[taker] {
            self.remove(at, giver);
            self.add(at, taker);
            taker = giver;
        }
        self.add(start, taker);
    }
}
