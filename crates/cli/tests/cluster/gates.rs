//! Gates of pushes: a version that lost keys is stopped by its gate and by nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use arrow_array::BinaryArray;
use arrow_array::cast::AsArray;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape};
use super::node::{fondaco, of_csv, until, write_csv};
use super::values::{KEYS, STORE, elsewhere, read_all, value};

/// Builds a version with only some keys, and returns its directory.
fn build_some(dir: &Path, version: u64, keys: u64, partitions: u32) -> PathBuf {
    let csv = dir.join(format!("{version}.csv"));
    write_csv(&csv, (0..keys).map(|key| (key.to_string(), value(version, key))));
    let output = dir.join(format!("built-{version}"));
    let partitions = partitions.to_string();
    let mut program = fondaco();
    let built = program.args(of_csv("build", STORE, &csv, &["--partitions", &partitions, "--output"]));
    let built = built.arg(&output).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    output
}

fn push_of(cluster: &Cluster) -> Value {
    cluster.any().http_get("/v1/stores/s/push")
}

/// Deploys in vain; returns what the program says on standard error.
fn deploy_in_vain(cluster: &Cluster, source: &Path, options: &[&str]) -> String {
    let mut deploy = cluster
        .any()
        .command(&["deploy", STORE, source.to_str().unwrap(), "--quiet"]);
    let failed = deploy.args(options).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    String::from_utf8(failed.stderr).unwrap()
}

#[test]
fn a_push_that_loses_keys_is_stopped_by_its_gate_and_by_nothing_else() {
    let cluster = Cluster::serving(Shape::default());
    let dir = tempfile::tempdir().unwrap();
    let lossy = build_some(dir.path(), 2, KEYS * 7 / 10, cluster.shape.partitions);
    let reason = deploy_in_vain(&cluster, &lossy, &["--gate", "gone <= 5%", "--gate", "changed <= 100%"]);
    assert!(
        reason.contains("gate gone <= 5%") && reason.contains("600 of 2000"),
        "{reason}"
    );
    assert!(
        reason.contains("such as") && reason.contains("fondaco swap s --to 2"),
        "{reason}"
    );
    let push = push_of(&cluster);
    assert_eq!(push["state"], "held", "{push}");
    let compared = &push["compared"];
    let counts = ["keys_before", "keys_after", "gone", "new", "changed"].map(|count| compared[count].as_u64());
    assert_eq!(counts, [2000, 1400, 600, 0, 1400].map(Some), "{push}");
    let why = cluster.any().done(&["why", "--store", STORE]);
    let listed = cluster.any().done(&["versions", STORE]);
    for text in [&why, &listed] {
        assert!(text.contains("held") && text.contains("gone <= 5%"), "{text}");
    }
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));

    // The difference can be asked for as long as it is held, and by any process.
    let diff = cluster.get("router-1").json(&["diff", STORE, "1", "2"]);
    assert_eq!(
        (&diff["gone"], &diff["equal"], &diff["missing"]),
        (&json!(600), &json!(0), &json!([]))
    );
    let gone: Vec<&str> = diff["gone_keys"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(
        !gone.is_empty() && gone.iter().all(|key| key.parse::<u64>().unwrap() >= 1400),
        "{gone:?}"
    );

    // An operator swaps it in all the same.
    let swapped = cluster.any().done(&["swap", STORE, "--to", "2"]);
    assert!(swapped.contains("version 2"), "{swapped}");
    until("the record of changes has the override", || {
        let audit = cluster.any().http_get("/v1/audit");
        let note = format!("version 2 of store {STORE} went live though it was held: gate gone <= 5%");
        audit.to_string().contains(&note)
    });
    assert_eq!(push_of(&cluster)["state"], "swapped");

    // The same loss without a gate: nothing else stops it.
    cluster.any().done(&["rollback", STORE]);
    let deployed = cluster
        .any()
        .json(&["deploy", STORE, lossy.to_str().unwrap(), "--quiet"]);
    assert_eq!(
        (&deployed["state"], &deployed["version"]),
        (&json!("swapped"), &json!(3))
    );
}

#[test]
fn a_store_has_gates_and_a_good_push_follows_a_held_one() {
    let cluster = Cluster::start(Shape::default());
    cluster.create(&["--gate", "records -10%..+10%; gone <= 1%"]);
    let dir = tempfile::tempdir().unwrap();
    let partitions = cluster.shape.partitions;
    // The first version passes.
    cluster.deploy(&cluster.build(1));
    let lossy = build_some(dir.path(), 2, KEYS / 2, partitions);
    let reason = deploy_in_vain(&cluster, &lossy, &[]);
    assert!(
        reason.contains("records -10%..+10%") && reason.contains("-50.0%"),
        "{reason}"
    );
    assert_eq!(cluster.deploy(&cluster.build(3))["state"], "swapped");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(3));
    until("the version that was held is deleted", || {
        cluster.versions_on_disk("node-1") == ["version-1", "version-3"]
    });
    let refused = cluster.any().refused(1, &["diff", STORE, "1", "2"]);
    assert!(refused.contains("version 2") && refused.contains('3'), "{refused}");
    let refused = cluster
        .any()
        .refused(2, &["store", "alter", STORE, "--gate", "gone < 5%"]);
    assert!(refused.contains("gone < 5%") && refused.contains("<= 5%"), "{refused}");
    cluster.any().done(&["store", "alter", STORE, "--gate", "none"]);
    let lossy = build_some(dir.path(), 4, KEYS / 2, partitions);
    assert_eq!(cluster.deploy(&lossy)["state"], "swapped");
}

#[test]
fn the_next_leader_evaluates_the_gates_of_a_killed_one() {
    let sources = elsewhere();
    let mut cluster = Cluster::start(Shape {
        controllers: 2,
        ..Shape::default()
    });
    cluster.create(&["--gate", "gone <= 5%"]);
    cluster.deploy(&cluster.build(1));
    let lossy = build_some(sources.path(), 2, KEYS * 7 / 10, cluster.shape.partitions);
    cluster.begin(&lossy);
    until("the version is fetched", || push_of(&cluster)["state"] != "fetching");
    let leader = cluster.any().http_get("/v1/cluster")["leader"]
        .as_str()
        .unwrap()
        .to_owned();
    let leads = cluster.get("controller-1").http == leader;
    cluster.kill(if leads { "controller-1" } else { "controller-2" });
    let push = cluster.ended();
    assert_eq!(push["state"], "held", "{push}");
    assert!(push["error"].as_str().unwrap().contains("600 of 2000"), "{push}");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
}

/// The changes of keys in a file, with both values.
fn read_differences(file: &Path) -> BTreeMap<String, (String, String, String)> {
    let file = std::fs::File::open(file).unwrap();
    let batches = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let mut found = BTreeMap::new();
    for batch in batches {
        let batch = batch.unwrap();
        let [keys, before, after] =
            ["key", "before", "after"].map(|name| batch.column_by_name(name).unwrap().as_binary::<i32>());
        let changes = batch.column_by_name("change").unwrap().as_string::<i32>();
        for row in 0..batch.num_rows() {
            let text = |column: &BinaryArray| String::from_utf8(column.value(row).to_vec()).unwrap();
            found.insert(text(keys), (changes.value(row).to_owned(), text(before), text(after)));
        }
    }
    found
}

#[test]
fn a_difference_counts_changed_fields_and_needs_one_owner_of_each_partition() {
    let mut cluster = Cluster::start(Shape::default());
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("rows.csv");
    for rows in ["1,a,10\n2,b,20\n3,c,30\n5,e,50\n", "1,a,11\n2,x,21\n4,d,40\n5,e,50\n"] {
        std::fs::write(&csv, format!("id,name,age\n{rows}")).unwrap();
        cluster
            .any()
            .done(&["push", "f", csv.to_str().unwrap(), "--key", "id", "--create", "--quiet"]);
    }
    let check = |cluster: &Cluster| {
        let diff = cluster.any().json(&["diff", "f", "1", "2"]);
        assert_eq!(diff["missing"], json!([]), "{diff}");
        assert_eq!(diff["fields"], json!({"age": 2, "name": 1}), "{diff}");
        let keys = [&diff["gone_keys"], &diff["new_keys"]];
        assert_eq!(keys, [&json!(["3"]), &json!(["4"])], "{diff}");
        assert_eq!([&diff["changed"], &diff["equal"]], [&json!(2), &json!(1)], "{diff}");
    };
    check(&cluster);
    let file = dir.path().join("differences.parquet");
    let written = ["diff", "f", "1", "2", "--to", file.to_str().unwrap()];
    assert_eq!(cluster.any().json(&written)["keys"], json!(4));
    let found = read_differences(&file);
    let changes: Vec<_> = found
        .iter()
        .map(|(key, (change, ..))| (key.as_str(), change.as_str()))
        .collect();
    assert_eq!(
        changes,
        [("1", "changed"), ("2", "changed"), ("3", "gone"), ("4", "new")]
    );
    assert!(
        found["3"].1.contains("30") && found["3"].2.is_empty() && found["4"].1.is_empty(),
        "{found:?}"
    );
    assert!(found["1"].1.contains("10") && found["1"].2.contains("11"), "{found:?}");
    let refused = cluster
        .any()
        .refused(1, &["diff", "f", "1", "9", "--to", file.to_str().unwrap()]);
    assert!(refused.contains("no live node has version 9"), "{refused}");
    let number = cluster.number("node-3");
    cluster.kill("node-3");
    cluster.until_live(number, false);
    check(&cluster);
    let shown = cluster.any().done(&["diff", "f", "1", "2"]);
    assert!(shown.contains("changed") && shown.contains("age"), "{shown}");
}

/// A command that does not end before the program that runs it.
const HANGING: &str = "while kill -0 $PPID; do sleep 0.1; done";

#[test]
fn samples_and_a_command_of_the_pushing_program_decide() {
    let cluster = Cluster::serving(Shape::default());
    let second = cluster.build(2);
    let samples = cluster.dir.path().join("samples.jsonl");
    let write_samples = |version| {
        let right = json!({"key": "7", "value": value(version, 7)});
        let absent = json!({"key": "no such/key", "value": null});
        std::fs::write(&samples, format!("{right}\n{absent}\n")).unwrap();
    };
    write_samples(1);
    let samples_path = samples.to_str().unwrap();
    let reason = deploy_in_vain(&cluster, &second, &["--gate-samples", samples_path]);
    assert!(
        reason.contains("1 of 2 samples fail: \"7\" has \"version-2 key-7"),
        "{reason}"
    );
    let listed = cluster.any().done(&["versions", STORE]);
    assert!(listed.contains("held") && listed.contains("samples fail"), "{listed}");
    let begun = Instant::now();
    let reason = deploy_in_vain(&cluster, &second, &["--gate-command", HANGING, "--gate-time", "2s"]);
    assert!(reason.contains("fails: no answer within"), "{reason}");
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "a command that hangs is killed"
    );
    let reason = deploy_in_vain(&cluster, &second, &["--gate-command", "echo no row >&2; exit 3"]);
    assert!(reason.contains("exit status: 3: no row"), "{reason}");
    // Gates stop a version before its checks.
    let both = ["--gate", "records +10%..", "--gate-command", "true"];
    let reason = deploy_in_vain(&cluster, &second, &both);
    assert!(reason.contains("gate records +10%.."), "{reason}");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
    let source = second.to_str().unwrap();
    let together = ["deploy", STORE, source, "--gate-command", "true", "--with", "t=/data/t"];
    let refused = cluster.any().refused(2, &together);
    assert!(refused.contains("--with"), "{refused}");

    write_samples(2);
    let environment = "test $FONDACO_STORE = s && test $FONDACO_VERSION = 6 && test -n \"$FONDACO_HTTP\"";
    let options = ["--gate-samples", samples_path, "--gate-command", environment];
    let deploy = [&["deploy", STORE, source, "--quiet"], &options[..]].concat();
    // Any process looks the samples up.
    let deployed = cluster.get("router-1").json(&deploy);
    assert_eq!(
        (&deployed["state"], &deployed["error"]),
        (&json!("swapped"), &Value::Null),
        "{deployed}"
    );
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(2));
}

#[test]
fn a_version_whose_pushing_program_is_killed_before_it_confirms_does_not_go_live() {
    let cluster = Cluster::serving(Shape::default());
    let second = cluster.build(2);
    let source = second.to_str().unwrap();
    let deploy = ["deploy", STORE, source, "--quiet", "--run", "nightly", "--gate-command"];
    let mut command = cluster.any().command(&[&deploy[..], &[HANGING]].concat());
    let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the version awaits the check", || {
        push_of(&cluster)["awaits_confirmation"] == true
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Neither nodes nor the leader make it live, however long it waits.
    std::thread::sleep(Duration::from_secs(2));
    let push = push_of(&cluster);
    assert_eq!(push["state"], "held", "{push}");
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(1));
    // Another try of the same run checks the same version.
    let deployed = cluster.any().json(&[&deploy[..], &["true"]].concat());
    assert_eq!(
        (&deployed["state"], &deployed["version"]),
        (&json!("swapped"), &json!(2)),
        "{deployed}"
    );
    assert_eq!(read_all(&mut cluster.get("router-1").redis()), Ok(2));
}

#[test]
fn nulls_are_counted_by_field_and_stop_a_version() {
    let cluster = Cluster::start(Shape::default());
    let push = |number: u32, options: &[&str]| {
        let file = cluster.dir.path().join(format!("people-{number}.jsonl"));
        let row = |id: u32| {
            let age = if id.is_multiple_of(number) {
                Value::Null
            } else {
                json!(id)
            };
            format!("{}\n", json!({"id": id.to_string(), "age": age, "city": "c"}))
        };
        std::fs::write(&file, (0..100).map(row).collect::<String>()).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let arguments = [
            "push", "people", &file, "--key", "id", "--values", "age,city", "--create", "--quiet",
        ];
        cluster.any().run(&[&arguments, options].concat())
    };
    let limit = ["--gate", "nulls(age) <= 10%"];
    assert!(push(50, &limit).status.success());
    let failed = push(4, &limit);
    let error = String::from_utf8(failed.stderr).unwrap();
    assert!(
        error.contains("25 of 100 keys have no value in field \"age\""),
        "{error}"
    );
    // Records that did not change count, too.
    assert!(push(50, &["--again", "--gate", "nulls(age) <= 2%"]).status.success());
    let failed = push(50, &["--again", "--gate", "nulls(agee) <= 10%"]);
    let error = String::from_utf8(failed.stderr).unwrap();
    assert!(error.contains("100 of 100 keys"), "{error}");
}
