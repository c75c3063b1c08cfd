//! Followers over RESP: the node's server asks for their changes here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use fondaco_node::{ChangeReader, ChangesWanted, FollowedChange};

use super::follow::{Begin, read};
use super::position::Place;
use crate::app::{App, WeakApp};
use crate::error::ApiError;

/// Answers followers over RESP as this process does over HTTP.
pub fn change_reader(app: &App) -> Arc<dyn ChangeReader> {
    Arc::new(Reader(app.weak()))
}

struct Reader(WeakApp);

impl ChangeReader for Reader {
    fn read(
        &self,
        wanted: ChangesWanted,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<FollowedChange>, String>> + Send + '_>> {
        Box::pin(async move { changes(&self.0, wanted).await.map_err(|error| refusal(&error)) })
    }
}

async fn changes(app: &WeakApp, wanted: ChangesWanted) -> Result<Vec<FollowedChange>, ApiError> {
    let begin = Begin::parse(&wanted.from)?;
    let followers = app.upgrade().ok_or_else(super::ending)?.limits.followers.clone();
    let follower = followers.enter(&wanted.store)?;
    let former = match &begin {
        Begin::At(position) => Some(position.clone()),
        _ => None,
    };
    let step = read(app, &wanted.store, begin, (wanted.count, wanted.wait), &follower).await?;
    followers.count_sent(step.changes.len());
    match (step.changes.is_empty(), step.waits_for) {
        (true, Some(reason)) => Err(ApiError::new("unavailable", reason)),
        (true, None) => {
            // The client learns its position from entries alone. Without this one it would be left behind by versions without differences.
            let place = &step.position.place;
            let is_due = former.is_some_and(|former| place.is_due_after(&former.place));
            let marker = is_due.then(|| FollowedChange {
                key: Vec::new(),
                before: None,
                after: None,
                version: match place {
                    Place::View(now) => now.version.get(),
                    Place::Records(_) => 0,
                },
                time_unix_ms: None,
                position: step.position.encode(),
            });
            Ok(marker.into_iter().collect())
        }
        (false, _) => Ok(step.changes),
    }
}

fn refusal(error: &ApiError) -> String {
    let code = match error.code() {
        "unavailable" => "UNAVAILABLE",
        "overloaded" => "OVERLOADED",
        "too_far_behind" => "TOOFARBEHIND",
        "nothing_served" => "NOVERSION",
        _ => "ERR",
    };
    format!("{code} {}", error.message())
}
