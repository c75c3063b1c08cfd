//! The versions of a store: those that it keeps, the current one, and those that it no longer needs.
//!
//! It knows nothing of files: it decides, and others act. Invariants: a number is given out once; the current version
//! is never among the backups; the version that was current last is the last one to be given up, whatever its number,
//! since a rollback goes to it.

use serde::{Deserialize, Serialize};

use crate::version::VersionNumber;

/// The versions of one store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Versions")]
pub struct VersionSet(Versions);

/// The versions, as they are stored: not yet checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Versions {
    last: Option<VersionNumber>,
    current: Option<VersionNumber>,
    /// The most recently current first.
    backups: Vec<VersionNumber>,
    /// How often another version became current: a version may be current again.
    #[serde(default)]
    swaps: u64,
}

/// Why a stored set of versions is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid set of versions: {reason}; the metadata was changed by hand, restore it from a copy")]
pub struct VersionSetError {
    reason: String,
}

impl VersionSet {
    /// The version that is served, if any was swapped in yet.
    pub fn current(&self) -> Option<VersionNumber> {
        self.0.current
    }

    /// The versions kept besides the current one, most recently current first.
    pub fn backups(&self) -> &[VersionNumber] {
        &self.0.backups
    }

    /// How often another version became current.
    pub fn swaps(&self) -> u64 {
        self.0.swaps
    }

    /// The highest number ever given out.
    pub fn last(&self) -> Option<VersionNumber> {
        self.0.last
    }

    /// All versions kept: the current one, then the backups.
    pub fn kept(&self) -> impl Iterator<Item = VersionNumber> + '_ {
        self.0.current.into_iter().chain(self.0.backups.iter().copied())
    }

    /// Whether this version is kept.
    pub fn contains(&self, version: VersionNumber) -> bool {
        self.kept().any(|kept| kept == version)
    }

    /// Gives out the number of a new version. It is not kept until it is made current.
    pub fn allocate(&mut self) -> VersionNumber {
        let number = self.0.last.map_or(VersionNumber::FIRST, VersionNumber::next);
        self.0.last = Some(number);
        number
    }

    /// Makes a version current; the one before becomes the first of the backups.
    ///
    /// The version is one of the backups, or a number given out by [`allocate`](Self::allocate).
    pub fn make_current(&mut self, version: VersionNumber) {
        debug_assert!(self.0.last >= Some(version), "version {version} was never given out");
        if self.0.current == Some(version) {
            return;
        }
        self.0.swaps += 1;
        self.0.backups.retain(|&backup| backup != version);
        if let Some(before) = self.0.current.replace(version) {
            self.0.backups.insert(0, before);
        }
    }

    /// The target of a rollback that names no version: the most recently current backup that is older than the current
    /// version. A newer backup is the version that was rolled back from.
    pub fn rollback_target(&self) -> Option<VersionNumber> {
        self.0
            .backups
            .iter()
            .find(|&&backup| Some(backup) < self.0.current)
            .copied()
    }

    /// Gives up all but `backups` of the backups, and returns those that were given up.
    pub fn expire(&mut self, backups: u32) -> Vec<VersionNumber> {
        let kept = self.0.backups.len().min(backups as usize);
        self.0.backups.split_off(kept)
    }
}

impl TryFrom<Versions> for VersionSet {
    type Error = VersionSetError;

    fn try_from(versions: Versions) -> Result<Self, VersionSetError> {
        let set = Self(versions);
        let mut numbers: Vec<_> = set.kept().collect();
        numbers.sort_unstable();
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            let reason = format!("version {} is in it twice", pair[0]);
            return Err(VersionSetError { reason });
        }
        if numbers.last().copied() > set.last() {
            let reason = format!("version {:?} was never given out", numbers.last());
            return Err(VersionSetError { reason });
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(n: u64) -> VersionNumber {
        VersionNumber::new(n).unwrap()
    }

    fn pushed(versions: usize) -> VersionSet {
        let mut set = VersionSet::default();
        for _ in 0..versions {
            let version = set.allocate();
            set.make_current(version);
        }
        set
    }

    #[test]
    fn a_rollback_goes_to_the_previous_version() {
        let mut set = pushed(3);
        assert_eq!(set.rollback_target(), Some(number(2)));
        set.make_current(number(2));
        assert_eq!(set.rollback_target(), Some(number(1)));
    }

    #[test]
    fn a_rollback_from_the_oldest_version_goes_nowhere() {
        let mut set = pushed(2);
        set.make_current(number(1));
        assert_eq!(set.rollback_target(), None);
        assert_eq!(pushed(1).rollback_target(), None);
    }

    #[test]
    fn a_push_after_rollback_drops_the_version_rolled_back_from() {
        let mut set = pushed(2);
        set.make_current(number(1));
        let pushed = set.allocate();
        set.make_current(pushed);
        assert_eq!(set.expire(1), [number(2)]);
        assert_eq!(set.rollback_target(), Some(number(1)));
    }

    #[test]
    fn an_abandoned_number_is_never_given_out_again() {
        let mut set = pushed(1);
        assert_eq!(set.allocate(), number(2));
        assert_eq!(set.allocate(), number(3));
    }

    #[test]
    fn impossible_sets_do_not_parse() {
        for text in [
            r#"{"last":2,"current":1,"backups":[1]}"#,
            r#"{"last":1,"current":2,"backups":[]}"#,
            r#"{"last":null,"current":1,"backups":[]}"#,
            r#"{"last":1,"current":0,"backups":[]}"#,
        ] {
            assert!(serde_json::from_str::<VersionSet>(text).is_err(), "{text}");
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push,
        Abandon,
        Swap(usize),
        Expire(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Push),
            Just(Step::Abandon),
            any::<usize>().prop_map(Step::Swap),
            (0..4u32).prop_map(Step::Expire),
        ];
        prop::collection::vec(step, 0..50)
    }

    proptest! {
        #[test]
        fn the_set_stays_sound_under_any_steps(steps in steps()) {
            let mut set = VersionSet::default();
            let mut given_out = 0;
            for step in steps {
                match step {
                    Step::Push | Step::Abandon => {
                        let version = set.allocate();
                        prop_assert!(version.get() > given_out);
                        given_out = version.get();
                        if matches!(step, Step::Push) {
                            let before = set.current();
                            set.make_current(version);
                            prop_assert_eq!(set.rollback_target(), before);
                        }
                    }
                    Step::Swap(choice) => {
                        let kept: Vec<_> = set.kept().collect();
                        if !kept.is_empty() {
                            let version = kept[choice % kept.len()];
                            set.make_current(version);
                            prop_assert_eq!(set.current(), Some(version));
                            prop_assert_eq!(set.kept().count(), kept.len());
                        }
                    }
                    Step::Expire(backups) => {
                        let current = set.current();
                        let expired = set.expire(backups);
                        prop_assert!(!expired.iter().any(|&version| set.contains(version)));
                        prop_assert_eq!(set.current(), current);
                        prop_assert!(set.backups().len() <= backups as usize);
                    }
                }
                let text = serde_json::to_string(&set).unwrap();
                prop_assert_eq!(&serde_json::from_str::<VersionSet>(&text).unwrap(), &set);
            }
        }
    }
}
