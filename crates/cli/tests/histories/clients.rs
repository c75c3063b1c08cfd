//! Clients that never stop: each sends one random request after another, and records its requests and answers.
//!
//! Every value is written only once, so that it identifies its writer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use fondaco_simulation::versioned::Knows;
use redis::{Cmd, Value};

use super::connection::{Connection, Outcome};
use super::ledger::{Account, Ledger, Seen, Writing};
use super::stores::Keeps;

/// The pause of a client between two requests: many clients can run without overloading the servers.
const REST: Duration = Duration::from_millis(5);
/// The largest increment of a counter.
const ADD_MAX: u32 = 9;
/// How many requests a client sends to one server before it switches to another one, on average.
const REQUESTS_PER_SERVER: u32 = 200;
/// The context of a key that was never read.
const NO_CONTEXT: Bytes = Bytes::from_static(b"");

/// A client.
pub struct Client<'a> {
    number: usize,
    ledger: &'a Ledger,
    connection: Connection<'a>,
    rng: Rng,
    /// The last read of each key of each store, or the last write based on it: the context and the values.
    read: HashMap<(usize, Bytes), (Bytes, Vec<Bytes>)>,
    /// How many values it has written.
    values: u64,
}

/// The outcome of a write, as far as the client knows.
enum Fate {
    Acknowledged,
    Unknown,
}

impl<'a> Client<'a> {
    /// A client of these servers.
    pub fn new(number: usize, seed: u64, ledger: &'a Ledger, addresses: &'a [String]) -> Self {
        Self {
            number,
            ledger,
            connection: Connection::to(addresses),
            rng: Rng::with_seed(seed.wrapping_add(number as u64)),
            read: HashMap::new(),
            values: 0,
        }
    }

    /// Sends requests until the test is over.
    pub fn work(mut self, is_over: &AtomicBool) {
        while !is_over.load(SeqCst) {
            if self.rng.u32(..REQUESTS_PER_SERVER) == 0 {
                self.connection.leave();
            }
            let account = self.rng.usize(..self.ledger.accounts().len());
            let store = self.ledger.accounts()[account].store;
            let key = self.ledger.accounts()[account].key(&mut self.rng);
            match store.keeps {
                Keeps::Counters => self.count(account, &key),
                Keeps::Latest | Keeps::All => self.read_or_write(account, &key),
            }
            std::thread::park_timeout(REST);
        }
    }

    fn count(&mut self, account: usize, key: &Bytes) {
        if self.rng.u8(..100) < 40 {
            return self.get(account, key);
        }
        let by = self.rng.u32(1..=ADD_MAX);
        let writing = self.ledger.add_begins(account, key, by);
        let request = self.command("INCRBY", account, key).arg(by).take();
        self.write(&writing, account, key, &request, |_| Fate::Acknowledged);
    }

    fn read_or_write(&mut self, account: usize, key: &Bytes) {
        match self.rng.u8(..100) {
            0..20 => self.get(account, key),
            20..42 => self.get_siblings(account, key),
            42..65 => self.set(account, key, &[]),
            65..70 => self.set(account, key, &["GET"]),
            70..73 => self.set(account, key, &["NX"]),
            73..90 => self.put_over(account, key),
            90..93 => self.put(account, key, &NO_CONTEXT, Vec::new()),
            93..97 => self.delete_over(account, key),
            _ if Account::is_deleted(key) => self.delete(account, key),
            _ => self.get_siblings(account, key),
        }
    }

    fn get(&mut self, account: usize, key: &Bytes) {
        let request = self.command("GET", account, key);
        let began_us = self.ledger.now_us();
        let Some(value) = self.ask(account, key, &request) else {
            return;
        };
        let seen = match (self.ledger.accounts()[account].store.keeps, value) {
            (Keeps::Counters, value) => Seen::Total(number(&value)),
            (Keeps::Latest, value) => Seen::Latest(bytes(value)),
            // Several values would have been an error.
            (Keeps::All, value) => Seen::All(bytes(value).into_iter().collect()),
        };
        self.ledger.read(account, key, &seen, began_us);
    }

    fn get_siblings(&mut self, account: usize, key: &Bytes) {
        let request = self.command("FONDACO.GET", account, key);
        let began_us = self.ledger.now_us();
        let Some(value) = self.ask(account, key, &request) else {
            return;
        };
        let (context, values) = siblings(value);
        self.ledger.read(account, key, &Seen::All(values.clone()), began_us);
        self.read.insert((account, key.clone()), (context, values));
    }

    /// A new value replaces whatever is stored.
    fn set(&mut self, account: usize, key: &Bytes, options: &[&str]) {
        let value = self.new_value();
        let request = self.command("SET", account, key).arg(&value[..]).arg(options).take();
        let writing = self.ledger.write_begins(account, key, Some(value), Knows::All);
        let is_conditional = options == ["NX"];
        self.write(&writing, account, key, &request, |answer| match answer {
            // A value was stored already: perhaps its own, from a first attempt.
            Value::Nil if is_conditional => Fate::Unknown,
            _ => Fate::Acknowledged,
        });
    }

    fn put_over(&mut self, account: usize, key: &Bytes) {
        match self.read.remove(&(account, key.clone())) {
            Some((context, values)) => self.put(account, key, &context, values),
            None => self.get_siblings(account, key),
        }
    }

    /// A new value replaces the values that were read.
    fn put(&mut self, account: usize, key: &Bytes, context: &Bytes, values: Vec<Bytes>) {
        let value = self.new_value();
        let mut request = self.command("FONDACO.PUT", account, key);
        request.arg(&context[..]).arg(&value[..]);
        let writing = self
            .ledger
            .write_begins(account, key, Some(value.clone()), Knows::Read(values.clone()));
        let answer = self.write(&writing, account, key, &request, |_| Fate::Acknowledged);
        if let Some(next) = answer.and_then(bytes) {
            // A write with this context covers all that the client had read, and its own value unless others wrote
            // meanwhile: then no context distinguishes the two, and the client gets its own value back.
            let own = (next != *context).then_some(value);
            let known = values.into_iter().chain(own).collect();
            self.read.insert((account, key.clone()), (next, known));
        }
    }

    /// Deletes the values that were read.
    fn delete_over(&mut self, account: usize, key: &Bytes) {
        let Some((context, values)) = self.read.remove(&(account, key.clone())) else {
            return self.get_siblings(account, key);
        };
        let request = self.command("FONDACO.DEL", account, key).arg(&context[..]).take();
        let writing = self.ledger.write_begins(account, key, None, Knows::Read(values));
        self.write(&writing, account, key, &request, |_| Fate::Acknowledged);
    }

    /// Deletes whatever is stored.
    fn delete(&mut self, account: usize, key: &Bytes) {
        let request = self.command("DEL", account, key);
        let writing = self.ledger.write_begins(account, key, None, Knows::All);
        self.write(&writing, account, key, &request, |answer| match answer {
            // Nothing was stored: perhaps because a first attempt had deleted it.
            Value::Int(0) => Fate::Unknown,
            _ => Fate::Acknowledged,
        });
    }

    /// Sends a write and records its outcome; returns the answer, if there is one.
    fn write(
        &mut self,
        writing: &Writing,
        account: usize,
        key: &Bytes,
        request: &Cmd,
        fate: impl FnOnce(&Value) -> Fate,
    ) -> Option<Value> {
        let outcome = self.connection.ask(request, &mut self.rng);
        match &outcome {
            Outcome::Answer(value) => match fate(value) {
                Fate::Acknowledged => self.ledger.acknowledged(writing),
                Fate::Unknown => self.ledger.left(writing),
            },
            Outcome::Unknown(_) => self.ledger.left(writing),
            Outcome::Unsent(_) => self.ledger.undone(writing),
        }
        self.say(account, key, request, &outcome);
        outcome.answer()
    }

    /// Sends a read; returns the answer, if there is one.
    fn ask(&mut self, account: usize, key: &Bytes, request: &Cmd) -> Option<Value> {
        let outcome = self.connection.ask(request, &mut self.rng);
        self.say(account, key, request, &outcome);
        outcome.answer()
    }

    fn say(&self, account: usize, key: &Bytes, request: &Cmd, outcome: &Outcome) {
        let packed = request.get_packed_command();
        let sent = String::from_utf8_lossy(&packed);
        let words: Vec<&str> = sent
            .split("\r\n")
            .filter(|part| !part.starts_with(['$', '*']))
            .collect();
        let (number, address) = (self.number, self.connection.address());
        let said = format!("client {number} to {address}: {} => {outcome}", words.join(" "));
        self.ledger.say(account, key, said);
    }

    fn command(&self, name: &str, account: usize, key: &Bytes) -> Cmd {
        let store = self.ledger.accounts()[account].store.name;
        let wire_key = [store.as_bytes(), b":", key].concat();
        redis::cmd(name).arg(wire_key).take()
    }

    fn new_value(&mut self) -> Bytes {
        self.values += 1;
        Bytes::from(format!("{}.{}", self.number, self.values))
    }
}

/// The value of an answer, if it is one.
fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::Nil => None,
        Value::BulkString(bytes) => Some(Bytes::from(bytes)),
        other => panic!("no value: {other:?}"),
    }
}

/// The number of an answer; 0 if there is no value.
pub fn number(value: &Value) -> i64 {
    redis::from_redis_value_ref::<Option<i64>>(value)
        .unwrap_or_else(|error| panic!("{value:?} is no number: {error}"))
        .unwrap_or(0)
}

/// The context and the values of an answer to `FONDACO.GET`.
pub fn siblings(value: Value) -> (Bytes, Vec<Bytes>) {
    let (context, values): (Vec<u8>, Vec<Vec<u8>>) =
        redis::from_redis_value(value).unwrap_or_else(|error| panic!("no context and values: {error}"));
    (context.into(), values.into_iter().map(Bytes::from).collect())
}
