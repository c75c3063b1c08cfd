//! Following a store: the frame, whatever the kind of the store. A kind has a [`Place`], and says where a follower begins and which changes
//! follow.
//!
//! Nothing is kept between two steps but the position. So any process continues, after a restart, and whichever nodes own the partitions by
//! then.

use std::time::{Duration, Instant};

use fondaco_decisions::operator::OperatorError;
use fondaco_model::cluster::StoreRecord;
use fondaco_model::{PROTOCOL_OF_CHANGES, StoreKind, StoreName, VersionNumber};
use fondaco_node::FollowedChange;

use super::followers::Follower;
use super::position::{Place, Position};
use super::{records, too_far_behind, views};
use crate::app::{App, WeakApp};
use crate::error::ApiError;

/// How long is paused before it is looked again whether there are changes; it doubles up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// How long a follower that does not wait may be served all the same, while it advances without changes.
const ADVANCE_TIME_MAX: Duration = Duration::from_secs(5);

/// About how many bytes of changes are gathered for an answer, and how long.
pub(super) const PAGE_BYTES: usize = 1 << 20;
const GATHER_TIME_MAX: Duration = Duration::from_millis(300);

/// Where a follower begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Begin {
    /// With what changes from now on.
    Now,
    /// With all that there is.
    Beginning,
    /// With what has changed since this version.
    Version(VersionNumber),
    /// With what has changed since a time, in milliseconds since 1970.
    Time(u64),
    /// Where it has ended.
    At(Position),
}

impl Begin {
    /// `now`, `beginning`, `version:7`, `time:1800000000000`, or a position; `$` and `0` as Redis says it.
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let parsed = match text {
            "now" | "$" => Some(Self::Now),
            "beginning" | "0" | "0-0" => Some(Self::Beginning),
            text => match text.split_once(':') {
                Some(("version", number)) => number.parse().ok().and_then(VersionNumber::new).map(Self::Version),
                Some(("time", time_unix_ms)) => time_unix_ms.parse().ok().map(Self::Time),
                _ => Position::decode(text).map(Self::At),
            },
        };
        parsed.ok_or_else(|| {
            ApiError::invalid(format!(
                "invalid position {text:?}: begin with now ($), beginning (0), version:NUMBER or time:MILLISECONDS, or continue with the \
                 whole position that the last change came with"
            ))
        })
    }
}

/// The changes of a step.
pub(super) struct Step {
    /// Each with the position after it.
    pub(super) changes: Vec<FollowedChange>,
    pub(super) position: Position,
    /// How many events of the topic have yet to be followed.
    pub(super) lag_events: u64,
    /// Why a node could not answer for all that it has.
    pub(super) waits_for: Option<String>,
    /// Whether the next step has more, whatever changes meanwhile.
    pub(super) has_more: bool,
}

/// Reads the next changes of a store, at most `limit`. Waits for the first one.
///
/// # Errors
/// The store cannot be followed from there, or the process ends. Nodes that do not answer are waited for, and named in
/// [`Step::waits_for`] in the end.
pub(super) async fn read(
    app: &WeakApp,
    name: &StoreName,
    begin: Begin,
    (limit, wait): (usize, Duration),
    follower: &Follower,
) -> Result<Step, ApiError> {
    let (begun, mut pause, mut lag_events) = (Instant::now(), PAUSE_MIN, 0);
    let mut position = match &begin {
        Begin::At(position) => Some(position.clone()),
        _ => None,
    };
    let (mut found, mut bytes): (Vec<FollowedChange>, usize) = (Vec::new(), 0);
    loop {
        // The process must be able to end meanwhile.
        let own = app.upgrade().ok_or_else(super::ending)?;
        let bounds = (
            limit.saturating_sub(found.len()).max(1),
            match found.is_empty() {
                true => wait.saturating_sub(begun.elapsed()),
                false => Duration::ZERO,
            },
        );
        let stepped = match &position {
            Some(position) => step(&own, name, position, bounds).await,
            None => match start(&own, name, &begin).await {
                Ok(begun) => step(&own, name, position.insert(begun), bounds).await,
                Err(error) => Err(error),
            },
        };
        drop(own);
        let waits = match stepped {
            Ok(mut step) => {
                follower.note_lag(step.lag_events);
                lag_events = step.lag_events;
                bytes += step.changes.iter().map(FollowedChange::bytes).sum::<usize>();
                found.append(&mut step.changes);
                let is_full = found.len() >= limit || bytes >= PAGE_BYTES || begun.elapsed() >= GATHER_TIME_MAX;
                if !found.is_empty() && (is_full || !step.has_more || step.waits_for.is_some()) {
                    step.changes = found;
                    step.cut(limit);
                    return Ok(step);
                }
                let has_moved = match step.position.place {
                    Place::View(_) => position.as_ref() != Some(&step.position),
                    // These positions move without changes, too.
                    Place::Records(_) => step.has_more,
                };
                position = Some(step.position);
                match (step.waits_for, has_moved) {
                    (None, true) if begun.elapsed() < wait.max(ADVANCE_TIME_MAX) => {
                        pause = PAUSE_MIN;
                        continue;
                    }
                    (None, true) => Some("versions or records are being compared".to_owned()),
                    (waits, _) => waits,
                }
            }
            // The error comes again.
            Err(_) if !found.is_empty() => None,
            Err(error) => Some(waits_for(error)?),
        };
        if let (false, Some(position)) = (found.is_empty(), &position) {
            return Ok(Step {
                changes: found,
                position: position.clone(),
                lag_events,
                waits_for: None,
                has_more: true,
            });
        }
        let left = wait.saturating_sub(begun.elapsed());
        if left.is_zero() {
            let position = position.ok_or_else(|| ApiError::new("unavailable", waits.clone().unwrap_or_default()))?;
            return Ok(Step {
                changes: Vec::new(),
                position,
                lag_events,
                waits_for: waits,
                has_more: false,
            });
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The reason to wait, if an error is one that passes.
fn waits_for(error: ApiError) -> Result<String, ApiError> {
    match error.code() {
        "unavailable" | "old_routing" => Ok(error.message().to_owned()),
        _ => Err(error),
    }
}

impl Step {
    /// Leaves out the changes beyond a number: they come again.
    fn cut(&mut self, limit: usize) {
        if self.changes.len() > limit {
            self.changes.truncate(limit.max(1));
            let last = self.changes.last().and_then(|last| Position::decode(&last.position));
            self.position = last.unwrap_or_else(|| self.position.clone());
        }
    }
}

/// The record of a store.
async fn followed(app: &App, name: &StoreName) -> Result<StoreRecord, ApiError> {
    let known = name.clone();
    let store = app.blocking(move |app| Ok(app.operator.store(&known)?)).await?;
    let in_force = app.operator.mirror().view().protocol();
    match in_force < PROTOCOL_OF_CHANGES {
        true => Err(OperatorError::NotYetSpoken {
            store: name.clone(),
            what: "changes to follow".to_owned(),
            in_force,
        }
        .into()),
        false => Ok(store),
    }
}

/// The position of a follower that begins.
async fn start(app: &App, name: &StoreName, begin: &Begin) -> Result<Position, ApiError> {
    let store = followed(app, name).await?;
    let place = match store.definition.kind {
        StoreKind::Batch | StoreKind::Hybrid => Place::View(views::start(app, &store, begin).await?),
        StoreKind::Versioned => Place::Records(records::start(app, &store, begin).await?),
    };
    Ok(Position {
        created_unix_ms: store.created_unix_ms,
        place,
    })
}

/// The next changes after a position. Of versioned stores at most so many, and they are waited for for a while.
async fn step(app: &App, name: &StoreName, position: &Position, bounds: (usize, Duration)) -> Result<Step, ApiError> {
    let store = followed(app, name).await?;
    if position.created_unix_ms != store.created_unix_ms {
        return Err(too_far_behind(
            &store,
            "the position is of an earlier store of this name",
        ));
    }
    match &position.place {
        Place::View(place) => views::step(app, &store, place).await,
        Place::Records(place) => records::step(app, &store, place, bounds).await,
    }
}
