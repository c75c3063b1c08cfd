//! A cluster that evens out its load by itself: which partitions move, and when machines are requested, enlarged and returned.

mod advice;
mod days;
mod fixture;
mod machine_days;
mod machines;
mod moves;
mod reports;
