//! A candidate's part in an election, by the usual recipe.
//!
//! Its node is sequential and ephemeral. The candidate with the lowest number leads and watches its own node; each
//! other candidate watches the node right before its own. So each candidate has one watch, and the end of one wakes
//! one.
//!
//! The node's name begins with the session and a number in it: if the answer to its creation is lost, the node is found
//! again.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use zookeeper_client::{Client, CreateMode, Error};

use super::connection::{Link, connected};
use super::settings::ZooKeeperSettings;
use super::{RETRY, acls, names_below};
use crate::election::{Lead, in_order};

/// A candidate and its election.
pub(super) struct Candidacy {
    /// The parent node of the candidates' nodes.
    pub(super) election: String,
    /// The number of the candidate in this process.
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) settings: Arc<ZooKeeperSettings>,
    pub(super) lead: Lead,
}

/// Takes part until it resigns, or the session ends.
pub(super) async fn run(candidacy: Candidacy, mut links: watch::Receiver<Link>, mut resigned: oneshot::Receiver<()>) {
    // A session that has ended closes its candidacies: its nodes are gone.
    while let Ok(client) = connected(&mut links).await {
        let result = tokio::select! {
            biased;
            _ = &mut resigned => {
                candidacy.lead.set(false);
                candidacy.resign(&client).await;
                return;
            }
            changed = links.changed() => match changed {
                Ok(()) => Ok(()),
                Err(_) => break,
            },
            result = candidacy.stand(&client) => result,
        };
        candidacy.lead.set(false);
        if let Err(error) = result {
            tracing::debug!(election = candidacy.election, %error, "an election in ZooKeeper was interrupted");
            tokio::time::sleep(RETRY).await;
        }
    }
}

impl Drop for Candidacy {
    /// A candidate that does not take part does not lead, also when the session's thread ends first.
    fn drop(&mut self) {
        self.lead.set(false);
    }
}

impl Candidacy {
    /// Takes part in the election until an error.
    async fn stand(&self, client: &Client) -> Result<(), Error> {
        loop {
            let candidates = in_order(names_below(client, &self.election).await?);
            let own = self.prefix(client);
            let Some(at) = candidates.iter().position(|name| name.starts_with(&own)) else {
                self.lead.set(false);
                self.join(client).await?;
                continue;
            };
            let awaited = &candidates[at.saturating_sub(1)];
            let (stat, watcher) = client
                .check_and_watch_stat(&format!("{}/{awaited}", self.election))
                .await?;
            if stat.is_none() {
                continue;
            }
            self.lead.set(at == 0);
            watcher.changed().await;
        }
    }

    async fn join(&self, client: &Client) -> Result<(), Error> {
        let path = format!("{}/{}", self.election, self.prefix(client));
        let options = CreateMode::EphemeralSequential.with_acls(acls(&self.settings));
        match client.create(&path, &self.bytes, &options).await {
            Err(Error::NoNode) => {
                let options = CreateMode::Persistent.with_acls(acls(&self.settings));
                client.mkdir(&self.election, &options).await
            }
            result => result.map(drop),
        }
    }

    /// If it fails, the end of the session deletes the node.
    async fn resign(&self, client: &Client) {
        let own = self.prefix(client);
        let Ok(candidates) = names_below(client, &self.election).await else {
            return;
        };
        for name in candidates.iter().filter(|name| name.starts_with(&own)) {
            let _ = client.delete(&format!("{}/{name}", self.election), None).await;
        }
    }

    fn prefix(&self, client: &Client) -> String {
        format!("candidate-{:016x}-{}-", client.session_id().0, self.number)
    }
}
