//! How queries read a graph's store.

use std::future::Future;

use bytes::Bytes;
use fondaco_ids::{SetAnswer, SetQuery};

use crate::Selection;

/// The purpose of a request. It selects the fan-out controller, as in Moolle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Separate values; the query waits for all of them: one group of nodes.
    NonUnion,
    /// A union that a query waits for: one group of nodes.
    SynchronousUnion,
    /// A union that no query waits for: as many groups as balance the work of this process and of the nodes.
    AsynchronousUnion,
    /// Any part of the answer may end the query: as many groups as there are.
    EarlyTerminable,
}

/// Reads one graph, in one version. A source knows its deadline: every request ends by then, with an error.
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

    /// Reads the vertices that match a selection. For each id, it returns the record as JSON (see
    /// [`Vertex`](crate::Vertex)), or `{}` if properties are not requested. It returns `None` if the vertex does not
    /// exist or does not match.
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
