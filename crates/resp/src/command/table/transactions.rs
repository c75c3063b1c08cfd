//! Commands that run other commands together.

use super::*;

/// Also while data is loading or stale: the queued commands are checked separately.
const ALWAYS: Flags = Flags::NO_SCRIPT.and(Flags::LOADING).and(Flags::STALE);
const ALWAYS_FAST: Flags = ALWAYS.and(Flags::FAST).and(Flags::ALLOW_BUSY);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Multi, "multi", 1, Group::Transactions)
        .doc("1.2.0", O_1, "Queues the following requests until EXEC")
        .flags(ALWAYS_FAST),
    CommandSpec::new(Id::Exec, "exec", 1, Group::Transactions)
        .doc(
            "1.2.0",
            "depends on the requests",
            "Runs the requests since MULTI one after the other; requests of other clients may run in between",
        )
        .flags(ALWAYS.and(Flags::SKIP_SLOWLOG)),
    CommandSpec::new(Id::Discard, "discard", 1, Group::Transactions)
        .doc(
            "2.0.0",
            "O(N), N being the number of requests",
            "Discards the requests since MULTI",
        )
        .flags(ALWAYS_FAST),
];
