//! How queries read a graph's store.

use std::future::Future;

use bytes::Bytes;
use fondaco_ids::{SetAnswer, SetQuery};

use crate::Selection;

/// What a request is for: a fan-out controller is chosen by it, as Moolle assigns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Values of their own, all of which the query waits for: one group of nodes.
    NonUnion,
    /// A union that a query waits for: one group of nodes.
    SynchronousUnion,
    /// A union that no query waits for: as many groups as balance the work of this process and of the nodes.
    AsynchronousUnion,
    /// Any part of the answer may end the query: as many groups as there are.
    EarlyTerminable,
}

/// Reads one graph, in one version. A source knows its deadline: whatever it is asked ends by then, with an error.
pub trait Source: Sync {
    /// The values of keys, one for each.
    ///
    /// # Errors
    /// The error to answer with, its code first.
    fn values(&self, keys: Vec<Bytes>) -> impl Future<Output = Result<Vec<Option<Bytes>>, String>> + Send;

    /// The sets of keys of neighbours, encoded; one for each key, `None` of a vertex without any.
    ///
    /// # Errors
    /// The error to answer with, its code first.
    fn sets(&self, keys: Vec<Bytes>, ask: Ask) -> impl Future<Output = Result<Vec<Option<Bytes>>, String>> + Send;

    /// The answer to a query over the sets of keys of neighbours.
    ///
    /// # Errors
    /// The error to answer with, its code first.
    fn query(
        &self,
        keys: Vec<Bytes>,
        query: SetQuery,
        ask: Ask,
    ) -> impl Future<Output = Result<SetAnswer, String>> + Send;

    /// Those of the vertices that a selection wants: for each id its record as JSON (see [`Vertex`](crate::Vertex)), or
    /// `{}` if its properties are not wanted; `None` if there is no such vertex, or the selection does not want it.
    ///
    /// # Errors
    /// The error to answer with, its code first.
    fn select(
        &self,
        ids: &[u64],
        selection: &Selection,
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, String>> + Send;

    /// How many requests it has sent to other nodes so far.
    fn requests(&self) -> u64;
}
