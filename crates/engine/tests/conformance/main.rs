//! What every engine does, whatever it is built on: the same tests for each.

mod batches;
mod engines;
mod limits;
mod model;
mod scans;
mod tables;

use engines::{Cache, Disk, Log, Memory, MySql};

/// All cases, for each engine.
macro_rules! conformance {
    ($($engine:ident: $under_test:ty),* $(,)?) => {
        $(mod $engine {
            use super::*;
            conformance_cases!($under_test,
                tables::what_is_put_is_there_until_it_is_deleted,
                tables::what_was_just_written_is_known_without_the_disk_or_not_at_all,
                tables::tables_are_apart,
                tables::there_may_be_many_tables,
                tables::a_dropped_table_is_gone_for_all_who_hold_it,
                tables::names_that_are_none_are_refused,
                tables::a_durable_engine_has_everything_when_opened_again,
                scans::a_scan_is_in_the_order_of_keys_from_the_first_to_before_the_last,
                scans::a_scan_shows_what_was_there_when_it_began,
                scans::a_scan_outlasts_its_table,
                batches::the_last_change_of_a_key_counts,
                batches::a_batch_is_seen_whole_while_others_write,
                batches::a_batch_that_cannot_be_made_whole_is_not_made,
                batches::writers_of_many_threads_lose_nothing,
                limits::keys_of_all_lengths_keep_values_of_all_lengths,
                limits::what_is_too_long_is_refused_by_name,
                model::it_does_what_a_map_does,
            );
        })*
    };
}

macro_rules! conformance_cases {
    ($under_test:ty, $($module:ident::$case:ident),* $(,)?) => {
        $(#[test]
        fn $case() {
            $module::$case(&<$under_test>::default());
        })*
    };
}

conformance! {
    memory: Memory,
    cache: Cache,
    disk: Disk,
    log: Log,
    in_mysql: MySql,
}
