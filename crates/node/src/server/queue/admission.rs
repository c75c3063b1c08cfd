//! Checks before a request on versioned stores is carried out: the store of each key, the client's rights, its quotas, and
//! whether the client has to go to another node.
//!
//! A request is let in whole or not at all.

use bytes::Bytes;
use fondaco_catalog::{Membership, VersionedStore, WrittenStore};
use fondaco_model::{PartitionId, Slot, ValueType};
use fondaco_protocol::replica::{ReplicaCommand, ReplicaOperation, ReplicaRequest};
use fondaco_resp::command::CommandId;
use smallvec::SmallVec;

use super::{Accepted, RequestQueue, Task};
use crate::server::commands::operation::{Asked, Operation};
use crate::server::commands::{Refusal, events, values};
use crate::server::refusal;
use crate::server::session::Admission;

/// A key of a store, on the wire, and the work on it.
type Admitted = (Bytes, Task);

/// The command for this node's own replica; `None` for commands of clients.
pub(in crate::server) fn replica_command(command: CommandId) -> Option<ReplicaCommand> {
    use CommandId as Id;
    Some(match command {
        Id::FondacoRGet => ReplicaCommand::Get,
        Id::FondacoRPut => ReplicaCommand::Put,
        Id::FondacoRMerge => ReplicaCommand::Merge,
        Id::FondacoRHint => ReplicaCommand::Hint,
        Id::FondacoRTree => ReplicaCommand::Tree,
        Id::FondacoRSync => ReplicaCommand::Sync,
        Id::FondacoRHints => ReplicaCommand::OldestHint,
        _ => return None,
    })
}

impl Admission<'_> {
    /// The request that other nodes and routers make of this node's own replica.
    ///
    /// # Errors
    /// The error to answer with: invalid arguments, no right to read or write the store, a quota that is used up.
    pub(in crate::server) fn replica_request(
        &self,
        command: ReplicaCommand,
        arguments: impl Iterator<Item = Bytes>,
    ) -> Result<ReplicaRequest, Refusal> {
        let request = ReplicaRequest::parse(command, arguments).map_err(|error| format!("ERR {error}"))?;
        let is_let_in = match command {
            ReplicaCommand::Get | ReplicaCommand::Tree | ReplicaCommand::Sync | ReplicaCommand::OldestHint => {
                self.session.may_read(&request.store)
            }
            ReplicaCommand::Put | ReplicaCommand::Merge | ReplicaCommand::Hint => {
                self.session.may_write(&request.store)
            }
        };
        match (is_let_in, command) {
            (true, _) => {
                self.charge_application(&request)?;
                Ok(request)
            }
            (false, ReplicaCommand::Get | ReplicaCommand::Tree | ReplicaCommand::Sync | ReplicaCommand::OldestHint) => {
                Err(refusal::no_right_to_read(&request.store))
            }
            (false, _) => Err(refusal::no_right_to_write(&request.store)),
        }
    }

    /// Charges the store's quota with a write of an application that has the client library: no node or router has charged it.
    fn charge_application(&self, request: &ReplicaRequest) -> Result<(), Refusal> {
        let ReplicaOperation::Put { is_charged: false, .. } = request.operation else {
            return Ok(());
        };
        let place = self.catalog.store_on_wire(request.store.as_str().as_bytes());
        match place.and_then(|place| self.catalog.versioned(place)) {
            Some(store) => {
                let quota = store.settings.write_keys_per_second;
                self.forwarder.charge_writes(self.catalog, store, quota, 1)
            }
            // The replica reports that there is no such store.
            None => Ok(()),
        }
    }

    /// Lets a request on keys into the queue.
    ///
    /// # Errors
    /// As of [`keys`](Self::keys).
    pub(in crate::server) fn push(
        &self,
        asked: Asked,
        accepted: Accepted,
        queue: &mut RequestQueue,
    ) -> Result<(), Refusal> {
        let reply = asked.reply;
        let keys = self.keys(asked)?;
        queue.push_keys(accepted, reply, keys.into_iter());
        Ok(())
    }

    /// Checks a request on keys.
    ///
    /// # Errors
    /// The error to answer with: a key without a store, a store that does not exist or takes no writes, no right, no
    /// room, another node to go to, a quota that is used up.
    pub(super) fn keys(&self, asked: Asked) -> Result<SmallVec<[Admitted; 1]>, Refusal> {
        let mut admitted = SmallVec::<[Admitted; 1]>::with_capacity(asked.keys.len());
        for (wire_key, operation) in asked.keys {
            let task = match self.store(&wire_key, &operation)? {
                WrittenStore::Versioned(store) => {
                    let operation = match store.value_type {
                        ValueType::Graph if !operation.is_read() => return Err(refusal::is_a_graph(&store.name)),
                        _ => values::checked(operation, &store, &wire_key[store.name.as_str().len() + 1..])?,
                    };
                    Task::Operation(store, operation)
                }
                WrittenStore::Hybrid(store) => {
                    let write = events::of(operation, &store, &wire_key[store.name.as_str().len() + 1..])?;
                    Task::Event(store, write)
                }
            };
            admitted.push((wire_key, task));
        }
        self.check_place(&admitted)?;
        self.forwarder.check_room(admitted.len())?;
        let mut rest = &admitted[..];
        while let Some((_, task)) = rest.first() {
            let store = task.store();
            let run = rest
                .iter()
                .take_while(|(_, other)| other.store().id == store.id)
                .count();
            let (own, others) = rest.split_at(run);
            let writes = own.iter().filter(|(_, task)| !task.is_read()).count();
            if writes > 0 {
                let quota = match task {
                    Task::Operation(store, _) => store.settings.write_keys_per_second,
                    Task::Event(store, _) => store.stream.write_keys_per_second,
                };
                self.forwarder.charge_writes(self.catalog, store, quota, writes)?;
            }
            if writes < own.len()
                && let Some(place) = self.catalog.store_on_wire(store.name.as_str().as_bytes())
            {
                self.forwarder.charge(self.catalog, place, own.len() - writes)?;
            }
            rest = others;
        }
        Ok(admitted)
    }

    fn store(&self, wire_key: &[u8], operation: &Operation) -> Result<WrittenStore, Refusal> {
        let Some(colon) = memchr::memchr(b':', wire_key) else {
            return Err(refusal::no_colon(wire_key));
        };
        let place = self.session.readable_store(self.catalog, &wire_key[..colon])?;
        let store = &self.catalog.stores()[place as usize];
        let Some(written) = self.catalog.written(place) else {
            return Err(refusal::takes_no_writes(store));
        };
        if !operation.is_read() && !self.session.may_write(&store.name) {
            return Err(refusal::no_right_to_write(&store.name));
        }
        if colon + 1 == wire_key.len() {
            return Err(refusal::EMPTY_KEY.into());
        }
        Ok(written.clone())
    }

    /// Whether a client that goes where keys are is sent to another node: none of the keys is held here.
    fn check_place(&self, admitted: &[Admitted]) -> Result<(), Refusal> {
        let Some(membership) = self.catalog.membership() else {
            return Ok(());
        };
        if !self.session.goes_where_keys_are() || membership.is_router() {
            return Ok(());
        }
        let mut slots = admitted.iter().filter_map(|(wire_key, task)| match task {
            Task::Operation(store, _) => Some((store, store.slot(wire_key))),
            // Any process writes to a topic.
            Task::Event(..) => None,
        });
        let Some((store, first)) = slots.next() else {
            return Ok(());
        };
        let is_here = |store: &VersionedStore, slot: Slot| {
            let partition = membership.topology().partitions.partition_of(slot);
            is_replica(membership, store, partition)
        };
        if is_here(store, first) || !slots.all(|(other, slot)| slot == first && !is_here(other, slot)) {
            return Ok(());
        }
        Err(refusal::moved(membership, &store.name, first, self.forwarder))
    }
}

/// Whether this node holds a partition of a store.
pub(in crate::server) fn is_replica(membership: &Membership, store: &VersionedStore, partition: PartitionId) -> bool {
    let topology = membership.topology();
    let known = topology.stores.get(&store.name);
    known.is_some_and(|known| topology.replicas(known, partition).any(|node| membership.is(node)))
}
