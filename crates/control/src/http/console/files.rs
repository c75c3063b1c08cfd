//! The files of the pages.

/// Their names, and what is in them.
pub(super) const FILES: [(&str, &str); 1] = [("index.html", include_str!("index.html"))];
