//! The ids that the current version of a graph gave to its vertices: from the cluster, or from a built version.

use std::path::Path;
use std::sync::Mutex;

use fondaco_admin::{Client, Connection, Endpoint, connect, refused};
use fondaco_api::StoreResource;
use fondaco_builder::KnownIds;
use fondaco_format::Version;
use fondaco_graph::{Description, keys};
use fondaco_model::{StoreName, ValueType};

use crate::error::{PushError, with_causes};

/// How many names are looked up with one command.
const NAMES_PER_COMMAND: usize = 1000;

/// The ids of a graph that a cluster serves.
pub(crate) struct ServedIds<'a> {
    endpoint: &'a Endpoint,
    address: String,
    store: &'a StoreName,
    description: Description,
    /// Connections that no thread uses now.
    unused: Mutex<Vec<Connection>>,
}

/// The ids of the vertices of a graph that has a version: they keep them.
pub(crate) fn served_ids<'a>(
    client: &Client,
    endpoint: &'a Endpoint,
    name: &'a StoreName,
    store: Option<&StoreResource>,
) -> Result<Option<ServedIds<'a>>, PushError> {
    let has_ids = |found: &&StoreResource| found.value_type() == ValueType::Graph && found.current_version.is_some();
    match store.filter(has_ids) {
        Some(_) => ServedIds::of(client, endpoint, name).map(Some),
        None => Ok(None),
    }
}

/// Refuses a graph whose ids were taken from a version that is not the current one any more: another push may have given
/// the same ids to other names.
pub(crate) fn check_ids_are_current(
    client: &Client,
    name: &StoreName,
    graph: Option<&StoreResource>,
) -> Result<(), PushError> {
    let Some(before) = graph else {
        return Ok(());
    };
    let now = client.store(name)?.and_then(|now| now.current_version);
    if now != before.current_version {
        return Err(PushError::Unfit(format!(
            "graph {name} got another version during the build, which may have given the same ids to other vertices: push again"
        )));
    }
    Ok(())
}

impl<'a> ServedIds<'a> {
    /// Connects to the RESP port, and reads the graph's description.
    fn of(client: &Client, endpoint: &'a Endpoint, store: &'a StoreName) -> Result<Self, PushError> {
        let address = match &endpoint.resp {
            Some(address) => address.clone(),
            None => client.resp_address()?,
        };
        let mut connection = connect(endpoint, &address)?;
        let found: Option<Vec<u8>> = redis::cmd("GET")
            .arg(wire_key(store, keys::DESCRIPTION))
            .query(&mut *connection)
            .map_err(refused)
            .map_err(|error| {
                PushError::from(error).within(format!("cannot read the ids of graph {store} from {address}"))
            })?;
        Ok(Self {
            endpoint,
            address,
            store,
            description: description(found.as_deref(), store)?,
            unused: Mutex::new(vec![connection]),
        })
    }

    fn ask(&self, connection: &mut Connection, names: &[Vec<u8>]) -> Result<Vec<Option<u64>>, PushError> {
        let mut ids = Vec::with_capacity(names.len());
        for names in names.chunks(NAMES_PER_COMMAND) {
            let mut command = redis::cmd("MGET");
            for name in names {
                command.arg(wire_key(self.store, &keys::id(name)));
            }
            let values: Vec<Option<Vec<u8>>> = command.query(&mut **connection).map_err(refused)?;
            if values.len() != names.len() {
                let text = format!("{} values arrived for {} keys", values.len(), names.len());
                return Err(PushError::Damaged(text));
            }
            for value in values {
                ids.push(value.as_deref().map(id).transpose()?);
            }
        }
        Ok(ids)
    }

    /// A connection that was used before may be broken: the next attempt makes a new one.
    fn look_up_once(&self, names: &[Vec<u8>], is_new: bool) -> Result<Vec<Option<u64>>, PushError> {
        let unused = || self.unused.lock().ok()?.pop();
        let mut connection = match (!is_new).then(unused).flatten() {
            Some(connection) => connection,
            None => connect(self.endpoint, &self.address)?,
        };
        let ids = self.ask(&mut connection, names)?;
        if let Ok(mut unused) = self.unused.lock() {
            unused.push(connection);
        }
        Ok(ids)
    }
}

impl KnownIds for ServedIds<'_> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn look_up(&self, names: &[Vec<u8>]) -> Result<Vec<Option<u64>>, String> {
        self.look_up_once(names, false)
            .or_else(|_| self.look_up_once(names, true))
            .map_err(|error| {
                format!(
                    "cannot look up names at {}: {}; push again",
                    self.address,
                    with_causes(&error)
                )
            })
    }
}

/// The ids of a graph in a built version.
pub struct BuiltIds {
    version: Version,
    description: Description,
}

impl BuiltIds {
    /// Opens the version.
    ///
    /// # Errors
    /// It cannot be read, or is no graph.
    pub fn open(directory: &Path) -> Result<Self, PushError> {
        let failed = |error: PushError| error.within(format!("cannot read the ids of the version in {directory:?}"));
        let version = Version::open(directory).map_err(|error| failed(error.into()))?;
        let found = version.get(keys::DESCRIPTION).map_err(|error| failed(error.into()))?;
        let description = description(found.as_deref(), &version.manifest().store).map_err(failed)?;
        Ok(Self { version, description })
    }
}

impl KnownIds for BuiltIds {
    fn description(&self) -> &Description {
        &self.description
    }

    fn look_up(&self, names: &[Vec<u8>]) -> Result<Vec<Option<u64>>, String> {
        let one = |name: &Vec<u8>| match self.version.get(&keys::id(name)) {
            Ok(value) => value.as_deref().map(id).transpose().map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        names.iter().map(one).collect()
    }
}

fn wire_key(store: &StoreName, key: &[u8]) -> Vec<u8> {
    [store.as_str().as_bytes(), b":", key].concat()
}

fn description(found: Option<&[u8]>, store: &StoreName) -> Result<Description, PushError> {
    let Some(found) = found else {
        return Err(PushError::Unfit(format!(
            "the current version of store {store} has no description of a graph: push the graph under another name"
        )));
    };
    serde_json::from_slice(found)
        .map_err(|error| PushError::Damaged(format!("the description of graph {store} is damaged: {error}")))
}

fn id(value: &[u8]) -> Result<u64, PushError> {
    let text = String::from_utf8_lossy(value);
    text.parse()
        .map_err(|_| PushError::Damaged(format!("{text:?} is not the id of a vertex")))
}
