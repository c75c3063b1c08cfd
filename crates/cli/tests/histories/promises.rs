//! Tests that stores keep their promises.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use fastrand::Rng;
use redis::Commands;

use super::clients::Client;
use super::faults::Faults;
use super::ledger::{Account, Ledger};
use super::machines::Machines;
use super::node::until;
use super::settling::settle;
use super::stores::STORES;

/// One more than the number of replicas, so that each key has a node that does not own it.
const NODES: u8 = 4;
const CLIENTS: usize = 8;
/// How long faults occur, unless `FONDACO_CHECKER_SECONDS` is set.
const SECONDS: u64 = 28;
/// The least number of checked answers per store, so that the test proves something.
const ANSWERS_MIN: u64 = 100;

/// Stops the clients when the test ends, even by a panic.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

pub fn given(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|error| panic!("{variable}={text:?}: {error}")),
    )
}

/// In every store no acknowledged write is lost, including concurrent ones, and replicas converge. Where R + W > N and
/// hints do not count, a read sees every write that was acknowledged before. The store that reads and writes a single
/// replica breaks this, which proves that the checker would notice.
#[test]
fn stores_keep_promises_while_processes_networks_disks_and_clocks_fail() {
    let seed = given("FONDACO_CHECKER_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seconds = given("FONDACO_CHECKER_SECONDS").unwrap_or(SECONDS);
    println!("FONDACO_CHECKER_SEED={seed} FONDACO_CHECKER_SECONDS={seconds}");
    let mut machines = Machines::start(NODES);
    let mut rng = Rng::with_seed(seed);
    STORES
        .iter()
        .for_each(|store| store.create(&machines.cluster, &mut rng));
    let addresses = machines.cluster.resp_addresses();
    until_known(&addresses);

    let ledger = Ledger::new(&STORES);
    let mut troubles = Faults::of(seed);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = End(&is_over);
        for number in 0..CLIENTS {
            let client = Client::new(number, seed, &ledger, &addresses);
            scope.spawn(|| client.work(&is_over));
        }
        let begun = Instant::now();
        let mut end = begun + Duration::from_secs(seconds);
        troubles.make(&mut machines, &ledger, end);
        // A busy machine answers less.
        while !ledger.accounts().iter().all(has_shown) && end < begun + 4 * Duration::from_secs(seconds) {
            end += Duration::from_secs(seconds / 2);
            troubles.make(&mut machines, &ledger, end);
        }
        drop(over);
    });
    println!("{}", troubles.told());
    if !ledger.is_broken() {
        settle(&machines, &ledger);
    }
    for account in ledger.accounts() {
        println!("{}", account.summary());
        let broken = account.broken();
        match account.store.is_weak {
            true => assert!(!broken.is_empty(), "what {} breaks went unnoticed", account.store.name),
            false => assert!(broken.is_empty(), "{}: {}", account.store.name, broken.join("\n")),
        }
        let answers = answers(account);
        assert!(
            answers >= ANSWERS_MIN,
            "only {answers} answers of {}",
            account.store.name
        );
    }
}

/// How many reads were compared, and how many writes acknowledged: the smaller number.
fn answers(account: &Account) -> u64 {
    account.reads().min(account.acknowledged() as u64)
}

/// Whether enough was answered, and what a weak store breaks was noticed.
fn has_shown(account: &Account) -> bool {
    answers(account) >= ANSWERS_MIN && (!account.store.is_weak || !account.broken().is_empty())
}

/// Waits until every server knows every store.
fn until_known(addresses: &[String]) {
    for address in addresses {
        let client = redis::Client::open(format!("redis://{address}")).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut knows = |name: &str| {
            let asked: redis::RedisResult<Option<String>> = connection.get(format!("{name}:nothing"));
            asked.is_ok()
        };
        until("every server knows every store", || {
            STORES.iter().all(|store| knows(store.name))
        });
    }
}
