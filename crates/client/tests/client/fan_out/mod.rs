//! Whole requests over clusters of any size: which nodes strategies ask, and how many groups controllers choose.

mod cluster;
mod controllers;
mod strategies;
