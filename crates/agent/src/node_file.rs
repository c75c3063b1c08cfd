//! The node's identity, as remembered in its data directory.
//!
//! The identity is made once and never changes. Number and cluster are learned when the node first joins
//! one; from then on the directory belongs to that cluster and no other.

use std::fs;
use std::io;
use std::path::Path;

use fondaco_cluster::new_identity;
use fondaco_model::{Identity, NodeId};
use serde::{Deserialize, Serialize};

use crate::data_dir::{DataDir, replace_file};
use crate::error::AgentError;

/// The content of `node.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// The node.
    pub identity: Identity,
    /// Its number, once it was given one.
    pub id: Option<NodeId>,
    /// Its cluster, once it joined one.
    pub cluster: Option<Identity>,
}

impl NodeFile {
    /// Reads the node file, or makes a new identity and writes it at once.
    ///
    /// # Errors
    /// The file cannot be read or written; or it is missing although the directory has data, which the node could not
    /// use under another identity.
    pub fn open(dir: &DataDir) -> Result<Self, AgentError> {
        let path = &dir.node_file();
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(AgentError::invalid_metadata(path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(found) = dir.found_data() {
                    let path = path.clone();
                    return Err(AgentError::NodeFileMissing { path, found });
                }
                let file = Self {
                    identity: new_identity()?,
                    id: None,
                    cluster: None,
                };
                file.write(path)?;
                Ok(file)
            }
            Err(error) => Err(AgentError::io("read", path)(error)),
        }
    }

    /// Writes the file, durably.
    pub fn write(&self, path: &Path) -> Result<(), AgentError> {
        let bytes = serde_json::to_vec_pretty(self).map_err(AgentError::invalid_metadata(path.display()))?;
        replace_file(path, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_remembered_with_its_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let dir = DataDir::open(dir.path()).unwrap();
        let mut first = NodeFile::open(&dir).unwrap();
        assert_eq!((first.id, &first.cluster), (None, &None));
        first.id = NodeId::new(3);
        first.cluster = Some(new_identity().unwrap());
        first.write(&dir.node_file()).unwrap();
        assert_eq!(NodeFile::open(&dir).unwrap(), first);
        assert_ne!(new_identity().unwrap(), new_identity().unwrap());
    }

    #[test]
    fn a_tampered_file_is_an_error_without_a_new_identity() {
        let dir = tempfile::tempdir().unwrap();
        let dir = DataDir::open(dir.path()).unwrap();
        fs::write(dir.node_file(), "{}").unwrap();
        let error = NodeFile::open(&dir).unwrap_err().to_string();
        assert!(error.contains("node.json"), "{error}");
    }

    #[test]
    fn a_node_that_has_data_gets_no_new_identity() {
        for data in ["stores/s/version-1", "versioned/tables", "view.json"] {
            let dir = tempfile::tempdir().unwrap();
            let dir = DataDir::open(dir.path()).unwrap();
            NodeFile::open(&dir).unwrap();
            fs::create_dir_all(dir.root().join(data)).unwrap();
            NodeFile::open(&dir).unwrap();
            fs::remove_file(dir.node_file()).unwrap();
            let error = NodeFile::open(&dir).unwrap_err();
            assert!(matches!(error, AgentError::NodeFileMissing { .. }), "{error}");
            assert!(!dir.node_file().exists());
        }
    }
}
