//! The paths of entries, checked once: no path leads out of the tree, on disk or in a service.

use std::fmt;
use std::str::FromStr;

use crate::error::CoordinationError;

/// The path of an entry: names joined by `/`, each of 1 to 100 characters from `a-z A-Z 0-9 _ - .`,
/// not beginning with a dot; 500 characters at most.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryPath(String);

impl EntryPath {
    const NAME_BYTES_MAX: usize = 100;
    const BYTES_MAX: usize = 500;

    /// The path of these names.
    ///
    /// # Errors
    /// [`CoordinationError::InvalidPath`] if a name is invalid.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, CoordinationError> {
        names.into_iter().collect::<Vec<_>>().join("/").parse()
    }

    /// The path of a name below this one.
    ///
    /// # Errors
    /// [`CoordinationError::InvalidPath`] if the name is invalid.
    pub fn join(&self, name: &str) -> Result<Self, CoordinationError> {
        Self::new([self.as_str(), name])
    }

    /// The path as text, without a leading `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last of its names.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The parent path; `None` for a path of one name.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(parent.to_owned()))
    }

    /// Whether it is this path, or below it.
    pub fn is_within(&self, above: &EntryPath) -> bool {
        let below = self.0.strip_prefix(&above.0);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub(crate) fn is_name(name: &str) -> bool {
        (1..=Self::NAME_BYTES_MAX).contains(&name.len())
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    }
}

impl FromStr for EntryPath {
    type Err = CoordinationError;

    fn from_str(path: &str) -> Result<Self, CoordinationError> {
        match path.len() <= Self::BYTES_MAX && path.split('/').all(Self::is_name) {
            true => Ok(Self(path.to_owned())),
            false => Err(CoordinationError::InvalidPath {
                path: path.chars().take(Self::BYTES_MAX).collect(),
            }),
        }
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_lead_out_of_the_tree() {
        for path in ["../x", "a/../b", "", "a/", "/a", "a//b", ".entry", "a b", "a\0"] {
            assert!(path.parse::<EntryPath>().is_err(), "{path:?}");
        }
        assert!(EntryPath::new([]).is_err());
        assert!(EntryPath::new(["a"; 300]).is_err());
        assert_eq!(EntryPath::new(["stores", "pymk"]).unwrap().to_string(), "stores/pymk");
    }

    #[test]
    fn only_whole_names_count_as_within() {
        let path = |text: &str| text.parse::<EntryPath>().unwrap();
        assert!(path("stores/a").is_within(&path("stores")));
        assert!(path("stores").is_within(&path("stores")));
        assert!(!path("stores-old/a").is_within(&path("stores")));
        assert!(!path("stores").is_within(&path("stores/a")));
        assert_eq!(path("stores/a").parent(), Some(path("stores")));
        assert_eq!((path("stores").parent(), path("a/b").name()), (None, "b"));
    }
}
