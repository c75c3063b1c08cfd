//! Sessions and waits that all tests here share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fondaco_coordination::{
    Coordination, CoordinationError, EntryPath, SessionState, Watch, WatchEvent, ZooKeeperCoordination,
    ZooKeeperSettings,
};

/// How long a test waits for an event. Generous: the machine may be busy.
pub const SOON: Duration = Duration::from_secs(60);

/// The session timeout: so long that no session expires because the machine is busy.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

pub fn path(text: &str) -> EntryPath {
    text.parse().unwrap()
}

/// A root that no other test of this process uses.
pub fn own_root() -> String {
    static ROOTS: AtomicUsize = AtomicUsize::new(0);
    format!(
        "/tests/{}-{}",
        std::process::id(),
        ROOTS.fetch_add(1, Ordering::Relaxed)
    )
}

pub fn settings(servers: &str, root: &str) -> ZooKeeperSettings {
    let mut settings = ZooKeeperSettings::new(servers, root);
    settings.session_timeout_ms = SESSION_TIMEOUT.as_millis() as u64;
    settings.call_timeout_ms = SOON.as_millis() as u64;
    settings
}

pub fn connect(servers: &str, root: &str) -> Arc<dyn Coordination> {
    Arc::new(ZooKeeperCoordination::connect(settings(servers, root)).unwrap())
}

/// Waits for an event, and skips others before it.
#[track_caller]
pub fn expect(watch: &Watch, expected: &WatchEvent) {
    let deadline = Instant::now() + SOON;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match watch.next(left) {
            Some(event) if event == *expected => return,
            Some(_) => {}
            None => panic!("waited {SOON:?} in vain for {expected:?}"),
        }
    }
}

/// Waits until these paths were reported as changed, and returns all paths reported so far.
#[track_caller]
pub fn expect_changed(watch: &Watch, expected: &[&str]) -> BTreeSet<EntryPath> {
    let deadline = Instant::now() + SOON;
    let expected: BTreeSet<_> = expected.iter().map(|text| path(text)).collect();
    let mut seen = BTreeSet::new();
    while !seen.is_superset(&expected) {
        match watch.next(deadline.saturating_duration_since(Instant::now())) {
            Some(WatchEvent::Changed(paths)) => seen.extend(paths),
            event => panic!("{event:?} instead of changes at {expected:?}, after {seen:?}"),
        }
    }
    seen
}

#[track_caller]
pub fn expect_conflict<T: std::fmt::Debug>(result: Result<T, CoordinationError>, at: &str) {
    match result {
        Err(CoordinationError::Conflict { path: found }) => assert_eq!(found, path(at)),
        other => panic!("{other:?} instead of a conflict at {at:?}"),
    }
}

pub fn is_connected(session: &dyn Coordination) -> bool {
    session.session().state == SessionState::Connected
}
