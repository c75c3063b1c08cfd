//! The values of a batch look-up: one buffer, and the place of each value in it.

use std::ops::Range;

use fondaco_model::VersionNumber;
use fondaco_stream::Found;

use crate::error::EmbeddedError;
use crate::snapshot::Open;

/// The values of many keys, in the order of the keys. All are of one version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    bytes: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
    version: Option<VersionNumber>,
}

impl Values {
    /// For this many keys that have no values yet.
    pub(crate) fn none_of(count: usize, version: Option<VersionNumber>) -> Self {
        Self {
            bytes: Vec::new(),
            places: vec![None; count],
            version,
        }
    }

    /// Looks up keys in a version, and in the events on top of it, and copies their values.
    pub(crate) fn read<K: AsRef<[u8]>>(open: &Open, keys: &[K]) -> Result<Self, EmbeddedError> {
        let mut values = Self::none_of(keys.len(), open.number);
        let Some(layer) = &open.layer else {
            values.add(open, keys, |at| at)?;
            return Ok(values);
        };
        let mut rest = Vec::new();
        for (at, found) in layer.find_many(keys)?.into_iter().enumerate() {
            match found {
                Found::Value(value) => values.put(at, &value),
                Found::Deleted => {}
                Found::Nothing => rest.push(at),
                Found::Behind | Found::Unknown => return Err(open.behind(keys[at].as_ref())),
            }
        }
        let keys: Vec<&[u8]> = rest.iter().map(|&at| keys[at].as_ref()).collect();
        values.add(open, &keys, |at| rest[at])?;
        Ok(values)
    }

    /// Adds the values that keys have in the files of a version; `place` is the place of each of them.
    fn add<K: AsRef<[u8]>>(
        &mut self,
        open: &Open,
        keys: &[K],
        place: impl Fn(usize) -> usize,
    ) -> Result<(), EmbeddedError> {
        let mut failed = None;
        let mut torn = Vec::new();
        open.version.get_many(keys, |at, found| match found {
            Ok(Some(value)) => {
                let start = self.bytes.len();
                self.put(place(at), &value);
                if !value.is_intact() {
                    self.bytes.truncate(start);
                    torn.push(at);
                }
            }
            Ok(None) => {}
            Err(error) => failed = failed.take().or(Some(error)),
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        for at in torn {
            self.places[place(at)] = None;
            if let Some(value) = open.version.get_owned(keys[at].as_ref())? {
                self.put(place(at), &value);
            }
        }
        Ok(())
    }

    /// Sets the value of a key.
    pub(crate) fn put(&mut self, at: usize, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.places[at] = Some(start..self.bytes.len());
    }

    /// Sets the values of the keys at these places; `None` for a key without one.
    pub(crate) fn put_each(&mut self, places: impl Iterator<Item = usize>, values: &[Option<impl AsRef<[u8]>>]) {
        for (at, value) in places.zip(values) {
            value.iter().for_each(|value| self.put(at, value.as_ref()));
        }
    }

    /// The number of the version in the cluster; `None` for a directory that was opened by itself.
    pub fn version(&self) -> Option<VersionNumber> {
        self.version
    }

    /// The number of keys that were looked up.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no key was looked up.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The value of the key with this index; `None` if the version does not have the key, or there is no such index.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        self.places.get(at)?.clone().map(|place| &self.bytes[place])
    }

    /// The value of each key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        self.places
            .iter()
            .map(|place| place.clone().map(|place| &self.bytes[place]))
    }

    /// The buffer, and the place of each value in it. The places do not overlap, but need not be in order.
    pub fn into_parts(self) -> (Vec<u8>, Vec<Option<Range<usize>>>) {
        (self.bytes, self.places)
    }
}
