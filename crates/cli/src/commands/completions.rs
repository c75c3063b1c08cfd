//! `fondaco completions`: what shells complete commands from.

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

/// Prints completions.
pub fn completions(options: &CompletionsOptions) -> anyhow::Result<()> {
    // By way of memory: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "fondaco", &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(())
}
