//! Requests and replies in flight, with the faults of the network, and falsified by flaws.

use std::num::NonZeroU64;
use std::sync::Arc;

use fondaco_client::read::Failure;
use fondaco_model::NodeId;
use fondaco_model::versioned::{Change, VectorClock};
use fondaco_protocol::replica::{
    Held, Known, PutOver, RecordPart, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest,
};

use super::message::{Asker, Event, Happening};
use super::replica::{Replica, decode};
use super::scenario::Flaw;
use super::world::World;
use crate::kernel::Fate;

impl World {
    /// A request has arrived. The replica replies immediately, or when its write has been synced.
    pub(super) fn serve(&mut self, process: usize, asker: Asker, mut request: ReplicaRequest) {
        let flaw = self.scenario.flaw;
        if flaw == Some(Flaw::MergesByTime) {
            self.drop_older(process, &mut request);
        }
        let Some(replica) = &self.processes[process].replica else {
            return;
        };
        let Some(life) = &replica.life else { return };
        let falsify = falsified(flaw, replica.table.epoch(), &mut request);
        let outbox = Arc::clone(&life.outbox);
        life.driven
            .request(request, move |reply| outbox.reply(asker, falsify(reply)));
    }

    /// Keeps only the records to merge that are newer than the present ones.
    fn drop_older(&self, process: usize, request: &mut ReplicaRequest) {
        let ReplicaOperation::Merge { records } = &mut request.operation else {
            return;
        };
        let own = self.processes[process].replica.as_ref();
        records.retain(|pair| {
            let held = own.and_then(|replica| {
                let partition = self.store.partition_of(&pair.key, replica.table.partitions());
                replica.records(partition)
            });
            let local = held.and_then(|held| decode(held.get(&pair.key)?));
            let (Some(local), Some(theirs)) = (local, decode(&pair.record)) else {
                return true;
            };
            local.quiet_since_unix_ms() < theirs.quiet_since_unix_ms()
        });
    }

    /// Sends a request to a replica.
    pub(super) fn send(&mut self, asker: Asker, node: NodeId, request: ReplicaRequest) {
        let to = node.get() as usize - 1;
        if !self.processes[to].running.is_up {
            let failure = Failure::Unsent("connection refused".into());
            return self.fail(asker, 500, failure);
        }
        let may_double = match &request.operation {
            ReplicaOperation::Put { update, .. } => {
                self.scenario.flaw == Some(Flaw::AddsTwice) && matches!(update.change, Change::Add(_))
            }
            _ => true,
        };
        let request = Box::new(request);
        let life = self.processes[to].running.life;
        let arrives = |world: &mut Self, after_us: u64| {
            let request = request.clone();
            let event = Event::Request { asker, request };
            let process = to;
            world.after(after_us, Happening::To { process, life, event });
        };
        match self
            .network
            .fate(asker.process, to, may_double, self.now_us, &mut self.rng)
        {
            Fate::Arrives(after_us) => arrives(self, after_us),
            Fate::Doubled(first_us, second_us) => {
                arrives(self, first_us);
                arrives(self, second_us);
            }
            Fate::Breaks(after_us) => self.fail(asker, after_us, Failure::Lost("connection reset".into())),
            Fate::Vanishes => {}
        }
    }

    /// Sends a reply to the waiting process.
    pub(super) fn answer(&mut self, from: usize, asker: Asker, reply: ReplicaReply) {
        let Asker { process, life, of } = asker;
        let event = Event::Answer { of, answer: Ok(reply) };
        match self.network.fate(from, process, true, self.now_us, &mut self.rng) {
            Fate::Arrives(after_us) => self.after(after_us, Happening::To { process, life, event }),
            Fate::Doubled(first_us, second_us) => {
                let again = event.clone();
                self.after(first_us, Happening::To { process, life, event });
                self.after(
                    second_us,
                    Happening::To {
                        process,
                        life,
                        event: again,
                    },
                );
            }
            Fate::Breaks(after_us) => self.fail(asker, after_us, Failure::Lost("connection reset".into())),
            Fate::Vanishes => {}
        }
    }

    /// A process that another one waits for has ended.
    pub(super) fn connection_broke(&mut self, asker: Asker) {
        self.fail(asker, 500, Failure::Lost("connection reset".into()));
    }

    fn fail(&mut self, asker: Asker, after_us: u64, failure: Failure) {
        let Asker { process, life, of } = asker;
        let event = Event::Answer {
            of,
            answer: Err(failure),
        };
        self.after(after_us, Happening::To { process, life, event });
    }
}

/// Asks the replica on a coordinator's own node for a record in memory, which it returns immediately.
pub(super) fn serve_own(flaw: Option<Flaw>, replica: &Replica, mut request: ReplicaRequest) -> ReplicaReply {
    let falsify = falsified(flaw, replica.table.epoch(), &mut request);
    let reply = replica.ask_now(request);
    falsify(
        reply.unwrap_or_else(|| ReplicaReply::Error(ReplicaError::new(ReplicaErrorCode::Other, "it answers later"))),
    )
}

/// Falsifies a request to a replica that uses the table of this epoch, and then its reply.
fn falsified(
    flaw: Option<Flaw>,
    epoch: u64,
    request: &mut ReplicaRequest,
) -> impl FnOnce(ReplicaReply) -> ReplicaReply + Send + 'static {
    if flaw == Some(Flaw::TakesAnyTable) && request.epoch.is_some() {
        request.epoch = NonZeroU64::new(epoch);
    }
    let (mut is_context, mut same) = (false, Vec::new());
    match &mut request.operation {
        ReplicaOperation::Put { over, context, .. }
            if flaw == Some(Flaw::IgnoresClientContext) && *over == PutOver::Context =>
        {
            *context = VectorClock::new();
        }
        ReplicaOperation::Get { part, .. } => is_context = *part == RecordPart::Context,
        ReplicaOperation::GetOther { keys } => {
            same = keys.iter().map(|key| matches!(key.known, Known::Digest(_))).collect();
        }
        _ => {}
    }
    move |mut reply| {
        match (flaw, &mut reply) {
            (Some(Flaw::TellsNoContext), ReplicaReply::Records(records)) if is_context => {
                records.iter_mut().for_each(|record| *record = Ok(Held::Nothing));
            }
            (Some(Flaw::AlwaysHasTheSame), ReplicaReply::Records(records)) => {
                let told = records.iter_mut().zip(&same).filter(|(_, is_told)| **is_told);
                told.for_each(|(record, _)| *record = Ok(Held::Same));
            }
            (
                Some(Flaw::CountsWhoIsBehind),
                ReplicaReply::Hashes { is_whole, .. } | ReplicaReply::Differences { is_whole, .. },
            ) => *is_whole = true,
            _ => {}
        }
        reply
    }
}
