//! The embedded reader, through its public interface, against real versions and real nodes.

mod open;
mod versions;
