//! Types that records hold as text.

/// Stores a type as its text: written with `Display`, and parsed with `FromStr`, whose error this is.
macro_rules! stored_as_text {
    ($name:ty, $error:ty) => {
        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}

pub(crate) use stored_as_text;
