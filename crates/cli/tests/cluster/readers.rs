//! Readers that never stop: they record each wrong answer, and the time of each failed request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::values::{KEYS, ask, one_version};

/// The number of keys per request.
const KEYS_PER_REQUEST: u64 = 50;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause of a client after an answer: a few clients leave processors to what the test is about.
const REST: Duration = Duration::from_millis(8);
/// The pause of a client before it reconnects.
const RETRY: Duration = Duration::from_millis(20);

/// Running readers. Dropping this stops them.
pub struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answers: AtomicU64,
    wrong: Mutex<Vec<String>>,
    failures: Mutex<Vec<Failure>>,
}

/// A request that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    pub at: Instant,
    pub error: String,
}

impl Readers {
    /// Starts a reader for each of these addresses.
    pub fn start(addresses: &[String]) -> Self {
        let shared = Arc::new(Shared::default());
        let reader = |(at, address): (usize, &String)| {
            let (shared, address) = (Arc::clone(&shared), address.clone());
            std::thread::spawn(move || shared.read(&address, at as u64))
        };
        Self {
            threads: addresses.iter().enumerate().map(reader).collect(),
            shared,
        }
    }

    /// The number of answered requests so far.
    pub fn answers(&self) -> u64 {
        self.shared.answers.load(SeqCst)
    }

    /// Stops the readers; returns the failed requests. Panics if an answer was wrong.
    pub fn stop(mut self) -> Vec<Failure> {
        self.end();
        let wrong = self.shared.wrong.lock();
        assert!(wrong.is_empty(), "{} wrong answers, such as {}", wrong.len(), wrong[0]);
        assert!(self.answers() > 0, "no request was answered");
        self.shared.failures.lock().clone()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
    }
}

impl Shared {
    fn read(&self, address: &str, first: u64) {
        let mut connection = None;
        let mut at = first * 101;
        while !self.stop.load(SeqCst) {
            at += KEYS_PER_REQUEST;
            let keys: Vec<u64> = (0..KEYS_PER_REQUEST).map(|step| (at + step * 13) % KEYS).collect();
            match self.request(address, &mut connection, &keys) {
                Ok(texts) => {
                    self.answers.fetch_add(1, SeqCst);
                    if let Err(wrong) = one_version(&keys, &texts) {
                        self.wrong.lock().push(format!("{address}: {wrong}"));
                    }
                    std::thread::park_timeout(REST);
                }
                Err(error) => {
                    let failure = Failure {
                        at: Instant::now(),
                        error: format!("{address}: {error}"),
                    };
                    self.failures.lock().push(failure);
                    connection = None;
                    std::thread::park_timeout(RETRY);
                }
            }
        }
    }

    fn request(
        &self,
        address: &str,
        connection: &mut Option<redis::Connection>,
        keys: &[u64],
    ) -> redis::RedisResult<Vec<Option<String>>> {
        let connection = match connection {
            Some(connection) => connection,
            None => {
                let client = redis::Client::open(format!("redis://{address}"))?;
                let new = client.get_connection_with_timeout(PATIENCE)?;
                new.set_read_timeout(Some(PATIENCE))?;
                connection.insert(new)
            }
        };
        ask(connection, keys)
    }
}

/// Fails if a request failed after this time.
pub fn none_since(failures: &[Failure], moment: Instant) {
    let mut late = failures.iter().filter(|failure| failure.at > moment);
    if let Some(first) = late.next() {
        let after = first.at - moment;
        panic!(
            "{} requests failed, the first {after:?} after: {}",
            1 + late.count(),
            first.error
        );
    }
}
