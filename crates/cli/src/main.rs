//! The `fondaco` program.
fn main() {}
