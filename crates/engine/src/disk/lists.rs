//! Checks whether the lists of files of a database are as written. fjall stores a checksum of each tree's list but does
//! not check it: after one bit flip, a tree would be read in the wrong order, or only in part.
//!
//! ```text
//! keyspaces/TREE/current   number u64, XXH3-128 of the list u128, 0      integers are little-endian
//! keyspaces/TREE/vNUMBER   the list
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::failure;
use crate::error::EngineError;

/// Checks the list of every tree in a directory. Skips missing files: fjall reports them itself.
pub(super) fn check(dir: &Path) -> Result<(), EngineError> {
    let trees = dir.join("keyspaces");
    let entries = match fs::read_dir(&trees) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| failure::io("list", &trees, error))?,
    };
    for entry in entries {
        let tree = entry.map_err(|error| failure::io("list", &trees, error))?.path();
        check_tree(&tree)?;
    }
    Ok(())
}

fn check_tree(tree: &Path) -> Result<(), EngineError> {
    let Some(current) = read(&tree.join("current"))? else {
        return Ok(());
    };
    let damaged = || failure::corrupt(tree, "its list of files is not what was written");
    let (number, rest) = current.split_first_chunk::<8>().ok_or_else(damaged)?;
    let (checksum, rest) = rest.split_first_chunk::<16>().ok_or_else(damaged)?;
    let list = tree.join(format!("v{}", u64::from_le_bytes(*number)));
    let list = read(&list)?.ok_or_else(damaged)?;
    match rest == [0] && xxh3_128(&list) == u128::from_le_bytes(*checksum) {
        true => Ok(()),
        false => Err(damaged()),
    }
}

/// The content of a file, if the file exists.
fn read(path: &Path) -> Result<Option<Vec<u8>>, EngineError> {
    match fs::read(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        bytes => bytes.map(Some).map_err(|error| failure::io("read", path, error)),
    }
}
