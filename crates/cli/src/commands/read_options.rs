//! The options of `fondaco build` and `fondaco push` that say how rows are read.

use clap::Args;
use fondaco_builder::{NonFinite, Numbers};

/// How rows are read.
#[derive(Debug, Args)]
pub struct ReadOptions {
    /// Columns to leave out of a value that is made of all columns
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    exclude: Vec<String>,

    /// CSV files have no header row: --columns names their columns
    #[arg(long, requires = "columns")]
    no_header: bool,

    /// The names of all columns of CSV files without a header row
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "no_header")]
    columns: Option<Vec<String>>,

    /// How to write decimals and 64-bit integers in JSON: as numbers, or as text for readers that would round them
    #[arg(long, default_value = "number", value_name = "number|text")]
    numbers: Numbers,

    /// What to do about NaN and infinity in columns of floats, which JSON does not have: fail, or write null or text
    #[arg(long, default_value = "fail", value_name = "fail|null|text")]
    non_finite: NonFinite,

    /// Take files that lack columns, or have columns of other types than the others
    #[arg(long)]
    allow_drift: bool,
}

impl ReadOptions {
    /// The options of the build.
    pub fn options(&self) -> fondaco_builder::ReadOptions {
        fondaco_builder::ReadOptions {
            exclude: self.exclude.clone(),
            csv_columns: self.columns.clone(),
            numbers: self.numbers,
            non_finite: self.non_finite,
            allow_drift: self.allow_drift,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::build::BuildCommandOptions;
    use crate::commands::push::PushOptions;

    #[derive(Debug, Parser)]
    enum Line {
        Build(Box<BuildCommandOptions>),
        Push(Box<PushOptions>),
    }

    fn parse(line: &str) -> Result<fondaco_builder::ReadOptions, String> {
        let parsed = Line::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        Ok(match parsed {
            Line::Build(options) => options.input.reading.options(),
            Line::Push(options) => options.input.reading.options(),
        })
    }

    #[test]
    fn build_and_push_take_the_same_options() {
        let options = "--exclude a,b --no-header --columns k,v --numbers text --non-finite null --allow-drift";
        for command in ["build", "push"] {
            let line = format!("fondaco {command} pymk in.csv --key k --output /out");
            assert_eq!(parse(&line), Ok(fondaco_builder::ReadOptions::default()));
            let read = parse(&format!("{line} {options}")).unwrap();
            let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
            assert_eq!(
                read,
                fondaco_builder::ReadOptions {
                    exclude: names(["a", "b"]),
                    csv_columns: Some(names(["k", "v"])),
                    numbers: Numbers::Text,
                    non_finite: NonFinite::Null,
                    allow_drift: true,
                }
            );
            for (option, missing) in [("--no-header", "--columns"), ("--columns k,v", "--no-header")] {
                let error = parse(&format!("{line} {option}")).unwrap_err();
                assert!(error.contains(missing), "{error}");
            }
        }
    }
}
