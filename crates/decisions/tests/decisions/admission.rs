//! Whether a process may be a node.

use fondaco_decisions::{AdmissionError, Membership};
use fondaco_model::cluster::{Announcement, ClusterView, NodeMark, RouterRecord};
use fondaco_model::{Identity, PROTOCOL};

use crate::fixture::{Cluster, announcement, node};

fn member(number: u32) -> Membership {
    Membership {
        identity: Identity::of(u128::from(number)),
        cluster: None,
        id: None,
    }
}

#[test]
fn a_node_waits_until_it_has_its_number() {
    let mut cluster = Cluster::of(2, 8, 1);
    assert_eq!(member(3).admission(&ClusterView::default()), Ok(None));
    assert_eq!(member(3).admission(&cluster.view), Ok(None));
    cluster.announce(announcement(3));
    cluster.settle();
    assert_eq!(member(3).admission(&cluster.view), Ok(Some(node(3))));
}

#[test]
fn a_data_directory_of_another_cluster_is_refused() {
    let cluster = Cluster::of(2, 8, 1);
    let mut stranger = member(1);
    stranger.cluster = Some(Identity::of(5));
    let refused = stranger.admission(&cluster.view);
    assert!(
        matches!(refused, Err(AdmissionError::OtherCluster { .. })),
        "{refused:?}"
    );
    stranger.cluster = cluster.view.cluster.as_ref().map(|cluster| cluster.identity.clone());
    assert_eq!(stranger.admission(&cluster.view), Ok(Some(node(1))));
}

/// Makes a node speak a protocol.
fn speak(cluster: &mut Cluster, number: u32, protocol: u32) {
    cluster.announce(Announcement {
        protocol,
        ..announcement(number)
    });
}

#[test]
fn the_lowest_protocol_of_all_members_is_in_force() {
    let mut cluster = Cluster::of(3, 8, 1);
    (1..=2).for_each(|number| speak(&mut cluster, number, PROTOCOL + 1));
    cluster.settle();
    assert_eq!(cluster.view.protocol(), PROTOCOL);
    cluster.leave(3);
    assert_eq!(cluster.view.protocol(), PROTOCOL, "it may come back as it was");
    let given_up = |cluster: &Cluster, number: u32| {
        let mut without = cluster.view.clone();
        without.nodes.get_mut(&node(number)).unwrap().record.mark = Some(NodeMark::Leaving);
        without.protocol()
    };
    assert_eq!(given_up(&cluster, 3), PROTOCOL, "it still owns partitions");

    speak(&mut cluster, 3, PROTOCOL + 1);
    cluster.settle();
    assert_eq!(cluster.view.protocol(), PROTOCOL + 1);
    // A node without partitions.
    speak(&mut cluster, 4, PROTOCOL);
    cluster.settle();
    cluster.leave(4);
    assert_eq!(cluster.view.protocol(), PROTOCOL);
    assert_eq!(given_up(&cluster, 4), PROTOCOL + 1);
    cluster.view.nodes.remove(&node(4));
    let router = RouterRecord {
        resp: "router:6500".to_owned(),
        http: "router:6580".to_owned(),
        protocol: PROTOCOL,
    };
    cluster.view.routers.insert(Identity::of(9), router);
    assert_eq!(cluster.view.protocol(), PROTOCOL);
}

#[test]
fn a_process_with_a_former_protocol_is_refused() {
    let mut cluster = Cluster::of(2, 8, 1);
    speak(&mut cluster, 1, PROTOCOL + 1);
    cluster.settle();
    assert_eq!(member(2).admission(&cluster.view), Ok(Some(node(2))));
    speak(&mut cluster, 2, PROTOCOL + 1);
    cluster.settle();
    let refused = Err(AdmissionError::OldProtocol {
        own: PROTOCOL,
        in_force: PROTOCOL + 1,
    });
    // A node that goes back, and a new one.
    cluster.leave(2);
    assert_eq!(member(2).admission(&cluster.view), refused);
    assert_eq!(member(3).admission(&cluster.view), refused);
}

#[test]
fn a_number_that_another_node_has_is_refused() {
    let cluster = Cluster::of(2, 8, 1);
    let mut second = member(50);
    second.id = Some(node(2));
    let refused = second.admission(&cluster.view);
    assert!(
        matches!(refused, Err(AdmissionError::NumberTaken { .. })),
        "{refused:?}"
    );
    let mut renumbered = member(1);
    renumbered.id = Some(node(2));
    let refused = renumbered.admission(&cluster.view);
    assert!(
        matches!(refused, Err(AdmissionError::OtherNumber { .. })),
        "{refused:?}"
    );
}
