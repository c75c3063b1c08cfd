//! Requests and answers on their way: what the network makes of them, and when a replica may answer.

use fondaco_client::read::Failure;
use fondaco_model::NodeId;
use fondaco_model::versioned::{Change, Durability};
use fondaco_protocol::replica::{ReplicaOperation, ReplicaReply, ReplicaRequest};

use super::message::{Asker, Event, Happening};
use super::network::Fate;
use super::scenario::Flaw;
use super::world::World;

impl World {
    /// A request has arrived. It is answered at once, or when what it wrote is on the disk.
    pub(super) fn serve(&mut self, process: usize, asker: Asker, request: ReplicaRequest) {
        let now_unix_ms = self.unix_ms(process);
        let life = self.processes[process].life;
        let live = self.processes[process].coordinator.live();
        let Some(replica) = &mut self.processes[process].replica else {
            return;
        };
        let is_write = matches!(
            request.operation,
            ReplicaOperation::Put { .. } | ReplicaOperation::Merge { .. } | ReplicaOperation::Hint { .. }
        );
        let reply = replica.serve(&self.store, request, &live, now_unix_ms);
        let mark = replica.disk.mark();
        let syncs = self.store.settings.durability == Durability::Fsync;
        if !(is_write && syncs && !matches!(reply, ReplicaReply::Error(_))) {
            return self.answer(process, asker, reply);
        }
        let after_us = self.rng.u64(500..8_000);
        if self.scenario.flaw == Some(Flaw::AcknowledgesUnsynced) {
            return self.answer(process, asker, reply);
        }
        let event = Event::Synced { mark, asker, reply };
        self.after(after_us, Happening::To { process, life, event });
    }

    /// Sends a request to a replica.
    pub(super) fn send(&mut self, asker: Asker, node: NodeId, request: ReplicaRequest) {
        let to = node.get() as usize - 1;
        if !self.processes[to].is_up {
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
        let life = self.processes[to].life;
        let arrives = |world: &mut Self, after_us: u64| {
            let request = request.clone();
            let event = Event::Request { asker, request };
            let process = to;
            world.after(after_us, Happening::To { process, life, event });
        };
        match self.network.fate(asker.process, to, may_double, &mut self.rng) {
            Fate::Arrives(after_us) => arrives(self, after_us),
            Fate::Doubled(first_us, second_us) => {
                arrives(self, first_us);
                arrives(self, second_us);
            }
            Fate::Breaks(after_us) => self.fail(asker, after_us, Failure::Lost("connection reset".into())),
            Fate::Vanishes => {}
        }
    }

    /// Sends an answer to who waits for it.
    pub(super) fn answer(&mut self, from: usize, asker: Asker, reply: ReplicaReply) {
        let Asker { process, life, of } = asker;
        let event = Event::Answer { of, answer: Ok(reply) };
        match self.network.fate(from, process, true, &mut self.rng) {
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

    /// Whom somebody waits for is gone.
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
