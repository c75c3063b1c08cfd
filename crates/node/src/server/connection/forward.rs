//! The look-ups of a connection that other nodes have to answer.
//!
//! They are asked for together, before the first reply of the window is written: so the replies can still
//! be made of one version of each store, when a node that answered has swapped before this one, or after.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use fondaco_model::VersionNumber;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Connection;
use crate::catalog::Catalog;
use crate::forward::{KeyAnswer, Wanted};
use crate::metrics::Counter;
use crate::server::window::{Place, Window};

/// What other nodes have answered for the keys of a window: nothing where none was asked.
pub(super) type Others = Vec<Option<KeyAnswer>>;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Answers a window with keys that are not held here.
    pub(super) async fn run_split(&mut self, catalog: Arc<Catalog>, started: Instant) -> io::Result<()> {
        // What the disk is needed for goes on meanwhile.
        let reads = self.look_ahead(&catalog, &Others::new());
        let others = self.ask_others(&catalog).await;
        let place = Place::default();
        self.run_waiting(catalog, place, reads, others, started).await
    }

    async fn ask_others(&self, catalog: &Catalog) -> Others {
        let window = &self.window;
        let mut others: Others = (0..window.key_count()).map(|_| None).collect();
        let keys: Vec<usize> = (0..window.key_count()).filter(|&at| window.is_elsewhere(at)).collect();
        let answers = self.context.forwarder.read(catalog, &wanted(window, &keys)).await;
        for (&at, answer) in keys.iter().zip(answers) {
            others[at] = Some(answer);
        }
        let keys = keys_of_several_versions(window, catalog, &others);
        if !keys.is_empty() {
            self.context.metrics.add(Counter::ForwardRepeats, keys.len() as u64);
            let answers = self.context.forwarder.read_anew(catalog, &wanted(window, &keys)).await;
            for (&at, answer) in keys.iter().zip(answers) {
                others[at] = Some(answer);
            }
        }
        others
    }
}

fn wanted<'a>(window: &'a Window, keys: &[usize]) -> Vec<Wanted<'a>> {
    let wanted = |&at: &usize| {
        let (key, store) = window.key(at);
        Wanted { store, key }
    };
    keys.iter().map(wanted).collect()
}

/// All keys of those stores that are about to be answered from more than one version: this node is to
/// look some up in its own, and others have answered from theirs.
fn keys_of_several_versions(window: &Window, catalog: &Catalog, others: &Others) -> Vec<usize> {
    let mut versions: Vec<(u16, VersionNumber)> = Vec::new();
    let mut mixed: Vec<u16> = Vec::new();
    for at in window.unpinned() {
        let (_, store) = window.key(at);
        let version = match &others[at] {
            None => catalog.current_number(store),
            Some(Ok(found)) => Some(found.version),
            Some(Err(_)) => None,
        };
        let Some(version) = version else { continue };
        match versions.iter().find(|(known, _)| *known == store) {
            None => versions.push((store, version)),
            Some(&(_, first)) if first == version || mixed.contains(&store) => {}
            Some(_) => mixed.push(store),
        }
    }
    match mixed[..] {
        [] => Vec::new(),
        _ => window
            .unpinned()
            .filter(|&at| mixed.contains(&window.key(at).1))
            .collect(),
    }
}
