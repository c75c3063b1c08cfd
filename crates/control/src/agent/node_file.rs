//! The node's identity, as remembered in its data directory.
//!
//! The identity is made once and never changes. Number and cluster are learned when the node first joins
//! one; from then on the directory belongs to that cluster and no other.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use fondaco_model::{Identity, NodeId};
use serde::{Deserialize, Serialize};

use crate::data_dir::{DataDir, replace_file};
use crate::error::ControlError;

/// The content of `node.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeFile {
    /// The node.
    pub(crate) identity: Identity,
    /// Its number, once it was given one.
    pub(crate) id: Option<NodeId>,
    /// Its cluster, once it joined one.
    pub(crate) cluster: Option<Identity>,
}

impl NodeFile {
    /// Reads the node file, or makes a new identity and writes it at once.
    ///
    /// # Errors
    /// The file cannot be read or written; or it is missing although the directory has data, which the node could not
    /// use under another identity.
    pub(crate) fn open(dir: &DataDir) -> Result<Self, ControlError> {
        let path = &dir.node_file();
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| ControlError::InvalidMetadata {
                entry: path.display().to_string(),
                reason: error.to_string(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(found) = dir.found_data() {
                    let path = path.clone();
                    return Err(ControlError::NodeFileMissing { path, found });
                }
                let file = Self {
                    identity: new_identity()?,
                    id: None,
                    cluster: None,
                };
                file.write(path)?;
                Ok(file)
            }
            Err(error) => Err(ControlError::io("read", path)(error)),
        }
    }

    /// Writes the file, durably.
    pub(crate) fn write(&self, path: &Path) -> Result<(), ControlError> {
        let bytes = serde_json::to_vec_pretty(self).map_err(|error| ControlError::InvalidMetadata {
            entry: path.display().to_string(),
            reason: error.to_string(),
        })?;
        replace_file(path, &bytes)
    }
}

/// A new, unique identity.
pub(crate) fn new_identity() -> Result<Identity, ControlError> {
    const RANDOM: &str = "/dev/urandom";
    let mut bits = [0; 16];
    let mut source = fs::File::open(RANDOM).map_err(ControlError::io("open", RANDOM))?;
    source.read_exact(&mut bits).map_err(ControlError::io("read", RANDOM))?;
    Ok(Identity::of(u128::from_ne_bytes(bits)))
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
            assert!(matches!(error, ControlError::NodeFileMissing { .. }), "{error}");
            assert!(!dir.node_file().exists());
        }
    }
}
