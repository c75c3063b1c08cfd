//! Compression of single values: none, LZ4, or Zstandard with a trained dictionary.
//!
//! A value that would not become shorter is stored uncompressed, and its record has a flag for that. A compressed value
//! begins with its length before compression, 4 bytes, little-endian.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use fondaco_model::VALUE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use zstd::zstd_safe::{self, CCtx, CDict, DCtx, DDict};

use crate::error::FormatError;

const LENGTH_BYTES: usize = 4;
const DICTIONARY_BYTES_MAX: usize = 110 * 1024;
const SAMPLES_MIN: usize = 100;
/// The default of Zstandard: lower levels are hardly faster and compress worse.
pub(crate) const ZSTD_LEVEL: i32 = 3;

/// How the values of a version are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4 blocks.
    Lz4,
    /// Zstandard, with the version's dictionary if there is one.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            _ => Err(format!("unknown compression {text:?}: use none, lz4 or zstd")),
        }
    }
}

/// A value in the form in which a record stores it.
#[derive(Debug, Clone, Copy)]
pub struct EncodedValue<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) stored_as_is: bool,
    pub(crate) time_ms: Option<u64>,
}

impl EncodedValue<'_> {
    /// The value with a time, in milliseconds since 1970, that its record gets.
    #[must_use]
    pub fn at(self, time_ms: Option<u64>) -> Self {
        Self { time_ms, ..self }
    }

    /// The length of the value before compression.
    pub fn value_bytes(&self, compression: Compression) -> u64 {
        match (compression, self.bytes.first_chunk::<LENGTH_BYTES>()) {
            (Compression::Lz4 | Compression::Zstd, Some(length)) if !self.stored_as_is => {
                u32::from_le_bytes(*length).into()
            }
            _ => self.bytes.len() as u64,
        }
    }
}

/// Encodes values for one version. One per thread.
pub struct Encoder {
    method: Method,
    buffer: Vec<u8>,
}

enum Method {
    None,
    Lz4,
    Zstd {
        context: CCtx<'static>,
        dictionary: Option<CDict<'static>>,
    },
}

impl Encoder {
    /// An encoder; the dictionary is for [`Compression::Zstd`] only.
    pub fn new(compression: Compression, dictionary: Option<&[u8]>) -> Result<Self, FormatError> {
        let method = match compression {
            Compression::None => Method::None,
            Compression::Lz4 => Method::Lz4,
            Compression::Zstd => Method::Zstd {
                context: CCtx::create(),
                dictionary: match dictionary {
                    Some(bytes) => Some(
                        CDict::try_create(bytes, ZSTD_LEVEL)
                            .ok_or_else(|| FormatError::Compression("the dictionary is unusable".into()))?,
                    ),
                    None => None,
                },
            },
        };
        Ok(Self {
            method,
            buffer: Vec::new(),
        })
    }

    /// Encodes one value.
    ///
    /// # Errors
    /// A value over [`VALUE_BYTES_MAX`].
    pub fn encode<'a>(&'a mut self, value: &'a [u8]) -> Result<EncodedValue<'a>, FormatError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(FormatError::ValueLength { bytes: value.len() });
        }
        let bound = match &self.method {
            Method::None => {
                return Ok(EncodedValue {
                    bytes: value,
                    stored_as_is: false,
                    time_ms: None,
                });
            }
            Method::Lz4 => lz4_flex::block::get_maximum_output_size(value.len()),
            Method::Zstd { .. } => zstd_safe::compress_bound(value.len()),
        };
        self.buffer.clear();
        self.buffer.resize(LENGTH_BYTES + bound, 0);
        self.buffer[..LENGTH_BYTES].copy_from_slice(&(value.len() as u32).to_le_bytes());
        let out = &mut self.buffer[LENGTH_BYTES..];
        let compressed = match &mut self.method {
            Method::None => unreachable!("returned above"),
            Method::Lz4 => lz4_flex::block::compress_into(value, out).map_err(|e| e.to_string()),
            Method::Zstd { context, dictionary } => match dictionary {
                Some(dictionary) => context.compress_using_cdict(out, value, dictionary),
                None => context.compress(out, value, ZSTD_LEVEL),
            }
            .map_err(zstd_error),
        };
        let stored = LENGTH_BYTES + compressed.map_err(FormatError::Compression)?;
        if stored < value.len() {
            Ok(EncodedValue {
                bytes: &self.buffer[..stored],
                stored_as_is: false,
                time_ms: None,
            })
        } else {
            Ok(EncodedValue {
                bytes: value,
                stored_as_is: true,
                time_ms: None,
            })
        }
    }
}

/// Trains a dictionary from samples of the values; `None` if they are too few or too different for a dictionary to
/// help.
pub fn train_dictionary(samples: &[Vec<u8>]) -> Result<Option<Vec<u8>>, FormatError> {
    if samples.len() < SAMPLES_MIN {
        return Ok(None);
    }
    Ok(zstd::dict::from_samples(samples, DICTIONARY_BYTES_MAX).ok())
}

/// Decodes the values of one version, from any thread.
pub(crate) enum Decoder {
    None,
    Lz4,
    Zstd(Option<DDict<'static>>),
}

impl Decoder {
    pub(crate) fn new(compression: Compression, dictionary: Option<&[u8]>) -> Result<Self, FormatError> {
        Ok(match compression {
            Compression::None => Self::None,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd(match dictionary {
                Some(bytes) => Some(
                    DDict::try_create(bytes)
                        .ok_or_else(|| FormatError::Compression("the dictionary is unusable".into()))?,
                ),
                None => None,
            }),
        })
    }

    /// Whether values are stored unchanged.
    #[inline]
    pub(crate) fn is_identity(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Decodes a stored value; the error is text.
    pub(crate) fn decode<'a>(&self, stored: &'a [u8], stored_as_is: bool) -> Result<Cow<'a, [u8]>, String> {
        if stored_as_is || self.is_identity() {
            return Ok(Cow::Borrowed(stored));
        }
        let (length, compressed) = stored
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or("a compressed value is too short")?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > VALUE_BYTES_MAX {
            return Err("a compressed value passes the limit".into());
        }
        let mut value = vec![0; length];
        let written = match self {
            Self::None => unreachable!("returned above"),
            Self::Lz4 => lz4_flex::block::decompress_into(compressed, &mut value).map_err(|e| e.to_string())?,
            Self::Zstd(dictionary) => decompress_zstd(compressed, &mut value, dictionary.as_ref())?,
        };
        if written == length {
            Ok(Cow::Owned(value))
        } else {
            Err("a compressed value has another length than it says".into())
        }
    }
}

fn decompress_zstd(compressed: &[u8], out: &mut [u8], dictionary: Option<&DDict<'static>>) -> Result<usize, String> {
    thread_local! {
        /// A context takes 100 KiB and more, so there is one per thread, for all versions.
        static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    }
    CONTEXT
        .with_borrow_mut(|context| match dictionary {
            Some(dictionary) => context.decompress_using_ddict(out, compressed, dictionary),
            None => context.decompress(out, compressed),
        })
        .map_err(zstd_error)
}

fn zstd_error(code: usize) -> String {
    zstd_safe::get_error_name(code).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples() -> Vec<Vec<u8>> {
        (0..2000)
            .map(|i| {
                format!(
                    "{{\"member\":{i},\"score\":{},\"reason\":\"works at the same company\"}}",
                    i * 37 % 1001
                )
                .into_bytes()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn encoding_round_trips(value in prop::collection::vec(prop::num::u8::ANY, 0..3000), repeat in 1..4usize) {
            let value = value.repeat(repeat);
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                let mut encoder = Encoder::new(compression, None).unwrap();
                let decoder = Decoder::new(compression, None).unwrap();
                let encoded = encoder.encode(&value).unwrap();
                prop_assert!(encoded.bytes.len() <= value.len());
                prop_assert_eq!(&decoder.decode(encoded.bytes, encoded.stored_as_is).unwrap()[..], &value[..]);
            }
        }

        #[test]
        fn decoding_damaged_values_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for compression in [Compression::Lz4, Compression::Zstd] {
                let mut bytes = bytes.clone();
                // Keep the claimed length small: the test is about the codec, not about allocation.
                if let Some(length) = bytes.get_mut(2..4) {
                    length.fill(0);
                }
                let _ = Decoder::new(compression, None).unwrap().decode(&bytes, false);
            }
        }
    }

    #[test]
    fn a_dictionary_makes_small_similar_values_shorter() {
        let samples = samples();
        let dictionary = train_dictionary(&samples).unwrap().unwrap();
        let length = |dictionary: Option<&[u8]>| {
            let mut encoder = Encoder::new(Compression::Zstd, dictionary).unwrap();
            samples
                .iter()
                .map(|s| encoder.encode(s).unwrap().bytes.len())
                .sum::<usize>()
        };
        assert!(length(Some(&dictionary)) * 2 < length(None));
        let mut encoder = Encoder::new(Compression::Zstd, Some(&dictionary)).unwrap();
        let decoder = Decoder::new(Compression::Zstd, Some(&dictionary)).unwrap();
        let encoded = encoder.encode(&samples[7]).unwrap();
        assert_eq!(
            decoder.decode(encoded.bytes, encoded.stored_as_is).unwrap(),
            &samples[7][..]
        );
    }

    #[test]
    fn too_few_samples_give_no_dictionary() {
        assert!(train_dictionary(&samples()[..10]).unwrap().is_none());
    }
}
