//! Readers that never stop: they note each answer that is wrong, and when each request failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::values::{KEYS, ask, one_version};

/// How many keys a request asks for.
const KEYS_PER_REQUEST: u64 = 50;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client waits before it connects again.
const RETRY: Duration = Duration::from_millis(20);

/// Readers at work. They stop when they are dropped.
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
    /// A reader for each of these addresses.
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

    /// How many requests were answered by now.
    pub fn answers(&self) -> u64 {
        self.shared.answers.load(SeqCst)
    }

    /// Ends them; the failures that there were. No answer may have been wrong.
    pub fn stop(mut self) -> Vec<Failure> {
        self.end();
        let wrong = self.shared.wrong.lock();
        assert!(wrong.is_empty(), "{} wrong answers, such as {}", wrong.len(), wrong[0]);
        assert!(self.answers() > 0, "nothing was answered at all");
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

/// Fails if a request failed from this moment on.
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
