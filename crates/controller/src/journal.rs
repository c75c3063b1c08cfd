//! The decisions that were made, with their inputs: the last ones in memory, more of them in a file.
//!
//! One JSON object a line. When the file is full, it becomes the older one of two. A leader that cannot write continues
//! to decide.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use fondaco_decisions::balance::{BalanceInput, Decision};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How many decisions are kept in memory: a day of them at the default window.
const KEPT_MAX: usize = 2880;

/// How many of these are kept with their inputs.
const INPUTS_MAX: usize = 120;

/// The length from which on a file is full, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A decision with its input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The input of the decision; `None` if it is not kept any more.
    pub input: Option<BalanceInput>,
    /// The decision.
    pub decision: Decision,
    /// The plan that followed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<u64>,
}

/// All decisions of this process.
pub struct Journal {
    path: Option<PathBuf>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    kept: VecDeque<Kept>,
    file: Option<(File, u64)>,
}

impl Journal {
    /// The journal in a file, whose decisions are read; only in memory without a file.
    pub fn open(path: Option<PathBuf>) -> Self {
        let journal = Self {
            path,
            inner: Mutex::default(),
        };
        if let Some(path) = &journal.path {
            let mut inner = journal.inner.lock();
            for kept in read(&older(path)).chain(read(path)) {
                inner.push(kept);
            }
        }
        journal
    }

    /// The number of the next decision.
    pub fn next_number(&self) -> u64 {
        self.inner.lock().kept.back().map_or(1, |last| last.decision.number + 1)
    }

    /// Adds a decision.
    pub fn add(&self, kept: Kept) {
        let mut inner = self.inner.lock();
        if let Some(path) = &self.path
            && let Err(error) = inner.write(path, &kept)
        {
            tracing::warn!(?path, %error, "a decision cannot be written to the journal");
            inner.file = None;
        }
        inner.push(kept);
    }

    /// The last decisions of a kind, the latest first.
    pub fn last(&self, count: usize, is_listed: impl Fn(&Decision) -> bool) -> Vec<Kept> {
        let inner = self.inner.lock();
        let listed = inner.kept.iter().rev().filter(|kept| is_listed(&kept.decision));
        listed.take(count).cloned().collect()
    }

    /// A decision by its number.
    pub fn get(&self, number: u64) -> Option<Kept> {
        let inner = self.inner.lock();
        inner
            .kept
            .iter()
            .rev()
            .find(|kept| kept.decision.number == number)
            .cloned()
    }
}

impl Inner {
    fn push(&mut self, kept: Kept) {
        self.kept.push_back(kept);
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
        if let Some(at) = self.kept.len().checked_sub(INPUTS_MAX + 1) {
            // Decisions that moved something keep their inputs.
            if !self.kept[at].decision.moves() && self.kept[at].decision.request().is_none() {
                self.kept[at].input = None;
            }
        }
    }

    fn write(&mut self, path: &Path, kept: &Kept) -> io::Result<()> {
        if self.file.as_ref().is_some_and(|(_, bytes)| *bytes >= FILE_BYTES_MAX) {
            self.file = None;
            std::fs::rename(path, older(path))?;
        }
        let (file, bytes) = match &mut self.file {
            Some(file) => file,
            None => {
                if let Some(dir) = path.parent() {
                    fondaco_durable::create_directory(dir)?;
                }
                let file = OpenOptions::new().create(true).append(true).open(path)?;
                let bytes = file.metadata()?.len();
                self.file.insert((file, bytes))
            }
        };
        let mut line = serde_json::to_vec(kept)?;
        line.push(b'\n');
        *bytes += line.len() as u64;
        file.write_all(&line)
    }
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("old.jsonl")
}

/// The decisions in a file. A line that was not written whole is skipped.
fn read(path: &Path) -> impl Iterator<Item = Kept> + use<> {
    let lines = File::open(path).ok().map(|file| BufReader::new(file).lines());
    let lines = lines.into_iter().flatten().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(&line).ok())
}

#[cfg(test)]
mod tests {
    use fondaco_decisions::balance::{BalanceMode, Outcome};

    use super::*;

    fn kept(number: u64) -> Kept {
        Kept {
            input: None,
            decision: Decision {
                number,
                at_unix_ms: number,
                mode: BalanceMode::Propose,
                outcome: Outcome::Nothing,
                reasons: vec!["because".to_owned()],
                advice: Vec::new(),
                struggling: Default::default(),
                machines: None,
            },
            plan: None,
        }
    }

    #[test]
    fn decisions_are_there_again_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("decisions.jsonl");
        let journal = Journal::open(Some(path.clone()));
        assert_eq!(journal.next_number(), 1);
        (1..=5).for_each(|number| journal.add(kept(number)));
        drop(journal);
        // The end of a write that was cut short.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"input\":nu").unwrap();
        let journal = Journal::open(Some(path));
        assert_eq!(journal.next_number(), 6);
        assert_eq!(journal.get(3), Some(kept(3)));
        let last: Vec<u64> = journal
            .last(2, |decision| decision.number != 4)
            .iter()
            .map(|kept| kept.decision.number)
            .collect();
        assert_eq!(last, [5, 3]);
    }

    #[test]
    fn a_directory_that_cannot_be_made_stops_no_decision() {
        // Nothing can be made below a file.
        let file = tempfile::NamedTempFile::new().unwrap();
        let journal = Journal::open(Some(file.path().join("decisions.jsonl")));
        journal.add(kept(1));
        assert_eq!(journal.next_number(), 2);
    }
}
