//! Builds of versions: from every input, into every output, and what is refused.

mod columns;
mod csv;
mod declared;
mod generate;
mod graph;
mod increment;
mod inputs;
mod killed;
mod producers;
mod refusals;
mod selection;
mod sort;
mod tasks;
mod times;
mod typed;
mod types;
