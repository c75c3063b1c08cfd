//! The world drives the real replicas: it decides when waiting writes are committed and synced, polls chores, and
//! delivers their messages.

use fondaco_client::read::Failure;
use fondaco_protocol::replica::{ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply};

use super::machine::Ask;
use super::message::{Asker, Event, Happening, Matter};
use super::replica::{Chore, Life};
use super::scenario::Flaw;
use super::world::World;

/// The timeout of a chore's request, in microseconds.
const CHORE_US: u64 = 2_000_000;

/// The durations of a commit of a shard, and of its sync, in microseconds.
const COMMIT_US: std::ops::Range<u64> = 20..1_500;
const SYNC_US: std::ops::Range<u64> = 500..8_000;

impl World {
    /// Runs the replica of a process as far as it can get now.
    pub(super) fn go_on(&mut self, process: usize) {
        if !self.processes[process].running.is_running(self.now_us) {
            return;
        }
        while let Some(chore) = self.due_chore(process) {
            self.poll(process, chore);
        }
        self.send_replies(process);
        self.wait_for_shards(process);
    }

    fn life_of(&mut self, process: usize) -> Option<&mut Life> {
        self.processes[process].replica.as_mut()?.life.as_mut()
    }

    /// The first due chore. If none is due, schedules the next one.
    fn due_chore(&mut self, process: usize) -> Option<Chore> {
        let (now_us, clock) = (self.now_us, std::sync::Arc::clone(&self.clock));
        let life = self.life_of(process)?;
        let mut next_us = u64::MAX;
        for chore in &life.chores {
            let at_us = life
                .driven
                .wakes_at(chore.number)
                .map_or(u64::MAX, |at| clock.us_of(at));
            if at_us <= now_us {
                return Some(*chore);
            }
            next_us = next_us.min(at_us);
        }
        if next_us < life.polled_at_us {
            life.polled_at_us = next_us;
            self.after_in_life(process, next_us - now_us, Event::Poll);
        }
        None
    }

    /// Polls a chore.
    fn poll(&mut self, process: usize, chore: Chore) {
        let flaw = self.scenario.flaw;
        let Some(life) = self.life_of(process) else { return };
        life.driven.poll(chore.number);
        for ask in life.outbox.take_asks() {
            let is_hint = chore.name == "handoff" && matches!(ask.request.operation, ReplicaOperation::Merge { .. });
            match is_hint && flaw == Some(Flaw::DropsHints) {
                true => (ask.answer)(ReplicaReply::Done),
                false => self.ask_for_chore(process, ask),
            }
        }
    }

    /// Sends a request of a chore to another node, with a timeout.
    fn ask_for_chore(&mut self, process: usize, ask: Ask) {
        self.last_number += 1;
        let (number, life) = (self.last_number, self.processes[process].running.life);
        if let Some(running) = self.life_of(process) {
            running.asks.insert(number, ask.answer);
        }
        let asker = Asker {
            process,
            life,
            of: Matter::Chore(number),
        };
        self.send(asker, ask.node, ask.request);
        let event = Event::ChoreEnds(number);
        self.after(CHORE_US, Happening::To { process, life, event });
    }

    /// A chore receives its reply.
    pub(super) fn chore_answered(&mut self, process: usize, number: u64, answer: Result<ReplicaReply, Failure>) {
        let answers = self.life_of(process).and_then(|life| life.asks.remove(&number));
        if let Some(tell) = answers {
            tell(answer.unwrap_or_else(|failure| {
                ReplicaReply::Error(ReplicaError::new(ReplicaErrorCode::Timeout, format!("{failure:?}")))
            }));
        }
    }

    /// The request of a chore times out.
    pub(super) fn chore_ends(&mut self, process: usize, number: u64) {
        self.chore_answered(process, number, Err(Failure::Lost("no answer".into())));
    }

    fn send_replies(&mut self, process: usize) {
        let Some(life) = self.life_of(process) else { return };
        for (asker, reply) in life.outbox.take_replies() {
            self.answer(process, asker, reply);
        }
    }

    /// Schedules the commits of shards with waiting writes.
    fn wait_for_shards(&mut self, process: usize) {
        let shards = self.life_of(process).map_or(0, |life| life.is_busy.len());
        for shard in 0..shards {
            let Some(life) = self.life_of(process) else { return };
            if life.driven.waits(shard) && !std::mem::replace(&mut life.is_busy[shard], true) {
                let after_us = self.rng.u64(COMMIT_US);
                self.after_in_life(process, after_us, Event::Commit(shard));
            }
        }
    }

    /// The scheduled poll is due: chores are polled after this.
    pub(super) fn polled(&mut self, process: usize) {
        let now_us = self.now_us;
        if let Some(life) = self.life_of(process).filter(|life| life.polled_at_us <= now_us) {
            life.polled_at_us = u64::MAX;
        }
    }

    /// A shard commits its waiting writes.
    pub(super) fn commit(&mut self, process: usize, shard: usize) {
        let Some(life) = self.life_of(process) else { return };
        match life.driven.write(shard) {
            false => life.is_busy[shard] = false,
            true => {
                let after_us = self.rng.u64(SYNC_US);
                self.after_in_life(process, after_us, Event::Sync(shard));
            }
        }
    }

    /// The committed writes of a shard are synced.
    pub(super) fn sync(&mut self, process: usize, shard: usize) {
        let Some(life) = self.life_of(process) else { return };
        life.driven.sync(shard);
        life.is_busy[shard] = false;
    }

    fn after_in_life(&mut self, process: usize, after_us: u64, event: Event) {
        let life = self.processes[process].running.life;
        self.after(after_us, Happening::To { process, life, event });
    }
}
