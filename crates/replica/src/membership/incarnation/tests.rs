//! The sequence of incarnations, and the state stored with them.

use std::collections::BTreeSet;

use tempfile::TempDir;

use super::*;
use crate::host::LocalHost;

fn host(dir: &TempDir) -> Arc<dyn Host> {
    Arc::new(LocalHost::new(dir.path()))
}

/// Opens the file, after an engine has found lost writes or not.
fn open(dir: &TempDir, has_lost: bool) -> Result<Incarnation, ReplicasError> {
    if has_lost {
        note_lost(&*host(dir), EngineKind::Log, "a segment is missing")?;
    }
    Incarnation::open(&host(dir), Opening::default())
}

fn open_in_boot(dir: &TempDir, boot_id: &str) -> Incarnation {
    let opening = Opening {
        boot_id: Some(boot_id.to_owned()),
        local_engines: vec![EngineKind::Log, EngineKind::Disk],
        ..Opening::default()
    };
    Incarnation::open(&host(dir), opening).unwrap()
}

fn begins(incarnation: &Incarnation, lasting: Lasting) -> (u32, u64) {
    let dots = incarnation.dots(NodeId::FIRST, lasting);
    (dots.replica().incarnation, dots.last())
}

#[test]
fn after_a_clean_shutdown_the_counter_continues() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&dir, false).unwrap();
    let (number, last) = begins(&first, Lasting::Durable);
    assert_eq!(last, 0);
    first.end(7).unwrap();
    let second = open(&dir, false).unwrap();
    assert_eq!(begins(&second, Lasting::Durable), (number, 7));
    second.end(0).unwrap();
    let third = open(&dir, false).unwrap();
    let expected = (number, 7);
    assert_eq!(
        begins(&third, Lasting::Durable),
        expected,
        "no dot was given in between"
    );
}

#[test]
fn after_any_other_end_a_new_incarnation_begins() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&dir, false).unwrap();
    let second = open(&dir, false).unwrap();
    assert_ne!(begins(&first, Lasting::Durable).0, begins(&second, Lasting::Durable).0);
    assert_eq!(begins(&second, Lasting::Durable).1, 0);
}

#[test]
fn after_a_loss_a_new_incarnation_always_begins() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&dir, false).unwrap();
    first.end(7).unwrap();
    let second = open(&dir, true).unwrap();
    assert_ne!(begins(&first, Lasting::Durable).0, begins(&second, Lasting::Durable).0);
    assert_eq!(begins(&second, Lasting::Durable).1, 0);
    // The same while the process runs.
    second.end(9).unwrap();
    let before = [Lasting::Durable, Lasting::Volatile].map(|lasting| begins(&second, lasting));
    second.renew().unwrap();
    assert_eq!(second.renewed(), 1);
    let after = [Lasting::Durable, Lasting::Volatile].map(|lasting| begins(&second, lasting));
    for (before, after) in before.into_iter().zip(after) {
        assert!(before.0 != after.0 && after.1 == 0, "{before:?} {after:?}");
    }
    // The new one is on the disk, and has not ended.
    let third = open(&dir, false).unwrap();
    assert_ne!(begins(&third, Lasting::Durable).0, after[0].0);
}

#[test]
fn every_write_of_the_file_keeps_the_engines() {
    let dir = tempfile::tempdir().unwrap();
    let known_engines = || read(&*host(&dir)).unwrap().map(|stored| stored.engines);
    assert_eq!(known_engines(), None);
    let engines = BTreeMap::from([(EngineKind::Log, 7), (EngineKind::Disk, u64::MAX)]);
    let opening = Opening {
        engines: engines.clone(),
        ..Opening::default()
    };
    let incarnation = Incarnation::open(&host(&dir), opening).unwrap();
    incarnation.renew().unwrap();
    incarnation.fall_behind().unwrap();
    incarnation.caught_up(1).unwrap();
    assert_eq!(known_engines().as_ref(), Some(&engines));
    incarnation.end(3).unwrap();
    assert_eq!(known_engines().as_ref(), Some(&engines));
}

#[test]
fn an_unclean_reboot_counts_as_a_loss_until_resolved() {
    let dir = tempfile::tempdir().unwrap();
    let loss = |incarnation: &Incarnation| incarnation.lost(EngineKind::Log, Some(Scope::Unsynced));
    open_in_boot(&dir, "a").end(1).unwrap();
    assert_eq!(loss(&open_in_boot(&dir, "b")), None, "it had shut down cleanly");
    assert_eq!(loss(&open_in_boot(&dir, "b")), None, "it was killed, in the same boot");
    let first = loss(&open_in_boot(&dir, "c")).unwrap();
    assert!(first.contains("its boot was b and is c"), "{first}");
    let again = open_in_boot(&dir, "c");
    assert_eq!(loss(&again), Some(first.clone()), "remembered");
    again.end(1).unwrap();
    let again = open_in_boot(&dir, "d");
    assert_eq!(loss(&again).as_ref(), Some(&first));
    let more = loss(&open_in_boot(&dir, "e")).unwrap();
    assert!(
        more.starts_with(&first) && more.len() > first.len(),
        "another loss has another text"
    );
    let given_up = open_in_boot(&dir, "e");
    given_up.forget_lost(EngineKind::Log).unwrap();
    assert!(loss(&given_up).is_none() && given_up.has_lost());
    given_up.caught_up(0).unwrap();
    assert!(!given_up.has_lost() && !open_in_boot(&dir, "e").has_lost());
}

#[test]
fn the_count_persists_and_a_loss_begins_a_new_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&dir, false).unwrap();
    assert_eq!(first.count(), None);
    first.set_count(7).unwrap();
    first.caught_up(0).unwrap();
    first.end(3).unwrap();
    let second = open(&dir, false).unwrap();
    assert_eq!(second.count(), Some(7));
    let before = begins(&second, Lasting::Durable);
    second.lose(std::iter::once(EngineKind::Log), "an older copy").unwrap();
    assert!(second.is_behind() && second.falls() == 1 && second.renewed() == 1);
    let after = begins(&second, Lasting::Durable);
    assert!(after.0 != before.0 && after.1 == 0);
    second.caught_up(0).unwrap();
    assert!(second.is_behind(), "the restored state was older than this loss");
    let third = open(&dir, false).unwrap();
    assert!(third.is_behind() && third.count() == Some(7));
    assert_eq!(third.lost(EngineKind::Log, None).as_deref(), Some("an older copy"));
}

#[test]
fn volatile_data_gets_a_new_incarnation_at_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&dir, false).unwrap();
    first.end(7).unwrap();
    let second = open(&dir, false).unwrap();
    assert_ne!(
        begins(&first, Lasting::Volatile).0,
        begins(&second, Lasting::Volatile).0
    );
    assert_eq!(begins(&second, Lasting::Volatile).1, 0);
}

#[test]
fn losing_a_new_disk_repeats_no_incarnation() {
    let begun = |_| {
        let dir = tempfile::tempdir().unwrap();
        let incarnation = open(&dir, false).unwrap();
        [Lasting::Durable, Lasting::Volatile].map(|lasting| begins(&incarnation, lasting).0)
    };
    let numbers: BTreeSet<u32> = (0..10).flat_map(begun).collect();
    assert!(!numbers.contains(&0));
    assert_eq!(numbers.len(), 20, "{numbers:?}");
}

#[test]
fn an_invalid_file_prevents_the_start() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(host(&dir).incarnation_path(), "{}").unwrap();
    let error = open(&dir, false).unwrap_err();
    assert!(matches!(error, ReplicasError::InvalidIncarnation { .. }), "{error}");
}

#[test]
fn a_loss_stays_until_it_is_restored_or_given_up() {
    let dir = tempfile::tempdir().unwrap();
    for lost in ["this", "that", "this"] {
        note_lost(&*host(&dir), EngineKind::Log, lost).unwrap();
    }
    note_lost(&*host(&dir), EngineKind::Disk, "other").unwrap();
    let described = |incarnation: &Incarnation| {
        let lost = |engine| incarnation.lost(engine, None);
        (lost(EngineKind::Log), lost(EngineKind::Disk), lost(EngineKind::Mysql))
    };
    for _ in 0..2 {
        let incarnation = open(&dir, false).unwrap();
        let expected = (Some("this; that".to_owned()), Some("other".to_owned()), None);
        assert_eq!(described(&incarnation), expected);
        assert!(incarnation.is_lost(EngineKind::Log, Durability::Fsync) && incarnation.is_behind());
        incarnation.end(1).unwrap();
    }
    open(&dir, false).unwrap().forget_lost(EngineKind::Log).unwrap();
    let incarnation = open(&dir, false).unwrap();
    assert_eq!(described(&incarnation), (None, Some("other".to_owned()), None));
    incarnation.caught_up(0).unwrap();
    assert!(!open(&dir, false).unwrap().has_lost());
}

#[test]
fn losses_of_power_that_a_former_release_noted_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        r#"{"durable":7,"volatile":9,"counted":5,"ended":true,"behind":false,"unsynced":{"log":"a loss of power"}}"#;
    std::fs::write(host(&dir).incarnation_path(), text).unwrap();
    for _ in 0..2 {
        let incarnation = open(&dir, false).unwrap();
        let lost = incarnation.lost(EngineKind::Log, Some(Scope::Unsynced));
        assert_eq!(lost.as_deref(), Some("a loss of power"));
        assert!(incarnation.is_lost(EngineKind::Log, Durability::Log));
        assert!(!incarnation.is_lost(EngineKind::Log, Durability::Fsync) && !incarnation.is_behind());
        assert_eq!(
            begins(&incarnation, Lasting::Durable),
            (7, 5),
            "it had shut down cleanly"
        );
        incarnation.end(5).unwrap();
    }
    let text = || std::fs::read_to_string(host(&dir).incarnation_path()).unwrap();
    assert!(
        text().contains("lost_writes"),
        "a former release must not use the data meanwhile"
    );
    open(&dir, false).unwrap().caught_up(0).unwrap();
    assert!(
        !text().contains("lost_writes"),
        "a former release may use the data again"
    );
}
