//! `dev.json`: how a development cluster was made, and which ports its members serve at, so that the next start finds
//! the same cluster and its clients find the same ports.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use fondaco_cluster::ClusterError;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::RoleError;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DevFile {
    nodes: u32,
    partitions: u32,
    replicas: u32,
    /// The ports of each member, by its name.
    members: BTreeMap<String, Ports>,
    #[serde(skip)]
    path: PathBuf,
}

/// The ports of a member; 0 for a port that it does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ports {
    resp: u16,
    http: u16,
}

impl DevFile {
    /// Reads the file of a development cluster, or makes a new one.
    ///
    /// # Errors
    /// The cluster there has more nodes, or other partitions or replicas.
    pub(crate) fn open(dir: &Path, nodes: u32, common: &Config) -> Result<Self, RoleError> {
        let path = dir.join("dev.json");
        let asked = Self {
            nodes,
            partitions: common.partitions.get(),
            replicas: common.cluster.replicas,
            members: BTreeMap::new(),
            path,
        };
        let found = match fs::read(&asked.path) {
            Ok(bytes) => {
                let found = serde_json::from_slice::<Self>(&bytes);
                found.map_err(ClusterError::invalid_metadata(asked.path.display()))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // A directory older than this file.
                let nodes = (1..)
                    .take_while(|number| dir.join(format!("node-{number}")).exists())
                    .count() as u32;
                Self {
                    nodes: if nodes > 0 { nodes } else { asked.nodes },
                    ..asked.clone()
                }
            }
            Err(error) => return Err(RoleError::io("read", &asked.path)(error)),
        };
        for (what, flag, had, wanted) in [
            ("nodes", "--nodes", found.nodes, asked.nodes),
            ("partitions", "--partitions", found.partitions, asked.partitions),
            (
                "replicas of each partition",
                "--replicas",
                found.replicas,
                asked.replicas,
            ),
        ] {
            // A cluster may grow by nodes, which are given their share later.
            let is_more_nodes = flag == "--nodes" && wanted > had;
            if had != wanted && !is_more_nodes {
                return Err(RoleError::InvalidConfig(format!(
                    "{dir:?} has the data of a cluster with {had} {what}, not {wanted}: \
                     start it with {flag} {had}, or choose another --data"
                )));
            }
        }
        Ok(Self {
            path: asked.path,
            nodes: asked.nodes,
            ..found
        })
    }

    /// Sets the member's last ports in its configuration, as far as they are free.
    pub(crate) fn recall(&self, name: &str, config: &mut Config) {
        let Some(ports) = self.members.get(name) else { return };
        for (listen, port) in [
            (&mut config.resp_listen, ports.resp),
            (&mut config.http_listen, ports.http),
        ] {
            let had = SocketAddr::new(listen.ip(), port);
            if listen.port() == 0 && TcpListener::bind(had).is_ok() {
                listen.set_port(port);
            }
        }
    }

    /// Records the ports of a member.
    pub(crate) fn note(&mut self, name: &str, resp: Option<SocketAddr>, http: SocketAddr) {
        let ports = Ports {
            resp: resp.map_or(0, |resp| resp.port()),
            http: http.port(),
        };
        self.members.insert(name.to_owned(), ports);
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self) -> Result<(), RoleError> {
        let bytes = serde_json::to_vec_pretty(self).map_err(ClusterError::invalid_metadata(self.path.display()))?;
        // Renamed, so that a kill leaves a complete file.
        let new = self.path.with_extension("new");
        fs::write(&new, bytes).map_err(RoleError::io("write", &new))?;
        fs::rename(&new, &self.path).map_err(RoleError::io("rename", &new))
    }
}
