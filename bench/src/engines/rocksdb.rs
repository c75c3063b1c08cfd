//! RocksDB, the system's library through its C interface, with settings like ours: write buffers of 64 MiB, a log of
//! 512 MiB, Bloom filters of 10 bits per key, LZ4 from the third level on, as many threads, blocks of 4 KiB in one
//! cache.

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use anyhow::{Result, bail};

use super::WritableEngine;

const BLOOM_BITS: c_double = 10.0;
const NO_COMPRESSION: c_int = 0;
const LZ4: c_int = 4;

/// Any object of RocksDB.
type Object = *mut c_void;
/// Receives an error message, which RocksDB allocates.
type Failure = *mut *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_batched_multi_get_cf(
        database: Object,
        options: Object,
        family: Object,
        count: usize,
        keys: *const *const c_char,
        key_bytes: *const usize,
        values: *mut Object,
        failures: *mut *mut c_char,
        sorted: c_uchar,
    );
    fn rocksdb_block_based_options_create() -> Object;
    fn rocksdb_block_based_options_set_block_cache(options: Object, cache: Object);
    fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(options: Object, yes: c_uchar);
    fn rocksdb_block_based_options_set_filter_policy(options: Object, policy: Object);
    fn rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(options: Object, yes: c_uchar);
    fn rocksdb_cache_create_lru(bytes: usize) -> Object;
    fn rocksdb_close(database: Object);
    fn rocksdb_column_family_handle_destroy(family: Object);
    fn rocksdb_create_iterator(database: Object, options: Object) -> Object;
    fn rocksdb_filterpolicy_create_bloom(bits: c_double) -> Object;
    fn rocksdb_flush_wal(database: Object, sync: c_uchar, failure: Failure);
    fn rocksdb_free(memory: *mut c_void);
    fn rocksdb_get(
        database: Object,
        options: Object,
        key: *const c_char,
        key_bytes: usize,
        value_bytes: *mut usize,
        failure: Failure,
    ) -> *mut c_char;
    fn rocksdb_iter_destroy(iterator: Object);
    fn rocksdb_iter_get_error(iterator: Object, failure: Failure);
    fn rocksdb_iter_key(iterator: Object, bytes: *mut usize) -> *const c_char;
    fn rocksdb_iter_next(iterator: Object);
    fn rocksdb_iter_seek_to_first(iterator: Object);
    fn rocksdb_iter_valid(iterator: Object) -> c_uchar;
    fn rocksdb_iter_value(iterator: Object, bytes: *mut usize) -> *const c_char;
    fn rocksdb_open_column_families(
        options: Object,
        path: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const Object,
        families: *mut Object,
        failure: Failure,
    ) -> Object;
    fn rocksdb_options_create() -> Object;
    fn rocksdb_options_increase_parallelism(options: Object, threads: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: Object, table_options: Object);
    fn rocksdb_options_set_compression_per_level(options: Object, levels: *const c_int, count: usize);
    fn rocksdb_options_set_create_if_missing(options: Object, yes: c_uchar);
    fn rocksdb_options_set_max_total_wal_size(options: Object, bytes: u64);
    fn rocksdb_options_set_write_buffer_size(options: Object, bytes: usize);
    fn rocksdb_pinnableslice_destroy(slice: Object);
    fn rocksdb_pinnableslice_value(slice: Object, bytes: *mut usize) -> *const c_char;
    fn rocksdb_readoptions_create() -> Object;
    fn rocksdb_write(database: Object, options: Object, batch: Object, failure: Failure);
    fn rocksdb_writebatch_create() -> Object;
    fn rocksdb_writebatch_destroy(batch: Object);
    fn rocksdb_writebatch_put(
        batch: Object,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
    );
    fn rocksdb_writeoptions_create() -> Object;
}

/// An open database. Its options live as long as the process: there is only one of each.
pub struct Rocks {
    database: Object,
    family: Object,
    read_options: Object,
    write_options: Object,
}

// SAFETY: RocksDB allows any number of threads to use a database and options that do not change.
unsafe impl Send for Rocks {}
// SAFETY: as above.
unsafe impl Sync for Rocks {}

/// Makes a call that may fail, and converts its error.
fn checked<T>(call: impl FnOnce(Failure) -> T) -> Result<T> {
    let mut message = ptr::null_mut();
    let result = call(&raw mut message);
    converted(message)?;
    Ok(result)
}

/// Converts and frees an error message, if there is one.
fn converted(message: *mut c_char) -> Result<()> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: RocksDB returned a zero-terminated string that we must free.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        rocksdb_free(message.cast());
        text
    };
    bail!("RocksDB: {text}")
}

impl Rocks {
    pub fn open(dir: &Path, cache_bytes: u64) -> Result<Self> {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let mut levels = [LZ4; 7];
        levels[..2].fill(NO_COMPRESSION);
        // SAFETY: objects are used with the types of their constructors, and options are complete before they are used;
        // the path and the levels outlive the calls that read them.
        unsafe {
            let blocks = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_cache(blocks, rocksdb_cache_create_lru(cache_bytes as usize));
            rocksdb_block_based_options_set_filter_policy(blocks, rocksdb_filterpolicy_create_bloom(BLOOM_BITS));
            rocksdb_block_based_options_set_cache_index_and_filter_blocks(blocks, 1);
            rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(blocks, 1);
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_block_based_table_factory(options, blocks);
            rocksdb_options_set_write_buffer_size(options, 64 << 20);
            rocksdb_options_set_max_total_wal_size(options, 512 << 20);
            rocksdb_options_increase_parallelism(options, threads as c_int);
            rocksdb_options_set_compression_per_level(options, levels.as_ptr(), levels.len());
            // Only so can a handle of the column family be had, which reads of many keys need.
            let (name, mut family) = (c"default".as_ptr(), ptr::null_mut());
            let database = checked(|failure| {
                let (path, family) = (path.as_ptr(), &raw mut family);
                rocksdb_open_column_families(options, path, 1, &raw const name, &raw const options, family, failure)
            })?;
            Ok(Self {
                database,
                family,
                read_options: rocksdb_readoptions_create(),
                write_options: rocksdb_writeoptions_create(),
            })
        }
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: the database and its column family are not used any more.
        unsafe {
            rocksdb_column_family_handle_destroy(self.family);
            rocksdb_close(self.database);
        }
    }
}

impl WritableEngine for Rocks {
    fn write(&self, batch: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        // SAFETY: keys and values are copied into the batch, which is freed once, after the write.
        unsafe {
            let changes = rocksdb_writebatch_create();
            for (key, value) in batch {
                rocksdb_writebatch_put(
                    changes,
                    key.as_ptr().cast(),
                    key.len(),
                    value.as_ptr().cast(),
                    value.len(),
                );
            }
            let written = checked(|failure| rocksdb_write(self.database, self.write_options, changes, failure));
            rocksdb_writebatch_destroy(changes);
            written
        }
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: the database is open.
        checked(|failure| unsafe { rocksdb_flush_wal(self.database, 1, failure) })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut length = 0;
        // SAFETY: the key outlives the call; the returned memory is ours to free, and has the returned length.
        unsafe {
            let value = checked(|failure| {
                let key_bytes = key.len();
                rocksdb_get(
                    self.database,
                    self.read_options,
                    key.as_ptr().cast(),
                    key_bytes,
                    &raw mut length,
                    failure,
                )
            })?;
            if value.is_null() {
                return Ok(None);
            }
            let copy = std::slice::from_raw_parts(value.cast::<u8>(), length).to_vec();
            rocksdb_free(value.cast());
            Ok(Some(copy))
        }
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let pointers: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr().cast()).collect();
        let lengths: Vec<usize> = keys.iter().map(Vec::len).collect();
        let mut slices: Vec<Object> = vec![ptr::null_mut(); keys.len()];
        let mut failures: Vec<*mut c_char> = vec![ptr::null_mut(); keys.len()];
        // SAFETY: all arrays have as many elements as there are keys, and outlive the call; a slice is valid until it is
        // destroyed, once, and has the returned length.
        unsafe {
            rocksdb_batched_multi_get_cf(
                self.database,
                self.read_options,
                self.family,
                keys.len(),
                pointers.as_ptr(),
                lengths.as_ptr(),
                slices.as_mut_ptr(),
                failures.as_mut_ptr(),
                0,
            );
            let values = slices.into_iter().map(|slice| {
                if slice.is_null() {
                    return None;
                }
                let mut length = 0;
                let value = rocksdb_pinnableslice_value(slice, &raw mut length);
                let copy = std::slice::from_raw_parts(value.cast::<u8>(), length).to_vec();
                rocksdb_pinnableslice_destroy(slice);
                Some(copy)
            });
            let values = values.collect();
            failures.into_iter().try_for_each(converted)?;
            Ok(values)
        }
    }

    fn scan(&self) -> Result<(u64, u64)> {
        let (mut keys, mut bytes) = (0, 0);
        let (mut key_bytes, mut value_bytes) = (0, 0);
        // SAFETY: the iterator is used only while it is valid, and destroyed once.
        unsafe {
            let entries = rocksdb_create_iterator(self.database, self.read_options);
            rocksdb_iter_seek_to_first(entries);
            while rocksdb_iter_valid(entries) != 0 {
                rocksdb_iter_key(entries, &raw mut key_bytes);
                rocksdb_iter_value(entries, &raw mut value_bytes);
                keys += 1;
                bytes += (key_bytes + value_bytes) as u64;
                rocksdb_iter_next(entries);
            }
            let ended = checked(|failure| rocksdb_iter_get_error(entries, failure));
            rocksdb_iter_destroy(entries);
            ended?;
        }
        Ok((keys, bytes))
    }
}
