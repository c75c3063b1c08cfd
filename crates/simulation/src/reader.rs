//! A simulated router: it runs the real reads of the client library over the simulated network.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_client::operation::{AskId, Operation};
use fondaco_client::read::{Answer, Failure, Read};
use fondaco_client::{Partial, ReadOptions};
use fondaco_decisions::RecordPath;
use fondaco_model::cluster::{RouterRecord, Topology};
use fondaco_model::{PROTOCOL, StoreName, VersionNumber};
use fondaco_protocol::WireKey;

use crate::event::{Event, ProcessEvent};
use crate::kernel::{Caller, Fate};
use crate::link::Request;
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
        let caller = match reader.caller.take() {
            Some(mut caller) => {
                caller.learn(topology, None);
                caller
            }
            None => Caller::new(topology, None),
        };
        for read in reader.reads.values_mut() {
            read.read.on_directory(&caller.env(now_us, 0));
        }
        reader.caller = Some(caller);
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
        let Some(caller) = &reader.caller else { return };
        let options = ReadOptions {
            partial: Partial::PerKey,
            ..ReadOptions::default()
        };
        if let Ok(read) = Read::start(Arc::new(keys), options, &caller.env(now_us, 0)) {
            // The answers of every other read are taken as they come.
            let is_streamed = number % 2 == 1;
            let read = ReaderRead {
                read: if is_streamed { read.streamed() } else { read },
                taken: is_streamed.then(Vec::new),
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
        let life = self.processes[process].running.life;
        let mut questions = Vec::new();
        let Role::Reader(reader) = &mut self.processes[process].role else {
            return;
        };
        let Some(under_way) = reader.reads.get_mut(&number) else {
            return;
        };
        let read = &mut under_way.read;
        let keys = Arc::clone(read.keys());
        let Some(caller) = &reader.caller else { return };
        let env = caller.env(now_us, 0);
        while let Some(sub) = read.next_send(&env) {
            let Ok(store) = sub.request.store().parse() else {
                continue;
            };
            let to = caller
                .directory
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
        if let Some(taken) = &mut under_way.taken
            && read.fresh() > 0
        {
            taken.extend(read.take_fresh().answers);
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
            let at_ms = wake_us.div_ceil(1_000).max(self.now_ms + 1);
            self.at_process(at_ms, process, ProcessEvent::WakeRead(number));
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
            let Some(caller) = &reader.caller else { return };
            under_way.read.on_time(&caller.env(now_us, 0));
            self.drive(process, number);
        }
    }

    /// A node has replied, or will not.
    pub(crate) fn answered(&mut self, process: usize, number: u64, sub: AskId, answer: Result<Answer, Failure>) {
        let now_us = self.now_ms * 1_000;
        let Role::Reader(reader) = &mut self.processes[process].role else {
            return;
        };
        let Some(caller) = &reader.caller else { return };
        if let Some(under_way) = reader.reads.get_mut(&number) {
            let env = caller.env(now_us, 0);
            match answer {
                Ok(answer) => under_way.read.on_reply(sub, answer, &env),
                Err(failure) => under_way.read.on_failure(sub, failure, &env),
            }
            self.drive(process, number);
        }
    }

    /// Sends a request to a node. If the process is down and the line is not cut, the router learns so quickly.
    fn ask(&mut self, to: Option<usize>, question: Question) {
        let Some(to) = to else { return };
        if !self.processes[to].running.is_up {
            let soon_ms = self.rng.u64(1..5);
            let refused = Failure::Unsent("the connection was refused".into());
            return self.answer_later(soon_ms, &question, Err(refused));
        }
        let life = self.processes[to].running.life;
        let arrives = |world: &mut Self, after_ms: u64| {
            let event = ProcessEvent::Question(question.clone());
            let process = to;
            world.at(world.now_ms + after_ms, Event::To { process, life, event });
        };
        match self.network.fate(question.from, to, true, self.now_ms, &mut self.rng) {
            Fate::Arrives(after_ms) => arrives(self, after_ms),
            Fate::Doubled(first_ms, second_ms) => {
                arrives(self, first_ms);
                arrives(self, second_ms);
            }
            Fate::Breaks(after_ms) => self.answer_later(after_ms, &question, Err(broke())),
            Fate::Vanishes => {}
        }
    }

    /// A node receives a request.
    pub(crate) fn asked(&mut self, to: usize, question: &Question) {
        let answer = self.answer_as_node(to, question);
        match self.network.fate(to, question.from, true, self.now_ms, &mut self.rng) {
            Fate::Arrives(after_ms) => self.answer_later(after_ms, question, Ok(answer)),
            Fate::Doubled(first_ms, second_ms) => {
                self.answer_later(first_ms, question, Ok(answer.clone()));
                self.answer_later(second_ms, question, Ok(answer));
            }
            Fate::Breaks(after_ms) => self.answer_later(after_ms, question, Err(broke())),
            Fate::Vanishes => {}
        }
    }

    fn answer_later(&mut self, after_ms: u64, question: &Question, answer: Result<Answer, Failure>) {
        let event = ProcessEvent::Answer {
            read: question.read,
            sub: question.sub,
            answer,
        };
        let (process, life) = (question.from, question.life);
        self.at(self.now_ms + after_ms, Event::To { process, life, event });
    }

    /// Suspended nodes that reply are used again.
    fn probe(&mut self, process: usize) {
        let now_ms = self.now_ms;
        let Role::Reader(reader) = &self.processes[process].role else {
            return;
        };
        let Some(caller) = &reader.caller else { return };
        for member in caller
            .directory
            .members()
            .iter()
            .filter(|member| member.health.is_suspended())
        {
            let Some(node) = process_at(&member.address) else {
                continue;
            };
            let answers =
                self.processes[node].running.is_running(now_ms) && self.network.connects(process, node, now_ms);
            match answers {
                true => member.health.probe_succeeded(now_ms * 1_000),
                false => member.health.probe_failed(now_ms * 1_000),
            }
        }
    }
}

fn broke() -> Failure {
    Failure::Lost("the connection broke".into())
}
