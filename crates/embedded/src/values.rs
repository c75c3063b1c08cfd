//! The values of a batch look-up: one buffer, and the place of each value in it.

use std::ops::Range;

use fondaco_format::{FormatError, Version};

/// The values of many keys, in the order of the keys. All are of one version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    bytes: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
}

impl Values {
    /// Looks up keys in a version, and copies their values.
    pub(crate) fn read<K: AsRef<[u8]>>(version: &Version, keys: &[K]) -> Result<Self, FormatError> {
        let mut values = Self {
            bytes: Vec::new(),
            places: vec![None; keys.len()],
        };
        let mut failed = None;
        let mut torn = Vec::new();
        version.get_many(keys, |at, found| match found {
            Ok(Some(value)) => {
                let start = values.bytes.len();
                values.put(at, &value);
                if !value.is_intact() {
                    values.bytes.truncate(start);
                    torn.push(at);
                }
            }
            Ok(None) => {}
            Err(error) => failed = failed.take().or(Some(error)),
        });
        if let Some(error) = failed {
            return Err(error);
        }
        for at in torn {
            values.places[at] = None;
            if let Some(value) = version.get_owned(keys[at].as_ref())? {
                values.put(at, &value);
            }
        }
        Ok(values)
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.places[at] = Some(start..self.bytes.len());
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
