//! Commands that run others together.

use super::*;

/// Also while data is loaded, and where it is old: what is run together is looked at by itself.
const ALWAYS: Flags = Flags::NO_SCRIPT.and(Flags::LOADING).and(Flags::STALE);
const ALWAYS_FAST: Flags = ALWAYS.and(Flags::FAST).and(Flags::ALLOW_BUSY);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Multi, "multi", 1, Group::Transactions)
        .doc("1.2.0", O_1, "Keeps the requests that follow until EXEC")
        .flags(ALWAYS_FAST),
    CommandSpec::new(Id::Exec, "exec", 1, Group::Transactions)
        .doc(
            "1.2.0",
            "depends on the requests",
            "Carries out the requests since MULTI, one behind the other; others may come in between",
        )
        .flags(ALWAYS.and(Flags::SKIP_SLOWLOG)),
    CommandSpec::new(Id::Discard, "discard", 1, Group::Transactions)
        .doc(
            "2.0.0",
            "O(N), N being the number of requests",
            "Forgets the requests since MULTI",
        )
        .flags(ALWAYS_FAST),
];
