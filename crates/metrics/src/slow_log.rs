//! Slow requests, for `SLOWLOG` and `LATENCY`: the latest [`ENTRIES_MAX`], and of each command how slow it was at worst.
//!
//! Requests that were read together are answered together, and took as long as all of them: then there is one entry,
//! with the first of them. Passwords are never kept.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fondaco_protocol::now_unix_ms;
use fondaco_resp::command::CommandId;
use parking_lot::{Mutex, MutexGuard};

/// How many slow requests are kept.
const ENTRIES_MAX: usize = 128;

/// How many arguments of a request are kept, and how much of each, as Redis does.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// The slow requests of all event loops. Locked by slow requests, and when it is read.
#[derive(Debug, Default)]
pub struct SlowLog(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    next_id: i64,
    /// The latest at the end.
    entries: VecDeque<SlowRequest>,
    /// By the name of the command.
    spikes: BTreeMap<&'static str, Spike>,
}

/// A slow request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    /// Its number, from 0.
    pub id: i64,
    /// When it was answered.
    pub at_unix_seconds: i64,
    /// How long it took.
    pub took: Duration,
    /// Its arguments, shortened.
    pub arguments: Vec<Vec<u8>>,
    /// The address of the client.
    pub client: String,
    /// The name that the client has given itself.
    pub client_name: String,
}

/// How slow a command was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spike {
    /// When it was last slow.
    pub last_unix_seconds: i64,
    /// How long it took then.
    pub last: Duration,
    /// How long it took at most.
    pub longest: Duration,
}

impl SlowLog {
    /// Whether requests of this kind are kept: not those with passwords, which are slow on purpose if they are wrong.
    pub fn keeps(command: CommandId) -> bool {
        !matches!(command, CommandId::Auth | CommandId::FondacoProve | CommandId::Hello)
    }

    /// Keeps a slow request; `others` are that many that were answered together with it.
    pub fn keep(&self, command: &'static str, arguments: &[&[u8]], others: u64, took: Duration, client: (&str, &str)) {
        let at_unix_seconds = (now_unix_ms() / 1000) as i64;
        let count = arguments.len();
        let shown = if count > ARGUMENTS_MAX {
            ARGUMENTS_MAX - 1
        } else {
            count
        };
        let mut arguments: Vec<Vec<u8>> = arguments[..shown].iter().map(|argument| shortened(argument)).collect();
        if count > shown {
            arguments.push(format!("... ({} more arguments)", count - shown).into_bytes());
        }
        if others > 0 {
            arguments.push(format!("... ({others} more requests, answered together)").into_bytes());
        }
        let mut kept = self.lock();
        let spike = kept.spikes.entry(command).or_insert(Spike {
            last_unix_seconds: at_unix_seconds,
            last: took,
            longest: took,
        });
        spike.last_unix_seconds = at_unix_seconds;
        spike.last = took;
        spike.longest = spike.longest.max(took);
        let id = kept.next_id;
        kept.next_id += 1;
        if kept.entries.len() == ENTRIES_MAX {
            kept.entries.pop_front();
        }
        kept.entries.push_back(SlowRequest {
            id,
            at_unix_seconds,
            took,
            arguments,
            client: client.0.to_owned(),
            client_name: client.1.to_owned(),
        });
    }

    /// The latest slow requests, the latest first.
    pub fn latest(&self, count: usize) -> Vec<SlowRequest> {
        self.lock().entries.iter().rev().take(count).cloned().collect()
    }

    /// How many are kept.
    pub fn count(&self) -> usize {
        self.lock().entries.len()
    }

    /// Forgets all requests. How slow each command was stays known.
    pub fn reset(&self) {
        self.lock().entries.clear();
    }

    /// How slow each command was, by its name.
    pub fn spikes(&self) -> Vec<(&'static str, Spike)> {
        self.lock().spikes.iter().map(|(&name, &spike)| (name, spike)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Each list is whole, whichever thread panicked.
        self.0.lock()
    }
}

fn shortened(argument: &[u8]) -> Vec<u8> {
    let Some(rest) = argument.len().checked_sub(ARGUMENT_BYTES_MAX).filter(|&rest| rest > 0) else {
        return argument.to_vec();
    };
    [
        &argument[..ARGUMENT_BYTES_MAX],
        format!("... ({rest} more bytes)").as_bytes(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(log: &SlowLog, arguments: &[&[u8]], others: u64, ms: u64) {
        let took = Duration::from_millis(ms);
        log.keep("get", arguments, others, took, ("a:1", "name"));
    }

    #[test]
    fn the_latest_requests_are_kept_and_the_worst_is_remembered() {
        let log = SlowLog::default();
        for at in 0..200 {
            keep(&log, &[b"GET", b"s:k"], 0, if at == 7 { 900 } else { 20 });
        }
        assert_eq!(log.count(), ENTRIES_MAX);
        let latest = log.latest(2);
        assert_eq!([latest[0].id, latest[1].id], [199, 198]);
        assert_eq!(latest[0].arguments, [b"GET".to_vec(), b"s:k".to_vec()]);
        log.reset();
        assert_eq!((log.count(), log.latest(5)), (0, Vec::new()));
        let [("get", spike)] = log.spikes()[..] else {
            panic!("one command was slow");
        };
        assert_eq!(spike.longest, Duration::from_millis(900));
        assert_eq!(spike.last, Duration::from_millis(20));
    }

    #[test]
    fn long_requests_are_shortened() {
        let log = SlowLog::default();
        let long = vec![b'x'; 200];
        let mut arguments: Vec<&[u8]> = vec![b"MGET", &long];
        arguments.extend([&b"s:k"[..]; 40]);
        keep(&log, &arguments, 3, 20);
        let kept = &log.latest(1)[0].arguments;
        assert_eq!(kept.len(), ARGUMENTS_MAX + 1);
        assert!(kept[1].ends_with(b"... (72 more bytes)"));
        assert_eq!(kept[31], b"... (11 more arguments)");
        assert_eq!(kept[32], b"... (3 more requests, answered together)");
    }

    #[test]
    fn passwords_are_not_kept() {
        assert!(!SlowLog::keeps(CommandId::Auth) && !SlowLog::keeps(CommandId::Hello));
        assert!(SlowLog::keeps(CommandId::Get));
    }
}
