//! Over how long load is averaged, and how often nodes report it: by a live setting.

use std::time::Duration;

use fondaco_catalog::{Setting, Settings};

/// Over how long load is averaged.
pub fn load_window(settings: &Settings) -> Duration {
    Duration::from_millis(settings.get(Setting::BalanceWindowMs))
}

/// How often nodes report.
pub fn report_period(settings: &Settings) -> Duration {
    load_window(settings) / 10
}
