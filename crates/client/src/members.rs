//! Sets of versioned graphs, whose members are records of their own. The members that the replicas of a quorum report
//! are united. If the replicas disagree about a member, its own record decides, which is read at its quorum as any
//! other.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_ids::{Members, encode};
use fondaco_model::member;
use fondaco_model::versioned::{Resolution, resolve};
use fondaco_protocol::{WireKey, now_unix_ms};

use crate::client::Inner;
use crate::error::ClientError;
use crate::options::ReadOptions;
use crate::quorum::Get;
use crate::read::KEYS_MAX;
use crate::sets::Computed;

impl Inner {
    /// The sets whose keys these are, encoded; `None` for an empty one.
    pub(crate) async fn members(
        self: &Arc<Self>,
        keys: Vec<WireKey>,
        options: &ReadOptions,
    ) -> Result<Computed, ClientError> {
        let keys = Arc::new(keys);
        let read = self.coordinate(
            |snapshot, env| Get::members(Arc::clone(&keys), options.clone(), Arc::clone(&snapshot.home), env),
            |get: &mut Get| Ok((get.take_members()?, get.requests(), get.take_room())),
        );
        let (sets, mut requests, _room) = read.await?;
        let mut sets = sets.into_iter().collect::<Result<Vec<_>, _>>()?;
        let doubtful = sets
            .iter()
            .enumerate()
            .flat_map(|(at, set)| set.doubtful().into_iter().map(move |id| (at, id)));
        let doubtful: Vec<(usize, u64)> = doubtful.collect();
        let now_unix_ms = now_unix_ms();
        let mut gone = vec![HashSet::new(); sets.len()];
        for some in doubtful.chunks(KEYS_MAX) {
            let key = |&(at, id): &(usize, u64)| WireKey::parse(member::key(keys[at].as_bytes(), id).into());
            let wanted = Arc::new(some.iter().map(key).collect::<Result<Vec<_>, _>>()?);
            let (records, further, _room) = self.read_records(wanted, options).await?;
            requests += further;
            for (&(at, id), record) in some.iter().zip(records) {
                if resolve(&record?, Resolution::Latest, now_unix_ms).value().is_none() {
                    gone[at].insert(id);
                }
            }
        }
        for (set, gone) in sets.iter_mut().zip(gone) {
            set.present.retain(|id| !gone.contains(id));
        }
        let encoded = |set: &Members| match set.present[..] {
            [] => Ok(None),
            _ => encode(&set.present).map(|set| Some(Bytes::from(set))),
        };
        Ok(Computed {
            elements: sets.iter().map(encoded).collect::<Result<_, _>>()?,
            pinned: None,
            requests,
        })
    }
}
