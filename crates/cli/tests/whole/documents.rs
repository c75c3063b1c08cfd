//! Checks the documents against the program: they must not omit any of its features.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fondaco_model::{StoreKind, StoreOption};

use super::node::Dev;

fn document(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(name)).unwrap()
}

#[test]
fn every_error_code_is_documented_with_its_status() {
    let text = document("docs/http.md");
    for (code, status, _) in fondaco_api::ERROR_CODES {
        assert!(text.contains(&format!("| `{code}` | {status} |")), "{code} {status}");
    }
}

/// The rows of the manual's table of options.
fn option_rows() -> String {
    let row = |option: &StoreOption| {
        let cell = |&kind: &StoreKind| {
            option
                .member(kind)
                .map_or("–".to_owned(), |member| format!("`{member}`"))
        };
        let cells: Vec<String> = StoreKind::ALL.iter().map(cell).collect();
        let fixed = if option.is_fixed { "no" } else { "yes" };
        let (name, help) = (option.name, option.help());
        format!("| `--{name}` | {} | {fixed} | {help} |\n", cells.join(" | "))
    };
    StoreOption::all().iter().map(row).collect()
}

#[test]
fn every_option_of_stores_is_documented_as_it_is_declared() {
    let rows = option_rows();
    let text = document("docs/operations.md");
    assert!(
        text.contains(&rows),
        "the table of docs/operations.md has to be:\n{rows}"
    );
}

#[test]
fn every_path_of_the_control_port_is_documented() {
    let dev = Dev::start();
    let text = document("docs/http.md");
    let openapi = dev.http_get("/openapi.json");
    for path in openapi["paths"].as_object().unwrap().keys() {
        assert!(text.contains(path.as_str()), "{path}");
    }
}

#[test]
fn every_setting_is_documented_with_its_default() {
    let dev = Dev::start();
    let text = document("docs/operations.md");
    for setting in dev.json(&["config", "show"])["settings"].as_array().unwrap() {
        let name = setting["name"].as_str().unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let line = line.unwrap_or_else(|| panic!("{name}"));
        assert!(line.contains(&format!("| {} |", setting["default"])), "{line}");
    }
}

#[test]
fn every_metric_is_documented() {
    let dev = Dev::start();
    dev.push("s", [("1".to_owned(), "x".to_owned())]);
    let text = document("docs/operations.md");
    let url = format!("http://{}/metrics", dev.http);
    let metrics = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
    let names: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP fondaco_")?.split(' ').next())
        .collect();
    assert!(names.len() > 20);
    for name in names {
        let name = name.trim_end_matches("_total");
        assert!(text.contains(&format!("_{name}")), "{name}");
    }
}

/// Runs `promtool` in the folder of the alert rules.
fn promtool(arguments: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
    let output = Command::new("promtool").args(arguments).current_dir(folder).output();
    let output = output.expect("promtool cannot be run; tests/set-up installs it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn alerts_are_valid_and_fire_when_they_have_to() {
    promtool(&["check", "rules", "fondaco.rules.yml"]);
    promtool(&["test", "rules", "fondaco.rules.test.yml"]);
}

#[test]
fn every_alert_has_a_test_and_an_entry_in_the_runbook() {
    let (rules, tests) = (
        document("deploy/prometheus/fondaco.rules.yml"),
        document("deploy/prometheus/fondaco.rules.test.yml"),
    );
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<&str> = alerts.collect();
    let runbook = document("docs/runbook.md");
    let entries: BTreeSet<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(alerts, entries);
    for alert in alerts {
        assert!(tests.contains(&format!("name: {alert} fires")), "{alert} has no test");
        assert!(
            rules.contains(&format!("docs/runbook.md#{}", alert.to_lowercase())),
            "{alert} has no link"
        );
    }
    let metrics = document("docs/operations.md");
    for word in rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        if let Some(metric) = word.strip_prefix("fondaco_") {
            let metric = metric.strip_suffix("_total").unwrap_or(metric);
            assert!(
                metrics.contains(&format!("_{metric}")),
                "{metric} is no documented metric"
            );
        }
    }
}

#[test]
fn every_command_that_reads_is_documented() {
    let dev = Dev::start();
    let text = document("docs/commands.md");
    let names: Vec<String> = redis::cmd("COMMAND").arg("LIST").query(&mut dev.redis()).unwrap();
    let reads: Vec<Vec<String>> = names
        .iter()
        .filter(|name| !name.contains('|'))
        .map(|name| {
            let info: Vec<redis::Value> = redis::cmd("COMMAND")
                .arg("INFO")
                .arg(name)
                .query(&mut dev.redis())
                .unwrap();
            let redis::Value::Array(fields) = &info[0] else {
                panic!("{name}: {info:?}");
            };
            let flags: Vec<String> = redis::from_redis_value_ref(&fields[2]).unwrap();
            flags.into_iter().chain([name.to_uppercase()]).collect()
        })
        .filter(|flags: &Vec<String>| !flags.iter().any(|flag| flag == "write"))
        .collect();
    assert!(reads.len() > 15);
    for flags in reads {
        let name = flags.last().unwrap();
        assert!(
            text.contains(&format!("`{name}")) || text.contains(&format!(" {name} ")),
            "{name}"
        );
    }
}

/// The documents in the root and below `docs/`.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let mut documents: Vec<PathBuf> = names.into_iter().map(|name| root.join(name)).collect();
    for folder in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        documents.extend(paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    documents
}

#[test]
fn every_link_between_documents_has_a_target() {
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // Files that `make bench` writes may not exist yet.
            if link.contains("://") || link.contains(char::is_whitespace) || link.contains("bench/results/") {
                continue;
            }
            let target = link.split('#').next().unwrap();
            let found = path.parent().unwrap().join(target);
            assert!(found.exists(), "{path:?} links to {link}");
        }
    }
}

/// For each crate of the workspace, the other ones in its manifest.
fn uses_by_manifest() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let folders = crates
        .map(|entry| entry.unwrap().path())
        .chain([root.join("bench"), root.join("python")]);
    let uses = |folder: PathBuf| {
        let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        let ours = manifest
            .get("dependencies")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flatten();
        let ours = ours.filter_map(|(name, _)| name.strip_prefix("fondaco-").map(str::to_owned));
        let name = folder.file_name().unwrap().to_str().unwrap();
        (name.to_owned(), ours.collect())
    };
    folders.map(uses).collect()
}

/// The cells of each row of the tables under this heading of a document.
fn rows(document: &str, heading: &str) -> Vec<Vec<String>> {
    let section = document.split_once(heading).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let lines = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = |line: &str| {
        line.split(" | ")
            .map(|cell| cell.trim_matches('`').to_owned())
            .collect()
    };
    lines.map(cells).collect()
}

#[test]
fn crates_depend_on_each_other_as_the_document_shows() {
    let shown = rows(&document("docs/crates.md"), "\n## Dependencies\n");
    let shown = shown.into_iter().skip(1).map(|row| {
        let uses = row[1].split(", ").filter(|&name| name != "–").map(str::to_owned);
        (row[0].clone(), uses.collect())
    });
    let shown: BTreeMap<String, BTreeSet<String>> = shown.collect();
    assert_eq!(shown, uses_by_manifest());
}

#[test]
fn crates_depend_on_lower_layers_of_the_architecture_only() {
    let shown = rows(&document("ARCHITECTURE.md"), "\n## Crates\n");
    let layer = |name: &str| match name {
        // Tests may use all, and each other.
        "test" => u32::MAX,
        number => number.parse().unwrap(),
    };
    let layers = shown.iter().skip(1).map(|row| (row[1].as_str(), layer(&row[0])));
    let layers: BTreeMap<&str, u32> = layers.collect();
    let uses_by_manifest = uses_by_manifest();
    assert!(layers.keys().eq(uses_by_manifest.keys()), "{layers:?}");
    for (user, uses) in &uses_by_manifest {
        let layer = layers[user.as_str()];
        for used in uses {
            let is_lower = layer == u32::MAX || layers[used.as_str()] < layer;
            assert!(is_lower, "{user} uses {used}");
        }
    }
}

#[test]
fn source_files_named_in_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let exists = |name: &str| root.join(name).exists() || root.join("crates").join(name).exists();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let named = text.split(|c: char| !(c.is_ascii_alphanumeric() || "/_.-*".contains(c)));
        let named = named.map(|name| name.trim_end_matches('.'));
        let named: Vec<&str> = named
            .filter(|name| name.contains("/src/") && !name.contains('*'))
            .collect();
        if path.ends_with("ARCHITECTURE.md") {
            assert!(named.len() > 50, "{named:?}");
        }
        for name in named {
            assert!(exists(name), "{path:?} names {name}");
        }
    }
}
