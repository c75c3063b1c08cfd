//! Settings whose value is one of a few words: in records, in requests and on the command line alike.

/// Why a word is not a value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {word:?}: use one of {known}")]
pub struct WordError {
    pub(crate) what: &'static str,
    pub(crate) word: String,
    pub(crate) known: String,
}

/// Declares an enumeration with named values: its type, its description, and the name of each value.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident $what:literal: $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The names of all values.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::WordError;

            fn from_str(word: &str) -> Result<Self, $crate::WordError> {
                let found = Self::ALL.iter().find(|known| known.as_str() == word);
                found.copied().ok_or_else(|| $crate::WordError {
                    what: $what,
                    word: word.chars().take(40).collect(),
                    known: Self::ALL.iter().map(|known| known.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    };
}

pub(crate) use words;
