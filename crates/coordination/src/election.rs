//! Elections: one of the candidates leads.
//!
//! Each candidate has an ephemeral entry below the path of the election, with a growing number. The lowest number
//! leads; each other candidate waits for the one right before it, so that the end of a leader wakes one candidate.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::on_drop::OnDrop;

/// The digits at the end of a candidate's name: its sequence number.
const SEQUENCE_DIGITS: usize = 10;

/// A candidacy. Dropping it resigns.
pub struct Election {
    lead: Lead,
    _resign: OnDrop,
}

impl Election {
    pub(crate) fn new(lead: Lead, resign: OnDrop) -> Self {
        Self { lead, _resign: resign }
    }

    /// Whether this candidate leads. False as soon as the service does not answer: another candidate may lead after a
    /// session timeout.
    ///
    /// A leader learns late that it lost the lead, so its writes must be conditional.
    pub fn is_leader(&self) -> bool {
        *self.lead.0.leads.lock()
    }

    /// Waits until this candidate leads, at most for this time. Returns whether it does.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut leads = self.lead.0.leads.lock();
        self.lead.0.changed.wait_while_for(&mut leads, |leads| !*leads, timeout);
        *leads
    }
}

/// Whether a candidate leads: set by the session, waited for by the caller.
#[derive(Clone, Default)]
pub(crate) struct Lead(Arc<Leading>);

#[derive(Default)]
struct Leading {
    leads: Mutex<bool>,
    changed: Condvar,
}

impl Lead {
    pub(crate) fn set(&self, leads: bool) {
        *self.0.leads.lock() = leads;
        self.0.changed.notify_all();
    }
}

/// The number at the end of a candidate's name; `None` for any other name.
fn sequence_of(candidate: &str) -> Option<&str> {
    let at = candidate.len().checked_sub(SEQUENCE_DIGITS)?;
    let digits = candidate.get(at..)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(digits)
}

/// The candidates among these names, in the order in which they joined: the first leads.
pub(crate) fn in_order(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| sequence_of(name).is_some());
    names.sort_by(|a, b| sequence_of(a).cmp(&sequence_of(b)));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_leads_whatever_its_prefix() {
        let names = ["z-0000000007", "a-0000000010", "short", "b-00000000x1"];
        let candidates = in_order(names.map(str::to_owned).to_vec());
        assert_eq!(candidates, ["z-0000000007", "a-0000000010"]);
    }
}
