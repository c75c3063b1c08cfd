//! The contract of every engine: the same tests for each.

mod batches;
pub mod engines;
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
                tables::a_value_is_there_until_it_is_deleted,
                tables::a_hot_read_returns_the_last_write_or_is_cold,
                tables::tables_are_apart,
                tables::there_may_be_many_tables,
                tables::a_dropped_table_is_gone_for_all_its_handles,
                tables::invalid_table_names_are_refused,
                tables::a_durable_engine_has_everything_when_opened_again,
                scans::a_scan_is_sorted_between_inclusive_start_and_exclusive_end,
                scans::a_scan_is_a_snapshot,
                scans::a_scan_outlasts_its_table,
                batches::the_last_change_of_a_key_counts,
                batches::a_batch_is_seen_whole_while_others_write,
                batches::a_batch_that_fails_changes_nothing,
                batches::writers_of_many_threads_lose_nothing,
                limits::keys_of_all_lengths_keep_values_of_all_lengths,
                limits::keys_and_values_that_are_too_long_are_refused,
                model::it_behaves_like_a_map,
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
