//! Keeps one row of each key, of rows in the order of their positions: all rows of a key come one after the other.
//!
//! Rows with the same position may have different keys, in any order. Of each of these keys only the row that wins so far
//! is kept, so memory does not grow with the number of duplicates.

use super::error::TaskError;
use crate::error::BuildError;
use crate::options::OnDuplicate;
use crate::report::excerpt;

/// A row of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    /// `None` to delete the key.
    pub(super) value: Option<&'a [u8]>,
    /// Bytes that sort as rows of one key do.
    pub(super) order: &'a [u8],
}

/// The rows of one position, one for each key.
pub(super) struct Newest {
    on_duplicate: OnDuplicate,
    order_by: String,
    rows: Vec<Kept>,
    /// Rows whose memory is reused.
    spare: Vec<Kept>,
    /// How many rows were dropped.
    pub(super) duplicates: u64,
}

#[derive(Default)]
struct Kept {
    hash: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    is_deletion: bool,
    order: Vec<u8>,
    /// Whether a row with the same order has another value.
    is_ambiguous: bool,
}

impl Newest {
    pub(super) fn new(on_duplicate: OnDuplicate, order_by: Option<&str>) -> Self {
        Self {
            on_duplicate,
            order_by: order_by.unwrap_or_default().to_owned(),
            rows: Vec::new(),
            spare: Vec::new(),
            duplicates: 0,
        }
    }

    /// Adds a row with the position of the others.
    pub(super) fn add(&mut self, row: Row<'_>) -> Result<(), BuildError> {
        let known = self
            .rows
            .iter_mut()
            .find(|kept| kept.hash == row.hash && kept.key == row.key);
        let Some(kept) = known else {
            let mut kept = self.spare.pop().unwrap_or_default();
            kept.key.clear();
            kept.key.extend_from_slice(row.key);
            kept.set(row);
            self.rows.push(kept);
            return Ok(());
        };
        self.duplicates += 1;
        let order = match self.on_duplicate {
            OnDuplicate::Fail => return Err(TaskError::Duplicate { key: excerpt(row.key) }.into()),
            OnDuplicate::First => row.order.cmp(&kept.order).reverse(),
            OnDuplicate::Last => row.order.cmp(&kept.order),
        };
        if order.is_gt() {
            kept.set(row);
        } else if order.is_eq() {
            kept.is_ambiguous |= kept.value() != row.value;
        }
        Ok(())
    }

    /// Hands over the row of each key, in their order, and forgets them.
    pub(super) fn take(&mut self, mut each: impl FnMut(Row<'_>) -> Result<(), BuildError>) -> Result<(), BuildError> {
        self.rows
            .sort_unstable_by(|a, b| (a.hash, &a.key).cmp(&(b.hash, &b.key)));
        for kept in &self.rows {
            if kept.is_ambiguous {
                return Err(TaskError::EqualOrder {
                    key: excerpt(&kept.key),
                    order_by: self.order_by.clone(),
                }
                .into());
            }
            each(Row {
                hash: kept.hash,
                key: &kept.key,
                value: kept.value(),
                order: &kept.order,
            })?;
        }
        self.spare.append(&mut self.rows);
        self.spare.truncate(1);
        Ok(())
    }
}

impl Kept {
    /// Takes over all of a row but the key.
    fn set(&mut self, row: Row<'_>) {
        self.hash = row.hash;
        self.value.clear();
        self.value.extend_from_slice(row.value.unwrap_or_default());
        self.is_deletion = row.value.is_none();
        self.order.clear();
        self.order.extend_from_slice(row.order);
        self.is_ambiguous = false;
    }

    fn value(&self) -> Option<&[u8]> {
        (!self.is_deletion).then_some(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rows<'a> = &'a [(&'a str, Option<&'a str>, u8)];

    fn kept(on_duplicate: OnDuplicate, rows: Rows<'_>) -> Result<Vec<(String, Option<String>)>, String> {
        let mut newest = Newest::new(on_duplicate, Some("time"));
        let mut kept = Vec::new();
        let mut run = || {
            for (key, value, order) in rows {
                newest.add(Row {
                    hash: 7,
                    key: key.as_bytes(),
                    value: value.map(str::as_bytes),
                    order: &[*order],
                })?;
            }
            newest.take(|row| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                kept.push((text(row.key), row.value.map(text)));
                Ok(())
            })
        };
        run().map(|()| kept).map_err(|error| error.to_string())
    }

    #[test]
    fn the_order_decides_which_row_is_kept_whatever_comes_first() {
        let mut rows = [
            ("b", Some("1"), 1),
            ("a", Some("2"), 2),
            ("b", None, 3),
            ("b", Some("2"), 2),
        ];
        for _ in 0..4 {
            rows.rotate_left(1);
            let of = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
            assert_eq!(
                kept(OnDuplicate::First, &rows),
                Ok(vec![of("a", Some("2")), of("b", Some("1"))])
            );
            assert_eq!(
                kept(OnDuplicate::Last, &rows),
                Ok(vec![of("a", Some("2")), of("b", None)])
            );
            let error = kept(OnDuplicate::Fail, &rows).unwrap_err();
            assert!(error.contains("\"b\" occurs twice"), "{error}");
        }
    }

    #[test]
    fn an_equal_order_is_an_error_only_if_it_decides() {
        let mut rows = [("a", Some("1"), 1), ("a", Some("2"), 2), ("a", Some("3"), 2)];
        for _ in 0..3 {
            rows.rotate_left(1);
            let error = kept(OnDuplicate::Last, &rows).unwrap_err();
            assert!(error.contains("\"a\"") && error.contains("\"time\""), "{error}");
            assert!(kept(OnDuplicate::First, &rows).is_ok());
        }
        let equal = [("a", Some("1"), 1), ("a", Some("1"), 1)];
        assert!(kept(OnDuplicate::Last, &equal).is_ok());
    }
}
