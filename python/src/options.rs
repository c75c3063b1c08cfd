//! Options of requests: `fondaco.ReadOptions`, and the arguments of writes.

use std::time::Duration;

use fondaco_client::read::{FanOut, named};
use fondaco_client::{Partial, PutOptions, ReadOptions};
use fondaco_model::StrategyName;
use fondaco_model::versioned::VectorClock;
use fondaco_protocol::now_unix_ms;
use pyo3::prelude::*;

use crate::fault::Fault;

/// The attributes of `fondaco.ReadOptions`.
#[derive(FromPyObject)]
pub struct Reading {
    deadline_ms: Option<f64>,
    attempt_ms: Option<f64>,
    partial: bool,
    hedge: bool,
    strategy: Option<String>,
    fan_out: Option<usize>,
}

/// The options of a read; `None` has the client's deadline.
pub fn read_options(given: Option<Reading>, deadline: Duration) -> Result<ReadOptions, Fault> {
    let Some(given) = given else {
        return Ok(ReadOptions {
            deadline,
            ..ReadOptions::default()
        });
    };
    let strategy = given.strategy.as_deref().map(str::parse::<StrategyName>).transpose();
    let strategy = strategy.map_err(|error| Fault::bad_input(error.to_string()))?;
    Ok(ReadOptions {
        deadline: given.deadline_ms.map(milliseconds).transpose()?.unwrap_or(deadline),
        attempt: given.attempt_ms.map(milliseconds).transpose()?,
        partial: match given.partial {
            true => Partial::PerKey,
            false => Partial::Fail,
        },
        hedge: given.hedge,
        strategy: strategy.map(named),
        fan_out: given.fan_out.map_or(FanOut::All, FanOut::Groups),
        ..ReadOptions::default()
    })
}

/// The options of a write.
pub fn put_options(context: Option<&[u8]>, ttl_ms: Option<u64>, deadline: Duration) -> Result<PutOptions, Fault> {
    Ok(PutOptions {
        context: context.map(parse_context).transpose()?,
        ttl: ttl_ms.map(Duration::from_millis),
        deadline,
        attempt: None,
    })
}

/// A context that an earlier call returned.
fn parse_context(bytes: &[u8]) -> Result<VectorClock, Fault> {
    let invalid = || Fault::bad_input("the context is not one that get_context, get_contexts or put returned");
    let context = VectorClock::decode(bytes).map_err(|_| invalid())?;
    context
        .check_given(now_unix_ms())
        .map_err(|error| Fault::bad_input(error.to_string()))?;
    Ok(context)
}

/// A time that is given in milliseconds.
pub fn milliseconds(number: f64) -> Result<Duration, Fault> {
    Duration::try_from_secs_f64(number / 1000.0)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| Fault::bad_input(format!("{number} ms is no time limit: give a number greater than 0")))
}
