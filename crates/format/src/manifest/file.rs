//! Serialises the manifest.
//!
//! It is JSON: `{"manifest": {…}, "checksum": "…", "built": {…}, "patches": […]}`. The checksum covers the exact bytes
//! of the inner object, so that a changed byte in it is noticed. It identifies the version: two builds of the same input
//! have the same checksum, and differ only in `built`, which the checksum does not cover. Nothing may depend on the
//! contents of `built`. The checksum does not cover `patches`, either: what is made with a patch has a checksum.
//!
//! In version 1 of the format the inner object contained what is now `built`, and a version is identified by the
//! checksum of the whole file. Cluster metadata refers to versions by these identities, so they stay.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use fondaco_model::ValueType;

use super::{Built, Manifest, PatchEntry};
use crate::checksum::Checksum;
use crate::error::FormatError;
use crate::names::MANIFEST_FILE;
use crate::{format_version, format_versions_read};

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    manifest: &'a RawValue,
    checksum: Checksum,
    /// Missing in version 1.
    #[serde(default)]
    built: Built,
    #[serde(default)]
    patches: Vec<PatchEntry>,
}

/// The part that is parsed first: it tells whether the rest can be parsed.
#[derive(Deserialize)]
struct Prelude {
    format_version: u64,
    /// Missing in version 1.
    value_type: Option<String>,
}

impl Manifest {
    /// The bytes of the manifest file.
    ///
    /// # Panics
    /// If its format version is not the one that this library writes.
    pub fn to_bytes(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Outer<'a> {
            built: &'a Built,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            patches: &'a [PatchEntry],
        }
        assert_eq!(
            self.format_version,
            format_version(),
            "previous formats are not written"
        );
        // Plain data with text keys: serialising it into memory cannot fail.
        let inner = serde_json::to_string_pretty(self).expect("a manifest is plain data");
        let built = serde_json::to_string(&Outer {
            built: &self.built,
            patches: &self.patches,
        });
        let built = built.expect("it is plain data");
        let built = built.trim_start_matches('{');
        let checksum = Checksum::of(inner.as_bytes());
        format!("{{\"manifest\": {inner},\n\"checksum\": \"{checksum}\",\n{built}\n").into_bytes()
    }

    /// The checksum that identifies the version, if this library wrote the manifest.
    pub fn checksum(&self) -> Checksum {
        // Plain data with text keys: serialising it into memory cannot fail.
        Checksum::of(
            serde_json::to_string_pretty(self)
                .expect("a manifest is plain data")
                .as_bytes(),
        )
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// An unknown format version or type of values, a checksum that does not match, or invalid contents.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        Ok(Self::identified(bytes)?.0)
    }

    /// Reads a manifest, and the identity of its version: see [`Manifest::identity`].
    ///
    /// # Errors
    /// As [`Manifest::from_bytes`].
    pub fn identified(bytes: &[u8]) -> Result<(Self, Checksum), FormatError> {
        let envelope = Envelope::parse(bytes)?;
        let inner = envelope.manifest.get();
        let prelude = envelope.prelude()?;
        let format = u32::try_from(prelude.format_version).ok();
        let Some(format) = format.filter(|format| format_versions_read().contains(format)) else {
            return Err(FormatError::UnknownFormat {
                path: MANIFEST_FILE.into(),
                found: prelude.format_version,
            });
        };
        let identity = envelope.identity(format.into(), bytes)?;
        if let Some(found) = prelude.value_type.filter(|name| ValueType::from_name(name).is_none()) {
            return Err(FormatError::UnknownValueType { found });
        }
        let manifest = match format {
            1 => parse_version_1(inner),
            _ => serde_json::from_str(inner).map(|manifest| Self {
                built: envelope.built,
                patches: envelope.patches,
                ..manifest
            }),
        };
        let manifest: Self = manifest.map_err(|e| corrupt(e.to_string()))?;
        manifest.check().map_err(corrupt)?;
        Ok((manifest, identity))
    }

    /// The unique identity of the version of a manifest: the checksum in the file, if it matches. In version 1 of the
    /// format it is the checksum of the whole file. The rest of the manifest is not parsed, so its format may be
    /// unknown.
    ///
    /// # Errors
    /// The bytes are not a manifest, or have changed.
    pub fn identity(bytes: &[u8]) -> Result<Checksum, FormatError> {
        let envelope = Envelope::parse(bytes)?;
        let format = envelope.prelude()?.format_version;
        envelope.identity(format, bytes)
    }

    /// Reads the manifest of a version's directory.
    ///
    /// # Errors
    /// As [`Manifest::from_bytes`], and if the file is missing.
    pub fn read(dir: &Path) -> Result<Self, FormatError> {
        Ok(Self::read_identified(dir)?.0)
    }

    /// Reads the manifest of a version's directory, and the identity of the version.
    ///
    /// # Errors
    /// As [`Manifest::read`].
    pub fn read_identified(dir: &Path) -> Result<(Self, Checksum), FormatError> {
        let path = dir.join(MANIFEST_FILE);
        match std::fs::read(&path) {
            Ok(bytes) => Self::identified(&bytes),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(FormatError::NoManifest { path: dir.into() }),
            Err(e) => Err(FormatError::io("read", path)(e)),
        }
    }
}

impl<'a> Envelope<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        serde_json::from_slice(bytes).map_err(|e| corrupt(e.to_string()))
    }

    fn prelude(&self) -> Result<Prelude, FormatError> {
        serde_json::from_str(self.manifest.get()).map_err(|e| corrupt(e.to_string()))
    }

    fn identity(&self, format: u64, bytes: &[u8]) -> Result<Checksum, FormatError> {
        if Checksum::of(self.manifest.get().as_bytes()) != self.checksum {
            return Err(corrupt("its checksum does not match".into()));
        }
        Ok(match format {
            1 => Checksum::of(bytes),
            _ => self.checksum,
        })
    }
}

/// In version 1, `built` was part of the inner object, and there was only one type of values.
fn parse_version_1(inner: &str) -> Result<Manifest, serde_json::Error> {
    let mut value: Value = serde_json::from_str(inner)?;
    let mut outer = Value::Object(serde_json::Map::new());
    if let Some(object) = value.as_object_mut() {
        for name in ["created_unix_ms", "built_by"] {
            outer[name] = object.remove(name).unwrap_or_default();
        }
        object.insert("value_type".into(), ValueType::Bytes.name().into());
    }
    Ok(Manifest {
        built: serde_json::from_value(outer)?,
        ..serde_json::from_value(value)?
    })
}

fn corrupt(reason: String) -> FormatError {
    FormatError::CorruptManifest { reason }
}
