//! A directory that is already in use.

use fondaco_engine::EngineError;

use super::engines::{Kind, Options};

pub fn a_directory_in_use_is_refused_until_it_is_released(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let open = || kind.open(dir.path(), Options::default());
    let first = open().unwrap();
    let refused = open().err();
    assert!(matches!(refused, Some(EngineError::Locked { .. })), "{refused:?}");
    drop(first);
    assert!(open().is_ok());
}
