//! Clients of the store: their random operations, and how the history records them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_client::quorum::{Edit, Expiry, Get, Intent, Update, Write, WriteTimes};
use fondaco_client::{Partial, ReadOptions};
use fondaco_model::versioned::{self, Record};
use fondaco_protocol::WireKey;

use super::coordinator::{Bases, Doing, Work, values};
use super::history::Knows;
use super::world::World;

/// The timeout of an operation.
const DEADLINE: Duration = Duration::from_secs(1);

/// The maximum that is added at a time.
const ADD_MAX: u32 = 9;

impl World {
    /// A client begins a random operation.
    pub(super) fn operate(&mut self) {
        let process = self.rng.usize(..self.processes.len());
        if !self.processes[process].running.is_running(self.now_us) {
            return;
        }
        let key = Bytes::from(format!("k{}", self.rng.usize(..self.scenario.keys)));
        let choice = self.rng.u8(..100);
        if self.scenario.counts() {
            match choice {
                0..40 => self.begin_get(process, key),
                _ => self.begin_add(process, key),
            }
            return;
        }
        match choice {
            0..40 => self.begin_get(process, key),
            40..62 => self.begin_write(process, key, true, true),
            62..80 => self.begin_write(process, key, true, false),
            80..87 => self.begin_write(process, key, false, true),
            87..92 => self.begin_write(process, key, false, false),
            _ => self.begin_update(process, key),
        }
    }

    fn begin_get(&mut self, process: usize, key: Bytes) {
        let Some(wire) = self.wire_key(&key) else { return };
        let options = ReadOptions {
            deadline: DEADLINE,
            partial: Partial::PerKey,
            ..ReadOptions::default()
        };
        let (home, env) = self.env(process);
        let work = Get::start(Arc::new(vec![wire]), options, home, None, &env);
        let doing = Doing::Read {
            key,
            began_us: self.now_us,
        };
        self.begin(process, work.map(|get| Work::Get(get.into())), doing, Bases::default());
    }

    fn begin_add(&mut self, process: usize, key: Bytes) {
        let by = self.rng.u32(1..=ADD_MAX);
        let update = versioned::Update::add(by.into(), self.unix_ms(process), None);
        let number = self.sums.add_began(&key, by, self.now_us);
        self.note(|| format!("{process} adds {by} to {key:?}: {number:?}"));
        self.begin_writing(process, &key, Intent::All, update, Doing::Add(number));
    }

    /// Begins a plain write over everything, or a write over the values that were last read.
    fn begin_write(&mut self, process: usize, key: Bytes, is_put: bool, over_all: bool) {
        let value = is_put.then(|| self.new_value());
        let now_unix_ms = self.unix_ms(process);
        let update = match &value {
            Some(value) => versioned::Update::put(value.clone(), now_unix_ms, None),
            None => versioned::Update::delete(now_unix_ms),
        };
        let (intent, knows) = match over_all {
            true => (Intent::All, Knows::All),
            false => {
                let read = self.processes[process].coordinator.read_last(&key);
                let (context, values) = read.cloned().unwrap_or_default();
                (Intent::Context(context), Knows::Read(values))
            }
        };
        let words = format!("{process} writes {value:?} under {key:?} over {knows:?}");
        let number = self.history.write_began(&key, value, knows, self.now_us);
        self.note(|| format!("{words}: {number:?}"));
        self.begin_writing(process, &key, intent, update, Doing::Write { number, over_all });
    }

    fn begin_writing(&mut self, process: usize, key: &Bytes, intent: Intent, update: versioned::Update, doing: Doing) {
        let Some(key) = self.wire_key(key) else { return };
        let (home, env) = self.env(process);
        let work = Write::start(key, intent, update, DEADLINE.into(), home, &env);
        self.begin(
            process,
            work.map(|write| Work::Write(write.into())),
            doing,
            Bases::default(),
        );
    }

    fn begin_update(&mut self, process: usize, key: Bytes) {
        let Some(wire) = self.wire_key(&key) else { return };
        let value = self.new_value();
        let seed = self.rng.u64(..);
        let knows = Knows::Read(Vec::new());
        let number = self.history.write_began(&key, Some(value.clone()), knows, self.now_us);
        self.note(|| format!("{process} changes {key:?} to {value:?}: {number:?}"));
        let bases = Bases::default();
        let theirs = Arc::clone(&bases);
        let decide = move |record: &Record, _| {
            theirs.lock().push(values(record));
            Edit::Put {
                value: value.clone(),
                expiry: Expiry::Never,
            }
        };
        let (home, env) = self.env(process);
        let work = Update::start(
            wire,
            Box::new(decide),
            WriteTimes::from(DEADLINE).into(),
            home,
            seed,
            &env,
        );
        let over_all = false;
        self.begin(
            process,
            work.map(|update| Work::Update(update.into())),
            Doing::Write { number, over_all },
            bases,
        );
    }

    fn wire_key(&self, key: &[u8]) -> Option<WireKey> {
        WireKey::new(&self.store.name, key).ok()
    }

    fn new_value(&mut self) -> Bytes {
        self.last_number += 1;
        Bytes::from(format!("v{}", self.last_number))
    }
}
