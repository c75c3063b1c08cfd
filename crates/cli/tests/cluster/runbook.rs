//! The runbook: an operator who is woken at night pastes its commands.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::security::{TOKEN, secured, until_whole};

/// The answers of commands that have nothing to do: there is no such loss, no partition to move, or a plan runs already.
const NOTHING_TO_DO: [&str; 3] = ["loss_not_found", "nothing_to_move", "plan_in_progress"];

#[test]
fn each_command_of_the_runbook_is_understood_as_written_with_tls_and_users() {
    let (mut cluster, certificate) = secured();
    cluster.launch_all();
    let ca = certificate.to_str().unwrap();
    let access = ["--ca", ca, "--token", TOKEN];
    until_whole(&cluster, &access);
    cluster.any().done(&[&["store", "create", "s"][..], &access].concat());
    let source = cluster.build(1);
    let deploy = ["deploy", "s", source.to_str().unwrap(), "--quiet"];
    cluster.any().done(&[&deploy[..], &access].concat());

    let runbook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbook.md");
    let runbook = fs::read_to_string(runbook).unwrap();
    let spans = runbook.split('`').skip(1).step_by(2);
    let commands: Vec<&str> = spans.filter(|span| span.starts_with("fondaco ")).collect();
    assert!(commands.len() > 20, "{commands:?}");
    assert!(!runbook.contains("curl"), "it needs more arguments with TLS");
    let node = cluster.get("node-1");
    let words = |word: &str| match word {
        "STORE" => "s".to_owned(),
        "N" => "3".to_owned(),
        "BYTES" => "1GB".to_owned(),
        "LOSS" => "log-00000000".to_owned(),
        "HOST:6580" => node.http.clone(),
        word => word.to_owned(),
    };
    for command in commands {
        let arguments: Vec<String> = command.split(' ').skip(1).map(words).collect();
        let mut run = node.command(&["--json"]);
        run.args(arguments).env("FONDACO_CA", ca).env("FONDACO_TOKEN", TOKEN);
        let output = run.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let error = told.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
            let code = error.unwrap_or_default()["error"]["code"].clone();
            assert!(NOTHING_TO_DO.iter().any(|known| code == *known), "{command}: {told}");
        }
    }
}
