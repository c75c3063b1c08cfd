use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::entry::At;
use super::*;
use crate::batch::Pair;

fn entry(key: &[u8], number: u32) -> Entry {
    let at = At {
        segment: 1,
        offset: number,
    };
    Entry::hot(Pair::copied(key, b""), at)
}

fn keys(tree: &Tree) -> Vec<Vec<u8>> {
    tree.iter().map(|entry| entry.key().to_vec()).collect()
}

/// Keys with a long or short common prefix, of all lengths around that of heads.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0_u8), Just(1), Just(255)];
    prop_oneof![
        prop::collection::vec(byte.clone(), 1..5),
        prop::collection::vec(byte, 1..4).prop_map(|tail| [&[7; 15][..], &tail].concat()),
        any::<u16>().prop_map(|number| number.to_be_bytes().to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_behaves_like_a_map(
        sorted in prop::collection::btree_set(key(), 0..2000),
        cut in 0..2000_usize,
        steps in prop::collection::vec((key(), 0..5_u8, any::<bool>()), 1..3000),
        from in key(),
    ) {
        let (mut tree, mut map) = (Tree::default(), BTreeMap::new());
        let mut higher = Tree::default();
        for (at, key) in sorted.into_iter().enumerate() {
            let part = if at < cut { &mut tree } else { &mut higher };
            part.push(entry(&key, u32::MAX));
            map.insert(key, u32::MAX);
        }
        tree.append(higher);
        // The spot of a key now or earlier, or the spot of another key.
        let mut spot = Spot::default();
        for (number, (key, action, is_asked)) in steps.iter().enumerate() {
            let number = number as u32;
            if *is_asked {
                tree.get_all(&[key], Extent::Beginning, |_, now| {
                    spot = now;
                    true
                });
            }
            match action {
                0 | 1 => {
                    let removed = tree.remove(key).map(|entry| entry.at().offset);
                    prop_assert_eq!(removed, map.remove(key));
                }
                _ => {
                    let before = tree.put(entry(key, number), spot).map(|entry| entry.at().offset);
                    prop_assert_eq!(before, map.insert(key.clone(), number));
                }
            }
            let expected = map.get(key).copied();
            prop_assert_eq!(tree.get(key).map(|entry| entry.at().offset), expected);
            prop_assert_eq!(tree.get_on(spot, key).map(|entry| entry.at().offset), expected);
            prop_assert_eq!(tree.get_mut_on(spot, key).map(|entry| entry.at().offset), expected);
        }
        prop_assert_eq!(tree.len(), map.len());
        prop_assert_eq!(keys(&tree), map.keys().cloned().collect::<Vec<_>>());
        let found: Vec<_> = tree.entries_from(&from).map(|entry| entry.key().to_vec()).collect();
        let expected: Vec<_> = map.range(from..).map(|(key, _)| key.clone()).collect();
        prop_assert_eq!(found, expected);
    }
}

const KEYS: u32 = 200_000;

#[test]
fn hundreds_of_thousands_of_keys_come_and_go() {
    let key = |number: u32| u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    let mut tree = Tree::default();
    for number in 0..KEYS {
        assert!(tree.put(entry(&key(number), number), Spot::default()).is_none());
    }
    check_and_empty(tree, key);
}

#[test]
fn hundreds_of_thousands_of_keys_come_in_order() {
    let mut tree = Tree::default();
    for number in 0..KEYS {
        tree.push(entry(&number.to_be_bytes(), number));
    }
    check_and_empty(tree, u32::to_be_bytes);
}

fn check_and_empty<const BYTES: usize>(mut tree: Tree, key: impl Fn(u32) -> [u8; BYTES]) {
    assert!(tree.blocks.children.len() > 1);
    assert!(keys(&tree).is_sorted());
    let mut seen = 0;
    let mut at = Tree::first_leaf();
    while let Some((entries, next)) = tree.leaf_entries_mut(at) {
        seen += entries.len();
        at = next;
    }
    assert_eq!(seen, KEYS as usize);
    for number in 0..KEYS {
        assert_eq!(tree.remove(&key(number)).map(|entry| entry.at().offset), Some(number));
    }
    assert_eq!((tree.len(), tree.iter().count()), (0, 0));
    assert!(
        tree.blocks.children.len() < 3,
        "{} blocks are left",
        tree.blocks.children.len()
    );
}
