//! Checks the documents against the program: they must not omit any of its features.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

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

#[test]
fn every_option_of_stores_is_documented_with_its_kinds() {
    use fondaco_decisions::StoreOption;
    use fondaco_model::StoreKind;
    let text = document("docs/operations.md");
    for option in StoreOption::ALL {
        let cell = |&kind: &StoreKind| {
            option
                .member(kind)
                .map_or("–".to_owned(), |member| format!("`{member}`"))
        };
        let cells: Vec<String> = StoreKind::ALL.iter().map(cell).collect();
        let fixed = if option.is_fixed { "no" } else { "yes" };
        let row = format!("| `--{}` | {} | {fixed} |\n", option.name, cells.join(" | "));
        assert!(text.contains(&row), "{row}");
    }
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

#[test]
fn every_link_between_documents_has_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec!["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .into_iter()
        .map(|name| root.join(name))
        .collect::<Vec<_>>();
    documents.extend(
        fs::read_dir(root.join("docs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "md")),
    );
    for path in documents {
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

/// For each crate, the workspace crates in its manifest.
fn uses_by_manifest() -> BTreeMap<String, BTreeSet<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let uses = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let manifest: toml::Table = fs::read_to_string(entry.path().join("Cargo.toml"))
            .unwrap()
            .parse()
            .unwrap();
        let ours = manifest
            .get("dependencies")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flatten();
        let ours = ours.filter_map(|(name, _)| name.strip_prefix("fondaco-").map(str::to_owned));
        (entry.file_name().into_string().unwrap(), ours.collect())
    };
    fs::read_dir(crates).unwrap().map(uses).collect()
}

#[test]
fn crates_depend_on_each_other_as_the_architecture_shows() {
    let text = document("ARCHITECTURE.md");
    let arrows = text
        .split("```mermaid\nflowchart RL\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let mut drawn: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in arrows.lines() {
        let (user, used) = line.split_once("-->").unwrap_or((line, ""));
        let used = used
            .split('&')
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty());
        drawn.entry(user.trim().to_owned()).or_default().extend(used);
    }
    for (name, uses) in uses_by_manifest() {
        assert!(
            text.contains(&format!("| `{name}` |")),
            "the table of crates lacks {name}"
        );
        let arrows = drawn.get(&name).cloned().unwrap_or_default();
        // Crates that only tests use are not drawn.
        if name != "testing" {
            assert_eq!(uses, arrows, "{name}");
        }
    }
}

#[test]
fn files_named_in_the_architecture_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = document("ARCHITECTURE.md");
    let named = text.split('`').skip(1).step_by(2);
    let named: Vec<&str> = named
        .filter(|name| name.contains("/src/") && !name.contains('*'))
        .collect();
    assert!(named.len() > 80);
    for name in named {
        assert!(crates.join(name).exists(), "{name}");
    }
}
