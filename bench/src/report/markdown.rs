//! The results as a Markdown table.

use std::fmt::Write as _;

use super::{Chart, Figure, Line, Report, Row};

/// The whole document.
pub fn table(report: &Report) -> String {
    let machine = &report.machine;
    let mut out = String::from("# Benchmark results\n\n");
    out.push_str("Written by `make bench`; for the method and how to read this, see [docs/benchmarks.md](../../docs/benchmarks.md).\n\n");
    let gibibytes = machine.memory_bytes as f64 / (1u64 << 30) as f64;
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "Machine of the last run: {}, {} cores, {gibibytes:.0} GiB memory, Linux {}, disk {}. {}.\n",
        machine.cpu,
        machine.cores,
        machine.kernel,
        machine.disk,
        machine.versions.join("; ")
    );
    if report.rows.iter().any(|row| row.quick) {
        out.push_str("**Some rows are of a quick run: small data, one round. Their figures have no meaning.**\n\n");
    }
    out.push_str("| work | fondaco | peers | ratio | target | reached | memory |\n|---|---|---|---|---|---|---|\n");
    for row in &report.rows {
        write_row(&mut out, row);
    }
    out.push_str("\nEach figure is the median of its rounds, with the minimum and maximum in brackets; each ratio is the median of the ratios of the rounds.\n");
    for row in &report.rows {
        write_notes(&mut out, row);
    }
    out
}

fn write_row(out: &mut String, row: &Row) {
    if let Some(failure) = &row.failure {
        let failure = failure.replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(out, "| **{}** | not measured: {failure} | | | | **no** | |", row.work);
        return;
    }
    let _ = writeln!(out, "| **{}** | | | | | | |", row.work);
    for line in &row.lines {
        let peers: Vec<String> = line
            .peers
            .iter()
            .map(|(name, figure)| format!("{name}: {}", show(figure)))
            .collect();
        let ratio = line.ratio.as_ref().map(|(ratio, of)| format!("{ratio:.2}× {of}"));
        let targets: Vec<&str> = line.targets.iter().map(|target| target.text.as_str()).collect();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            line.work,
            show(&line.ours),
            peers.join("<br>"),
            ratio.unwrap_or_default(),
            targets.join(", "),
            verdict(line),
            line.memory
        );
    }
}

fn verdict(line: &Line) -> &'static str {
    match (line.targets.is_empty(), line.reached()) {
        (true, _) => "",
        (false, true) => "yes",
        (false, false) => "**no**",
    }
}

fn write_notes(out: &mut String, row: &Row) {
    let _ = writeln!(out, "\n## {}\n", row.work);
    let (name, seconds, commit) = (&row.name, row.took_s, &row.commit);
    let processor = row.processor.as_ref().map(|processor| format!(", on {processor}"));
    let processor = processor.unwrap_or_default();
    let _ = writeln!(
        out,
        "`bench/run --only {name}`, {seconds:.0} s, commit {commit}{processor}.\n"
    );
    for note in &row.notes {
        let _ = writeln!(out, "- {note}");
    }
    for chart in &row.charts {
        let (Chart::Bars { file, title, .. } | Chart::Latencies { file, title, .. } | Chart::Lines { file, title, .. }) =
            chart;
        let _ = writeln!(out, "\n![{title}]({file}.svg)");
    }
}

/// The median with its unit, and the range of the rounds.
fn show(figure: &Figure) -> String {
    let fold = |pick: fn(f64, f64) -> f64| figure.rounds.iter().copied().reduce(pick).unwrap_or(f64::NAN);
    let median = number(figure.median());
    let unit = &figure.unit;
    if figure.rounds.len() < 2 {
        return format!("{median} {unit}");
    }
    format!(
        "{median} {unit} ({}–{})",
        number(fold(f64::min)),
        number(fold(f64::max))
    )
}

/// A number with three significant digits; integers in the thousands keep all digits.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 10_000.0 {
        let digits = format!("{value:.0}");
        let mut grouped = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at) % 3 == 0 && digit.is_ascii_digit() {
                grouped.push(' ');
            }
            grouped.push(digit);
        }
        grouped
    } else if magnitude >= 100.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let shown = [1_234_567.0, 10_000.0, 9_999.4, 123.4, 12.34, 1.234, 0.5].map(number);
        assert_eq!(shown, ["1 234 567", "10 000", "9999", "123", "12.3", "1.23", "0.50"]);
    }
}
