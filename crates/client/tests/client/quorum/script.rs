//! Helpers that run one operation at a time to its answer.

use std::sync::Arc;
use std::time::Duration;

use fondaco_client::quorum::{Decide, EditOptions, Get, Intent, NoQuorum, Update, Updated, Write, Written};
use fondaco_client::{ClientError, Partial, ReadOptions};
use fondaco_model::versioned::{self, Record, Resolution, resolve};
use fondaco_protocol::WireKey;

use super::world::{DEADLINE_US, Shape, World, key, times};

pub fn options() -> ReadOptions {
    ReadOptions {
        deadline: Duration::from_micros(DEADLINE_US),
        partial: Partial::PerKey,
        ..ReadOptions::default()
    }
}

/// The update that sets a key to this text now.
pub fn value(world: &World, text: &str) -> versioned::Update {
    versioned::Update::put(text.to_owned().into(), world.env().now_unix_ms, None)
}

pub fn begin_get(world: &mut World, keys: &[WireKey]) -> usize {
    let keys = Arc::new(keys.to_vec());
    let get = Get::start(keys, options(), Arc::clone(&world.home), None, &world.env()).unwrap();
    world.begin(Box::new(get))
}

pub fn begin_write(world: &mut World, key: &WireKey, intent: Intent, update: versioned::Update) -> usize {
    let home = Arc::clone(&world.home);
    let write = Write::start(key.clone(), intent, update, times(), home, &world.env()).unwrap();
    world.begin(Box::new(write))
}

pub fn begin_put(world: &mut World, key: &WireKey, text: &str) -> usize {
    let update = value(world, text);
    begin_write(world, key, Intent::All, update)
}

pub fn begin_update(world: &mut World, key: &WireKey, decide: Decide) -> usize {
    begin_update_with(world, key, decide, times().into())
}

pub fn begin_update_with(world: &mut World, key: &WireKey, decide: Decide, options: EditOptions) -> usize {
    let (home, seed) = (Arc::clone(&world.home), world.random.u64(..));
    let update = Update::start(key.clone(), decide, options, home, seed, &world.env()).unwrap();
    world.begin(Box::new(update))
}

/// The result of a read, once it is answered.
pub fn read(world: &mut World, at: usize) -> Vec<Result<Record, ClientError>> {
    world.operation::<Get>(at).take_answer().unwrap()
}

pub fn written(world: &mut World, at: usize) -> Result<Written, ClientError> {
    world.operation::<Write>(at).take_answer()
}

pub fn updated(world: &mut World, at: usize) -> Result<Updated, ClientError> {
    world.operation::<Update>(at).take_answer()
}

/// Reads a key, and runs the operation to its end.
pub fn get(world: &mut World, key: &WireKey) -> (usize, Result<Record, ClientError>) {
    let at = begin_get(world, std::slice::from_ref(key));
    world.answer(at);
    let record = read(world, at).pop().unwrap();
    world.finish();
    (at, record)
}

/// Writes a key, and runs the operation to its end.
pub fn put(world: &mut World, key: &WireKey, text: &str) -> (usize, Result<Written, ClientError>) {
    let at = begin_put(world, key, text);
    world.answer(at);
    let written = written(world, at);
    world.finish();
    (at, written)
}

/// All values of a record, sorted by their bytes.
pub fn values(record: &Record) -> Vec<String> {
    let resolved = resolve(record, Resolution::All, 0);
    let mut values: Vec<String> = resolved
        .values
        .iter()
        .map(|value| String::from_utf8(value.to_vec()).unwrap())
        .collect();
    values.sort();
    values
}

pub fn no_quorum<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Arc<NoQuorum> {
    match result {
        Err(ClientError::NoQuorum(shortfall)) => shortfall,
        other => panic!("{other:?} is not a missing quorum"),
    }
}

/// A key with node 1 as the first owner, 2 as the second, and so on.
pub fn first_key() -> WireKey {
    let (shape, text) = (Shape::three(), |number: u32| key(&format!("key-{number}")));
    let partitions = shape.topology(|_| true).partitions;
    let of_first = |key: &WireKey| partitions.partition_of(key.slot()).get() == 0;
    (0..).map(text).find(of_first).unwrap()
}

/// A world in which a key has a value everywhere.
pub fn with_value(shape: &Shape, home: Option<u32>) -> (World, WireKey) {
    let (mut world, key) = (World::new(1, shape, home), first_key());
    put(&mut world, &key, "old").1.unwrap();
    for replica in world.replicas.values_mut() {
        replica.hints.clear();
    }
    (world, key)
}
