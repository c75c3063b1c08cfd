//! `fondaco backup` and `restore`: all records of a versioned store, to a directory or a URL and back, while it
//! serves.
//!
//! - `files`: what a backup consists of, and reading and writing it;
//! - `owners`: which nodes hold what, and how they are asked;
//! - `replicas`: what several replicas of a partition hold together;
//! - `take` and `give`: the two commands.
//!
//! What a backup promises: every write that was acknowledged before it began is in it. Of each partition so many
//! replicas are read that one of them at least has any such write, N - W + 1, and what they hold is joined. Of
//! what is written meanwhile, some is in it. Every record keeps its clock, so that to restore is to join: what is
//! newer stays, and doing it again, or half of it, does no harm.

mod files;
mod give;
mod owners;
mod pace;
mod replicas;
mod take;

pub use give::{RestoreOptions, restore};
pub use take::{BackupOptions, back_up};
