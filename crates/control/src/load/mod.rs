//! The load of the cluster: nodes measure and report it, the leading controller collects it, and decides by it whether
//! partitions should move.

mod book;
mod deciding;
mod hook;
mod journal;
mod machines;
mod measuring;
mod reporting;

pub(crate) use book::{LoadBook, NodeSummary, Sample};
pub(crate) use deciding::{Deciding, input_of};
pub(crate) use journal::{Journal, Kept};
pub(crate) use machines::Machines;
pub(crate) use reporting::{Leader, ReportingParts, ReportingWork};

use std::time::Duration;

use fondaco_model::balance::{BalanceMode, BalancePolicy, BalanceSettings};
use fondaco_node::{Setting, Settings};

/// Over how long load is averaged.
pub(crate) fn window(settings: &Settings) -> Duration {
    Duration::from_millis(settings.get(Setting::BalanceWindowMs))
}

/// How often nodes report.
pub(crate) fn report_period(settings: &Settings) -> Duration {
    window(settings) / 10
}

/// How often a decision is made.
pub(crate) fn decision_period(settings: &Settings) -> Duration {
    window(settings) * 3 / 5
}

/// How fast a node may fetch, and how fast it may fetch for moves, in bytes a second; 0 is no limit.
pub(crate) fn move_rates(settings: &Settings) -> [u64; 2] {
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
