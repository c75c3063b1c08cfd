//! Writes JSON objects.

use serde::Serialize;
use serde_json::Serializer;

/// `"name":` for every column, as bytes to write.
#[derive(Debug, Clone)]
pub(super) struct FieldNames {
    names: Vec<String>,
    prefixes: Vec<Vec<u8>>,
}

impl FieldNames {
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let prefix = |name: &str| {
            let mut prefix = Vec::new();
            write_string(name, &mut prefix);
            prefix.push(b':');
            prefix
        };
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        Self {
            prefixes: names.iter().map(|name| prefix(name)).collect(),
            names,
        }
    }

    pub(super) fn name(&self, number: usize) -> &str {
        &self.names[number]
    }

    /// Writes an object: `write` appends the value of the field with the given number, or fails.
    #[inline]
    pub(super) fn write_object<E>(
        &self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        out.push(b'{');
        for (number, prefix) in self.prefixes.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(prefix);
            write(number, out)?;
        }
        out.push(b'}');
        Ok(())
    }
}

/// Appends a text as a JSON string.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    // Writing a string to memory cannot fail.
    let _ = text.serialize(&mut Serializer::new(out));
}
