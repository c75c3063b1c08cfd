//! `fondaco backup` and `restore`: all records of a versioned store, to a directory or a URL and back, while it
//! serves.
//!
//! - `manifest`: what a backup consists of, and when it is one;
//! - `records`: the files in which records are;
//! - `cluster`: which nodes hold what, how they are asked, and what of their failures is waited for;
//! - `sources`: which of them have to be read;
//! - `pages`, `replicas`: what a node, and what several of them together, hold;
//! - `pace`: how fast it goes;
//! - `take` and `give`: the two commands.
//!
//! What a backup promises: every write that was acknowledged before it began is in it. Of each partition so many
//! replicas are read that one of them at least has any such write, and what they hold is joined. Of what is
//! written meanwhile, some is in it. Every record keeps its clock, so that to restore is to join: what is newer
//! stays, and doing it again, or half of it, does no harm.

mod cluster;
mod give;
mod manifest;
mod pace;
mod pages;
mod records;
mod replicas;
mod sources;
mod take;

pub use give::{RestoreOptions, restore};
pub use take::{BackupOptions, back_up};
