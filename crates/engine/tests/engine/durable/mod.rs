//! The guarantees of the engines on disk after failures: the same tests for each.

mod batches;
mod crashes;
mod engines;
mod failed_sync;
mod full_disk;
mod locked;
mod rot;
mod shortened;
mod unreadable;

use engines::Kind;

/// All cases, for each engine.
macro_rules! durable {
    ($($module:ident::$case:ident),* $(,)?) => {
        durable!(@ tree, Kind::Tree, $($module::$case),*);
        durable!(@ log, Kind::Log, $($module::$case),*);
    };
    (@ $engine:ident, $kind:expr, $($module:ident::$case:ident),*) => {
        mod $engine {
            use super::*;
            $(#[test]
            fn $case() {
                $module::$case($kind);
            })*
        }
    };
}

durable! {
    crashes::acknowledged_writes_survive_kills_at_random_times,
    failed_sync::after_a_failed_sync_writes_and_syncs_fail_until_reopened,
    failed_sync::background_failures_stop_all_writes_unless_the_disk_is_full,
    failed_sync::the_first_sync_covers_writes_of_an_earlier_process,
    full_disk::a_full_disk_refuses_writes_until_there_is_space,
    full_disk::a_full_disk_takes_deletions,
    full_disk::a_disk_that_is_filled_to_its_last_byte_loses_nothing_that_was_acknowledged,
    full_disk::writing_out_and_merging_leave_the_reserve_alone,
    locked::a_directory_in_use_is_refused_until_it_is_released,
    rot::a_flipped_bit_never_leads_to_a_wrong_answer,
    rot::a_damaged_log_loses_only_damaged_batches_and_reports_them,
    rot::a_log_is_cut_off_only_after_a_note_and_a_durable_copy,
    rot::a_loss_that_a_former_release_noted_is_noted_once,
    rot::a_partial_batch_at_the_end_is_not_damage,
    shortened::a_directory_whose_making_was_interrupted_has_lost_nothing,
    shortened::a_log_shorter_than_before_is_a_loss,
    shortened::a_missing_log_is_a_loss,
    shortened::neither_a_clean_stop_nor_a_kill_is_a_loss,
    unreadable::an_unreadable_record_is_damage_of_its_key,
}
