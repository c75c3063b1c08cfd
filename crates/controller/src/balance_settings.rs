//! The live settings by which the load is evened out.

use std::time::Duration;

use fondaco_catalog::{Setting, Settings};
use fondaco_cluster::load_window;
use fondaco_decisions::balance::{BalanceMode, BalancePolicy, BalanceSettings};

/// How often a decision is made.
pub(crate) fn decision_period(settings: &Settings) -> Duration {
    load_window(settings) * 3 / 5
}

/// How fast a node may fetch, and how fast it may fetch for moves, in bytes a second; 0 is no limit.
pub fn move_rates(settings: &Settings) -> [u64; 2] {
    [Setting::FetchRateBytesPerSecond, Setting::MoveRateBytesPerSecond].map(|setting| settings.get(setting))
}

/// The settings of decisions.
pub(crate) fn balance_settings(settings: &Settings) -> BalanceSettings {
    let share = |setting: Setting| settings.get(setting) as f64 / 100.0;
    BalanceSettings {
        mode: match settings.get(Setting::BalanceMode) {
            0 => BalanceMode::Off,
            1 => BalanceMode::Propose,
            _ => BalanceMode::Act,
        },
        policy: match settings.get(Setting::BalancePolicy) {
            0 => BalancePolicy::One,
            1 => BalancePolicy::Each,
            _ => BalancePolicy::Enough,
        },
        cpu: (share(Setting::BalanceCpuPercent), share(Setting::BalanceCpuCalmPercent)),
        memory: (
            share(Setting::BalanceMemoryPercent),
            share(Setting::BalanceMemoryCalmPercent),
        ),
        disk: (
            share(Setting::BalanceDiskPercent),
            share(Setting::BalanceDiskCalmPercent),
        ),
        requests_max: settings.get(Setting::BalanceRequestsPerSecond) as f64,
        cool_down_ms: settings
            .get(Setting::BalanceCoolDownMs)
            .max(settings.get(Setting::BalanceWindowMs)),
        gain_min: share(Setting::BalanceGainPercent),
        moves_max: settings.get(Setting::BalanceMovesMax) as u32,
        stay_ms: settings.get(Setting::BalanceStaySeconds) * 1000,
        replace_after_ms: settings.get(Setting::BalanceReplaceAfterSeconds) * 1000,
        hours: (
            settings.get(Setting::BalanceFromMinute) as u16,
            settings.get(Setting::BalanceToMinute) as u16,
        ),
    }
}
