//! What the engines on disk promise when something fails: the same tests for each.

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
    crashes::what_was_acknowledged_is_there_after_kills_at_random_moments,
    failed_sync::after_a_sync_that_failed_nothing_is_written_or_promised_until_it_is_opened_again,
    failed_sync::what_fails_behind_the_writer_is_the_end_of_writing_unless_the_disk_is_full,
    failed_sync::the_first_sync_covers_what_an_earlier_process_wrote,
    full_disk::a_full_disk_refuses_writes_until_there_is_space,
    full_disk::a_full_disk_takes_deletions,
    full_disk::a_disk_that_is_filled_to_its_last_byte_loses_nothing_that_was_acknowledged,
    full_disk::writing_out_and_merging_leave_the_reserve_alone,
    locked::a_directory_that_is_in_use_is_refused_until_it_is_not,
    rot::a_bit_that_changed_is_an_error_or_nothing_but_never_another_answer,
    rot::a_damaged_log_loses_only_what_is_damaged_and_says_so,
    rot::a_log_is_not_cut_off_before_what_comes_after_it_is_set_aside_for_good,
    rot::a_batch_that_was_cut_short_at_the_end_of_the_log_is_no_damage,
    shortened::a_log_that_is_shorter_than_it_was_has_lost_something,
    shortened::a_log_that_is_gone_has_lost_something,
    shortened::an_orderly_stop_leaves_nothing_to_be_missed,
    unreadable::a_record_that_cannot_be_read_is_damage_of_its_key,
    unreadable::what_cannot_be_read_at_the_start_is_lost_and_nothing_else,
}
