//! `fondaco completions`: scripts for command completion in shells.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::Results;

/// `fondaco completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco completions bash > ~/.local/share/bash-completion/completions/fondaco")]
pub struct CompletionsOptions {
    /// The shell
    pub shell: Shell,
}

/// Prints completions of the program's command line.
pub fn completions(options: &CompletionsOptions, mut program: Command) -> anyhow::Result<()> {
    // By way of memory: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut program, "fondaco", &mut script);
    let mut out = Results::begin();
    out.write_all(&script)?;
    out.flush()?;
    Ok(())
}
