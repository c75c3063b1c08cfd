//! `fondaco completions`: scripts for command completion in shells.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;

/// `fondaco completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco completions bash > ~/.local/share/bash-completion/completions/fondaco")]
pub struct CompletionsOptions {
    /// The shell
    pub shell: Shell,
}

/// Runs `fondaco completions`.
pub fn completions(options: &CompletionsOptions) -> anyhow::Result<()> {
    // Generate in memory first: the generator panics on a write error.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "fondaco", &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(())
}
