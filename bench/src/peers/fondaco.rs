//! fondaco's own format, as a library in this process: built by its builder, read by `Version::get`, which verifies the
//! checksum of every record.

use std::path::Path;
use std::thread;

use anyhow::Result;
use fondaco_builder::{BuildOptions, InputFormat, OnDuplicate, Progress, ValueSelection, build};
use fondaco_format::{Compression, Version};
use fondaco_model::PartitionCount;
use fondaco_storage::Location;

use super::{OpenSettings, ReadOnlyEngine, Reader};
use crate::dataset::file::{KEY_COLUMN, VALUE_COLUMN};
use crate::servers::fondaco::{PARTITIONS, STORE};

/// An open version.
pub struct Fondaco(Version);

/// A stateless reader.
pub struct FondacoReader<'a>(&'a Version);

/// The default options to build one of the benchmark's files for a store.
pub fn build_options(store: &str, parquet: &Path, dir: &Path, temporary: &Path) -> Result<BuildOptions> {
    Ok(BuildOptions {
        store: store.parse()?,
        inputs: vec![parquet.display().to_string()],
        format: Some(InputFormat::Parquet),
        delimiter: None,
        reading: Default::default(),
        key: vec![KEY_COLUMN.into()],
        value: ValueSelection::Column(VALUE_COLUMN.into()),
        declared: Default::default(),
        on_duplicate: OnDuplicate::Fail,
        bad_rows_max: 0,
        allow_empty: false,
        memory_bytes: BuildOptions::MEMORY_BYTES_DEFAULT,
        threads: thread::available_parallelism().map_or(1, usize::from),
        partitions: PartitionCount::try_from(PARTITIONS)?,
        cut_unix_ms: None,
        times: None,
        compression: Compression::None,
        chunk_bytes_target: BuildOptions::CHUNK_BYTES_TARGET_DEFAULT,
        output: Location::local(dir),
        temporary: temporary.to_owned(),
        dry_run: false,
        dictionary: None,
    })
}

impl ReadOnlyEngine for Fondaco {
    type Reader<'a> = FondacoReader<'a>;

    fn load(parquet: &Path, dir: &Path) -> Result<()> {
        let temporary = tempfile::tempdir_in(dir.parent().unwrap_or(dir))?;
        build(&build_options(STORE, parquet, dir, temporary.path())?, &Progress::new())?;
        Ok(())
    }

    fn open(dir: &Path, _: OpenSettings) -> Result<Self> {
        let version = Version::open(dir)?;
        version.warm()?;
        Ok(Self(version))
    }

    fn reader(&self) -> Result<FondacoReader<'_>> {
        Ok(FondacoReader(&self.0))
    }

    fn index_bytes(&self) -> Result<u64> {
        Ok(self.0.index_bytes())
    }
}

impl Reader for FondacoReader<'_> {
    #[inline]
    fn get<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.0.get(key)?.map(|value| read(&value)))
    }
    #[inline]
    fn get_many<K: AsRef<[u8]>>(&mut self, keys: &[K], mut read: impl FnMut(&[u8], Option<&[u8]>)) -> Result<()> {
        let mut failed = None;
        self.0.get_many(keys, |at, found| match found {
            Ok(value) => read(keys[at].as_ref(), value.as_deref()),
            Err(error) => failed = Some(error),
        });
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
