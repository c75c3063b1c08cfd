//! Whether a process may be a node.

use fondaco_model::Identity;
use fondaco_model::cluster::{AdmissionError, ClusterView, Membership};

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
