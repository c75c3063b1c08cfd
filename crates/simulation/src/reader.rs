//! A simulated router: it runs the real reads of the client library over the simulated network.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_client::operation::{AskId, Moment, Operation};
use fondaco_client::quorum::QuorumCounters;
use fondaco_client::read::{Answer, Directory, Failure, HealthPolicy, Read, Steering};
use fondaco_client::{Partial, ReadOptions};
use fondaco_model::cluster::{RecordPath, RouterRecord, Topology};
use fondaco_model::{PROTOCOL, StoreName, VersionNumber};
use fondaco_protocol::WireKey;

use crate::event::Event;
use crate::link::Request;
use crate::network::Place;
use crate::node::{address, process_at};
use crate::process::{ReaderRead, Role};
use crate::record::Value;
use crate::world::World;

/// The number of keys of a store; every version has all of them.
pub(crate) const KEYS: usize = 64;

/// The number of reads that a router begins each second.
const READS_PER_TICK: usize = 2;

/// A request on its way to a node.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) from: usize,
    pub(crate) life: u32,
    pub(crate) read: u64,
    pub(crate) sub: AskId,
    pub(crate) store: StoreName,
    pub(crate) store_id: u16,
    pub(crate) version: VersionNumber,
    pub(crate) keys: Vec<WireKey>,
}

fn moment<'a>(
    now_us: u64,
    latest: &'a Arc<Directory>,
    steering: &'a Steering,
    counts: &'a QuorumCounters,
) -> Moment<'a> {
    Moment {
        now_us,
        now_unix_ms: 0,
        latest,
        steering,
        counts,
    }
}

impl World {
    /// The router learns the locations of keys.
    pub(crate) fn look_as_reader(&mut self, process: usize) {
        let view = self.processes[process].view.clone();
        let now_us = self.now_ms * 1_000;
        let Role::Reader(reader) = &mut self.processes[process].role else {
            return;
        };
        if !reader.announced {
            reader.announced = true;
            let record = RouterRecord {
                resp: address(process),
                http: address(process),
                protocol: PROTOCOL,
            };
            let request = Request::PutEphemeral {
                path: RecordPath::Router(reader.identity.clone()),
                value: Arc::new(Value::Router(record)),
            };
            self.request(process, request);
        }
        let Some(topology) = Topology::of(&view) else { return };
        let Role::Reader(reader) = &mut self.processes[process].role else {
            return;
        };
        let topology = Arc::new(topology);
        let former = reader.directory.take();
        let directory = Directory::new(topology, None, HealthPolicy::default(), former.as_deref());
        let directory = Arc::new(directory);
        reader.directory = Some(Arc::clone(&directory));
        for read in reader.reads.values_mut() {
            let moment = moment(now_us, &directory, &reader.steering, &reader.counts);
            read.read.on_directory(&moment);
        }
        let reads: Vec<u64> = reader.reads.keys().copied().collect();
        for read in reads {
            self.drive(process, read);
        }
    }

    /// The router begins some reads, and probes suspended nodes.
    pub(crate) fn tick_as_reader(&mut self, process: usize) {
        self.probe(process);
        for _ in 0..READS_PER_TICK {
            let stores = self.scenario.stores;
            let mut keys = Vec::new();
            for _ in 0..self.rng.usize(1..=8) {
                let key = format!("store{}:k{}", self.rng.usize(..stores), self.rng.usize(..KEYS));
                keys.extend(WireKey::parse(Bytes::from(key)));
            }
            self.begin_read(process, keys);
        }
    }

    /// Reads every key of every store once.
    pub(crate) fn read_everything_once(&mut self, process: usize) {
        for store in 0..self.scenario.stores {
            let keys = (0..KEYS).filter_map(|key| WireKey::parse(Bytes::from(format!("store{store}:k{key}"))).ok());
            let keys = keys.collect();
            self.begin_read(process, keys);
        }
    }

    fn begin_read(&mut self, process: usize, keys: Vec<WireKey>) {
        let now_us = self.now_ms * 1_000;
        let begun_ms = self.now_ms;
        self.last_question += 1;
        let number = self.last_question;
        let Role::Reader(reader) = &mut self.processes[process].role else {
            return;
        };
        let Some(directory) = reader.directory.clone() else {
            return;
        };
        let options = ReadOptions {
            partial: Partial::PerKey,
            ..ReadOptions::default()
        };
        let moment = moment(now_us, &directory, &reader.steering, &reader.counts);
        if let Ok(read) = Read::start(Arc::new(keys), options, &moment) {
            let read = ReaderRead {
                read,
                begun_ms,
                wake_us: u64::MAX,
            };
            reader.reads.insert(number, read);
            self.drive(process, number);
        }
    }

    /// Sends the requests of a read, and finishes the read when it is done.
    fn drive(&mut self, process: usize, number: u64) {
        let now_us = self.now_ms * 1_000;
        let life = self.processes[process].life;
        let mut questions = Vec::new();
        let Role::Reader(reader) = &mut self.processes[process].role else {
            return;
        };
        let Some(under_way) = reader.reads.get_mut(&number) else {
            return;
        };
        let read = &mut under_way.read;
        let keys = Arc::clone(read.keys());
        let Some(directory) = &reader.directory else { return };
        let moment = moment(now_us, directory, &reader.steering, &reader.counts);
        while let Some(sub) = read.next_send(&moment) {
            let Ok(store) = sub.request.store().parse() else {
                continue;
            };
            let to = directory
                .member(sub.node)
                .and_then(|member| process_at(&member.address));
            let question = Question {
                from: process,
                life,
                read: number,
                sub: sub.id,
                store,
                store_id: sub.request.store_id,
                version: sub.request.version,
                keys: sub.request.keys().cloned().collect(),
            };
            questions.push((to, question));
        }
        let refresh = read.take_refresh();
        while read.take_suspended().is_some() {}
        let done = read.is_over();
        let wake_us = read.wake_at_us();
        if done {
            if let Some(read) = reader.reads.remove(&number) {
                self.read_ended(keys, read);
            }
        } else if wake_us < under_way.wake_us {
            under_way.wake_us = wake_us;
            let event = Event::WakeRead {
                process,
                life,
                read: number,
            };
            self.at(wake_us.div_ceil(1_000).max(self.now_ms + 1), event);
        }
        for (to, question) in questions {
            self.ask(to, question);
        }
        if refresh {
            self.read_everything(process);
        }
    }

    /// Wakes a read that waits for a time.
    pub(crate) fn wake_read(&mut self, process: usize, number: u64) {
        let now_us = self.now_ms * 1_000;
        let Role::Reader(reader) = &mut self.processes[process].role else {
            return;
        };
        if let Some(under_way) = reader.reads.get_mut(&number) {
            under_way.wake_us = u64::MAX;
            let Some(directory) = &reader.directory else { return };
            let moment = moment(now_us, directory, &reader.steering, &reader.counts);
            under_way.read.on_time(&moment);
            self.drive(process, number);
        }
    }

    /// A node has replied, or will not.
    pub(crate) fn answered(&mut self, process: usize, number: u64, sub: AskId, answer: Result<Answer, Failure>) {
        let now_us = self.now_ms * 1_000;
        let Role::Reader(reader) = &mut self.processes[process].role else {
            return;
        };
        let Some(directory) = reader.directory.clone() else {
            return;
        };
        if let Some(under_way) = reader.reads.get_mut(&number) {
            let moment = moment(now_us, &directory, &reader.steering, &reader.counts);
            match answer {
                Ok(answer) => under_way.read.on_reply(sub, answer, &moment),
                Err(failure) => under_way.read.on_failure(sub, failure, &moment),
            }
            self.drive(process, number);
        }
    }

    /// Sends a request to a node. If the process is down and the line is not cut, the router learns so quickly.
    fn ask(&mut self, to: Option<usize>, question: Question) {
        let Some(to) = to else { return };
        if !self.processes[to].up {
            let refused = Failure::Unsent("the connection was refused".into());
            let event = Event::Answer {
                process: question.from,
                life: question.life,
                read: question.read,
                sub: question.sub,
                answer: Err(refused),
            };
            let soon_ms = self.rng.u64(1..5);
            return self.at(self.now_ms + soon_ms, event);
        }
        for at_ms in self.arrivals(question.from, to) {
            let life = self.processes[to].life;
            let question = question.clone();
            self.at(at_ms, Event::Question { to, life, question });
        }
    }

    /// A node receives a request.
    pub(crate) fn asked(&mut self, to: usize, question: Question) {
        let answer = self.answer_as_node(to, &question);
        for at_ms in self.arrivals(to, question.from) {
            let event = Event::Answer {
                process: question.from,
                life: question.life,
                read: question.read,
                sub: question.sub,
                answer: Ok(answer.clone()),
            };
            self.at(at_ms, event);
        }
    }

    fn arrivals(&mut self, from: usize, to: usize) -> impl Iterator<Item = u64> + use<> {
        let arrivals = self.network.between(&mut self.rng, from, to, self.now_ms);
        arrivals.into_iter().flatten()
    }

    /// Suspended nodes that reply are used again.
    fn probe(&mut self, process: usize) {
        let now_ms = self.now_ms;
        let Role::Reader(reader) = &self.processes[process].role else {
            return;
        };
        let Some(directory) = reader.directory.clone() else {
            return;
        };
        for member in directory.members().iter().filter(|member| member.health.is_suspended()) {
            let Some(node) = process_at(&member.address) else {
                continue;
            };
            let answers = self.processes[node].up
                && self.processes[node].stopped_until_ms <= now_ms
                && !self
                    .network
                    .is_cut(Place::Process(process), Place::Process(node), now_ms);
            match answers {
                true => member.health.probe_succeeded(now_ms * 1_000),
                false => member.health.probe_failed(now_ms * 1_000),
            }
        }
    }
}
