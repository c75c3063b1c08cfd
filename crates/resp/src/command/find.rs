//! Finds a command by its name, for every request.
//!
//! A hash table that is built at compile time. A name of up to 16 bytes is packed into two integers that overlap in the
//! middle, and one `or` makes all letters lower case. The packed name and the length identify a name that consists of
//! letters; a name with other characters is then also compared byte by byte.

use super::CommandSpec;
use super::table::FAMILIES;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 16;
/// At least four times the number of commands, so that most are in their first slot.
const SLOT_COUNT: usize = 512;
/// The case bit of a letter, in every byte.
const LOWER_CASE: u64 = 0x2020_2020_2020_2020;

/// A packed name, unique among the names of letters of at most 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PackedName {
    head: u64,
    tail: u64,
    length: u64,
}

impl PackedName {
    /// Packs `name` in lower case. Bytes that are not letters may collide with each other, but never with a letter.
    #[inline]
    const fn new(name: &[u8]) -> Option<Self> {
        let (head, tail) = if let (Some(head), Some(tail)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
        } else if let (Some(head), Some(tail)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            let (head, tail) = (u32::from_le_bytes(*head), u32::from_le_bytes(*tail));
            (head as u64, tail as u64)
        } else {
            match name {
                [first, middle, last] => {
                    let head = [*first, *middle, *last, 0];
                    (u32::from_le_bytes(head) as u64, 0)
                }
                // No command name is shorter.
                _ => return None,
            }
        };
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        Some(Self {
            head: head | LOWER_CASE,
            tail: tail | LOWER_CASE,
            length: name.len() as u64,
        })
    }

    #[inline]
    const fn slot(self) -> usize {
        let mixed = (self.head ^ self.tail.rotate_left(23) ^ self.length).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 55) as usize
    }
}

#[derive(Clone, Copy)]
struct Slot {
    name: PackedName,
    is_of_letters: bool,
    spec: &'static CommandSpec,
}

static SLOTS: [Option<Slot>; SLOT_COUNT] = {
    let mut slots = [None; SLOT_COUNT];
    let mut family = 0;
    while family < FAMILIES.len() {
        let mut index = 0;
        while index < FAMILIES[family].len() {
            let spec = &FAMILIES[family][index];
            let Some(name) = PackedName::new(spec.name.as_bytes()) else {
                panic!("a command's name is too short or too long to be found");
            };
            let mut slot = name.slot();
            while slots[slot].is_some() {
                slot = (slot + 1) % SLOT_COUNT;
            }
            let is_of_letters = is_of_letters(spec.name.as_bytes());
            slots[slot] = Some(Slot {
                name,
                is_of_letters,
                spec,
            });
            index += 1;
        }
        family += 1;
    }
    slots
};

const fn is_of_letters(name: &[u8]) -> bool {
    let mut rest = name;
    while let [first, others @ ..] = rest {
        if !first.is_ascii_alphabetic() {
            return false;
        }
        rest = others;
    }
    true
}

/// The command with this name; the case is ignored. Subcommands are found in their containers.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    let packed = PackedName::new(name)?;
    let mut slot = packed.slot();
    // The table is never full, so an empty slot ends the search.
    while let Some(known) = &SLOTS[slot] {
        if known.name == packed && (known.is_of_letters || known.spec.name.as_bytes().eq_ignore_ascii_case(name)) {
            return Some(known.spec);
        }
        slot = (slot + 1) % SLOT_COUNT;
    }
    None
}

/// The command or subcommand called `name`: `get`, or `client|id`.
pub fn find_by_full_name(name: &[u8]) -> Option<&'static CommandSpec> {
    match name.iter().position(|&byte| byte == b'|') {
        None => find(name),
        Some(bar) => find(&name[..bar])?.subcommand(&name[bar + 1..]),
    }
}

/// All commands. Subcommands are in their containers.
pub fn all() -> impl Iterator<Item = &'static CommandSpec> + Clone {
    FAMILIES.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_command_is_found_in_letters_of_any_case() {
        for spec in all() {
            let name = spec.name.to_uppercase();
            assert_eq!(find(name.as_bytes()).unwrap().id, spec.id);
            assert_eq!(find(spec.name.as_bytes()).unwrap().id, spec.id);
            for subcommand in spec.subcommands {
                let found = find_by_full_name(subcommand.name.as_bytes()).unwrap();
                assert_eq!(found.id, subcommand.id);
            }
        }
    }

    #[test]
    fn similar_names_are_not_found() {
        for name in [
            "",
            "g",
            "ge",
            "get ",
            " get",
            "get\0",
            "ge\0",
            "getgetgetgetgetget",
            "gets",
            "fondaco\x0erget",
        ] {
            assert!(find(name.as_bytes()).is_none(), "{name:?}");
        }
        assert!(find_by_full_name(b"client|").is_none());
        assert!(find_by_full_name(b"get|id").is_none());
    }

    #[test]
    fn names_are_unique_and_fill_a_quarter_of_the_slots() {
        let mut names: Vec<_> = all().map(|spec| spec.name).collect();
        assert!(names.len() * 4 <= SLOT_COUNT);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }

    proptest! {
        #[test]
        fn only_names_of_commands_are_found(
            spec in prop::sample::select(all().collect::<Vec<_>>()),
            place: prop::sample::Index,
            byte: u8,
        ) {
            let mut name = spec.name.as_bytes().to_vec();
            let place = place.index(name.len());
            name[place] = byte;
            let expected = all().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(&name));
            prop_assert_eq!(find(&name).map(|spec| spec.id), expected.map(|spec| spec.id));
        }
    }
}
