//! Replicas of a partition are on different machines: a node that shares its machine with another one of its list
//! changes places with a node of another list, or another node takes its place.

/// Changes sets until no set has two nodes of one machine: nodes of the same zone are exchanged between sets, so that
/// each stays in as many; where that is impossible, the node that is in the fewest sets takes the place. Returns the
/// first set that has no such node.
pub(super) fn part(sets: &mut [Vec<usize>], hosts: &[Option<&str>], zones: &[String]) -> Option<usize> {
    let mut counts = vec![0_usize; hosts.len()];
    sets.iter().flatten().for_each(|&node| counts[node] += 1);
    for at in 0..sets.len() {
        while let Some(place) = shared(&sets[at], hosts) {
            if exchange(sets, hosts, zones, (at, place)) {
                continue;
            }
            let gone = sets[at][place];
            let others =
                (0..hosts.len()).filter(|&node| zones[node] == zones[gone] && fits(node, &sets[at], place, hosts));
            let Some(taker) = others.min_by_key(|&node| counts[node]) else {
                return Some(at);
            };
            counts[gone] -= 1;
            counts[taker] += 1;
            sets[at][place] = taker;
        }
    }
    None
}

/// The place of a node whose machine is that of an earlier node of the set.
fn shared(set: &[usize], hosts: &[Option<&str>]) -> Option<usize> {
    (0..set.len()).find(|&place| {
        let host = hosts[set[place]];
        host.is_some() && set[..place].iter().any(|&node| hosts[node] == host)
    })
}

/// Exchanges a node with one of another set, which gets no shared machine by that. Returns whether there is one.
fn exchange(sets: &mut [Vec<usize>], hosts: &[Option<&str>], zones: &[String], (at, place): (usize, usize)) -> bool {
    let one = sets[at][place];
    let found = (0..sets.len()).filter(|&other| other != at).find_map(|other| {
        let mut places = 0..sets[other].len();
        let found = places.find(|&there| {
            let two = sets[other][there];
            zones[one] == zones[two] && fits(two, &sets[at], place, hosts) && fits(one, &sets[other], there, hosts)
        });
        found.map(|there| (other, there))
    });
    let Some((other, there)) = found else { return false };
    sets[at][place] = sets[other][there];
    sets[other][there] = one;
    true
}

/// Whether a node may take a place in a set: it is new to it, and on no machine of the others.
fn fits(node: usize, set: &[usize], place: usize, hosts: &[Option<&str>]) -> bool {
    let mut others = set.iter().enumerate().filter(|(other, _)| *other != place);
    others.all(|(_, &other)| other != node && (hosts[node].is_none() || hosts[other] != hosts[node]))
}
