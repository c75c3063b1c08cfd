//! The operating system's side of a process.
//!
//! - [`process`]: facts about the process and its machine, and its limits;
//! - [`MemoryPlan`]: how a process divides its memory;
//! - [`priority`]: how soon its threads run;
//! - [`command`]: programs that it runs to their end.

pub mod command;
mod memory_plan;
pub mod priority;
pub mod process;

pub use memory_plan::MemoryPlan;
