//! Watches: one persistent recursive watch of ZooKeeper for each prefix.
//!
//! They are set again at each connection. Then comes the event that everything may have changed, since changes
//! without a connection are not reported. (The library sets other watches again by itself, but not persistent ones.)

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use zookeeper_client::{AddWatchMode, Client, Error, EventType, PersistentWatcher};

use super::connection::{Link, is_loss};
use super::{RETRY, node_of};
use crate::path::EntryPath;
use crate::service::SessionState;
use crate::watch::Feed;

/// Pause between two attempts to set a watch that ZooKeeper refuses.
const REFUSED: Duration = Duration::from_secs(10);

/// Feeds a watch until the session ends.
pub(super) async fn feed_events(mut links: watch::Receiver<Link>, prefixes: Vec<EntryPath>, feed: Feed) {
    let mut forwarders = JoinSet::new();
    let mut connections_seen = 0;
    loop {
        let link = links.borrow_and_update().clone();
        match (link.client, link.session.state) {
            (_, SessionState::Closed) => break,
            (Some(client), _) if link.connections != connections_seen => match set(&client, &prefixes).await {
                Ok(watchers) => {
                    let before = std::mem::take(&mut forwarders);
                    for watcher in watchers {
                        forwarders.spawn(forward(watcher, feed.clone()));
                    }
                    drop(before);
                    connections_seen = link.connections;
                    feed.everything();
                }
                Err(error) if is_loss(&error) => {
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
                Err(error) => {
                    tracing::error!(?prefixes, %error, "cannot watch entries in ZooKeeper; check its access rights");
                    tokio::time::sleep(REFUSED).await;
                    continue;
                }
            },
            (Some(_), _) => {}
            (None, _) if connections_seen > 0 => {
                // Their watchers may end with their session's task.
                forwarders = JoinSet::new();
                feed.suspended();
            }
            (None, _) => {}
        }
        if links.changed().await.is_err() {
            break;
        }
    }
    feed.closed();
}

async fn set(client: &Client, prefixes: &[EntryPath]) -> Result<Vec<PersistentWatcher>, Error> {
    let mut watchers = Vec::new();
    for prefix in prefixes {
        watchers.push(
            client
                .watch(&node_of(prefix), AddWatchMode::PersistentRecursive)
                .await?,
        );
    }
    Ok(watchers)
}

async fn forward(mut watcher: PersistentWatcher, feed: Feed) {
    loop {
        let event = watcher.changed().await;
        match event.event_type {
            EventType::Session if event.session_state.is_terminated() => return,
            EventType::Session => {}
            _ => {
                // A node whose name no entry could have was not created by this program.
                if let Some(Ok(path)) = event.path.strip_prefix('/').map(str::parse) {
                    feed.changed(&path);
                }
            }
        }
    }
}
