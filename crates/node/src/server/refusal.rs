//! The errors that look-ups are answered with, word for word. Each begins with a code that programs tell
//! it by, and says what to do.

use fondaco_catalog::{Catalog, Membership, Serving, ServingStore};
use fondaco_format::FormatError;
use fondaco_model::{Slot, StoreKind, StoreName, VersionNumber};

use crate::forward::Forwarder;

pub(super) const EMPTY_KEY: &str = "BADKEY nothing stands after the colon: keys have at least one byte";

#[cold]
pub(super) fn no_colon(wire_key: &[u8]) -> String {
    format!("BADKEY {} names no store: keys are written store:key", quoted(wire_key))
}

#[cold]
pub(crate) fn no_store(name: &[u8]) -> String {
    format!(
        "NOSTORE no store is named {}: create it, or list those there are, with fondaco store",
        quoted(name)
    )
}

#[cold]
pub(super) fn no_right_to_read(store: &StoreName) -> String {
    format!("NOPERM this user may not read store {store:?}")
}

#[cold]
pub(super) fn no_right_to_write(store: &StoreName) -> String {
    format!("NOPERM this user may not write store {store:?}")
}

/// A write of a key of a graph, whose keys belong together.
#[cold]
pub(super) fn is_a_graph(store: &StoreName) -> String {
    format!("WRONGTYPE store {store:?} is a graph: change it with FONDACO.EDGE and FONDACO.VERTEX")
}

/// A write to a store that is not written to.
#[cold]
pub(super) fn takes_no_writes(store: &ServingStore) -> String {
    format!("READONLY {}", unwritten(store))
}

/// The kind of a store that takes no writes, and the source of its data.
pub(super) fn unwritten(store: &ServingStore) -> String {
    let (name, kind) = (&store.name, store.kind);
    match kind {
        // One that this process has not heard the stream of.
        StoreKind::Hybrid => format!("the stream of {name:?} is not known here yet: try again in a moment"),
        StoreKind::Batch | StoreKind::Versioned => {
            format!("{name:?} is a batch store: its data comes by push, see fondaco push")
        }
    }
}

#[cold]
pub(crate) fn no_version(store: &ServingStore) -> String {
    match &store.serving {
        Serving::Failed(version, reason) => {
            format!(
                "CORRUPT version {version} of store {:?} cannot be opened: {reason}",
                store.name
            )
        }
        _ => format!("NOVERSION store {:?} has no version yet: push one", store.name),
    }
}

/// Whether other nodes can be asked for a store whose current version is not open here.
#[cold]
pub(crate) fn check_other_nodes(catalog: &Catalog, store: u16) -> Result<(), String> {
    let others = catalog.membership().is_some_and(|membership| {
        let mut nodes = membership.topology().nodes.keys();
        nodes.any(|&node| !membership.is(node))
    });
    let store_here = &catalog.stores()[store as usize];
    match (catalog.current_number(store), &store_here.serving) {
        (Some(_), _) if others => Ok(()),
        (Some(current), Serving::Version(..) | Serving::Nothing) => Err(format!(
            "CLUSTERDOWN version {current} of store {:?} is not all here, and there is no other node: see fondaco nodes",
            store_here.name
        )),
        _ => Err(no_version(store_here)),
    }
}

/// A version that is not open here; none means the current one.
#[cold]
pub(super) fn version_gone(catalog: &Catalog, store: u16, wanted: Option<VersionNumber>) -> String {
    let wanted = match wanted {
        Some(wanted) => format!("version {wanted}"),
        None => "the current version".to_owned(),
    };
    let current = match catalog.current_number(store) {
        Some(current) => format!("version {current} is current"),
        None => "it has none yet".to_owned(),
    };
    let name = &catalog.stores()[store as usize].name;
    format!("VERSIONGONE {wanted} of store {name:?} is not open here: {current}")
}

/// Values would take more memory than there is for them.
#[cold]
pub(crate) fn no_room(bytes_max: u64) -> String {
    format!(
        "OVERLOADED the values of all requests under way take {bytes_max} bytes already: ask for fewer at a time, or again in a moment"
    )
}

/// A partition of a hybrid store that has yet to read its stream here: another node has it.
#[cold]
pub(crate) fn behind(catalog: &Catalog, store: u16) -> String {
    let name = &catalog.stores()[store as usize].name;
    format!("NOTHERE store {name:?} has yet to read its stream here: ask another node")
}

/// A store that has another number here than the one that was asked for.
#[cold]
pub(super) fn other_store(store: &ServingStore, wanted: u64) -> String {
    format!(
        "VERSIONGONE store {:?} has the number {} here, not {wanted}: one was dropped, the other created under its name",
        store.name,
        store.id.get()
    )
}

/// Where a client that goes where keys are finds this slot.
#[cold]
pub(super) fn moved(membership: &Membership, store: &StoreName, slot: Slot, forwarder: &Forwarder) -> String {
    match membership.other_owner(store, slot, &forwarder.suspended()) {
        Some(node) => format!("MOVED {} {}", slot.get(), node.resp),
        None => format!(
            "CLUSTERDOWN no node that holds slot {} of store {store:?} is there: see fondaco nodes",
            slot.get()
        ),
    }
}

#[cold]
pub(crate) fn failure(error: &FormatError) -> String {
    let code = match error {
        FormatError::NotHeld { .. } => "NOTHERE",
        error if error.is_missing() => "TRYAGAIN",
        error if error.is_corruption() => "CORRUPT",
        _ => "IOERR",
    };
    format!("{code} {error}")
}

pub(super) fn quoted(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 80;
    format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]))
}
