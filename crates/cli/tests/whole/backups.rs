//! Backups of versioned stores: under load, restored, interrupted, damaged, on a full disk, two into one location, and
//! in S3 and HDFS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use fondaco_storage::{Secret, StorageOptions};
use fondaco_testing::{Hdfs, S3, SmallDisk};
use redis::Commands;

use super::node::{Dev, Node, fondaco, until};

const MANIFEST: &str = "backup.json";

fn create(node: &Node) {
    node.done(&["store", "create", "carts", "--kind", "versioned"]);
}

fn write(node: &Node, keys: std::ops::Range<u64>, value: &str) {
    let mut redis = node.redis();
    for key in keys {
        redis
            .set::<_, _, ()>(format!("carts:{key}"), format!("{value} of {key}"))
            .unwrap();
    }
}

fn read(node: &Node, store: &str, key: u64) -> Option<String> {
    node.redis().get(format!("{store}:{key}")).unwrap()
}

/// A node with this number of keys in the store, and the path of a backup that is not there yet.
fn with_carts(keys: u64) -> (Dev, PathBuf) {
    let dev = Dev::start();
    create(&dev);
    write(&dev, 0..keys, "value");
    let path = dev.path("backup");
    (dev, path)
}

/// Begins a backup at a low rate, and waits until its first file is there.
fn begin_slowly(dev: &Dev, path: &Path, bytes_per_second: &str) -> Child {
    let url = path.to_str().unwrap();
    let slow = [
        "backup",
        "carts",
        "--output",
        url,
        "--bytes-per-second",
        bytes_per_second,
    ];
    let backup = dev.command(&slow).stderr(Stdio::piped()).spawn().unwrap();
    until("a file is there", || {
        fs::read_dir(path).is_ok_and(|mut files| files.next().is_some())
    });
    backup
}

/// The longest file of a backup.
fn longest(backup: &Path) -> PathBuf {
    let files = fs::read_dir(backup).unwrap().map(|file| file.unwrap().path());
    let records = files.filter(|path| path.to_string_lossy().ends_with(".records.zst"));
    records.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

#[test]
fn a_restored_backup_has_every_write_acknowledged_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--nodes", "3", "--replicas", "3", "--loops", "1"];
    let cluster = Node::dev_with(&dir.path().join("data"), &more);
    create(&cluster);
    let store = cluster.json(&["store", "show", "carts"]);
    assert_eq!(
        (store["replicas"].as_u64(), store["versioned"]["writes"].as_u64()),
        (Some(3), Some(2))
    );
    let mut redis = cluster.redis();
    // Deleted keys stay deleted.
    redis.set::<_, _, ()>("carts:deleted", "value").unwrap();
    redis.del::<_, ()>("carts:deleted").unwrap();

    let url = dir.path().join("backup");
    let url = url.to_str().unwrap();
    let (acknowledged, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let before = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut redis = cluster.redis();
            for key in 0.. {
                if is_over.load(SeqCst) {
                    break;
                }
                redis
                    .set::<_, _, ()>(format!("carts:{key}"), format!("value of {key}"))
                    .unwrap();
                acknowledged.store(key + 1, SeqCst);
            }
        });
        until("enough is written", || acknowledged.load(SeqCst) >= 500);
        let before = acknowledged.load(SeqCst);
        let done = cluster.run(&["backup", "carts", "--output", url]);
        is_over.store(true, SeqCst);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        before
    });
    cluster.done(&["store", "drop", "carts", "--yes"]);
    assert!(cluster.refused(1, &["restore", "carts", url]).contains("--create"));
    let restored = cluster.json(&["restore", "carts", url, "--create"]);
    assert!(restored["records"].as_u64().unwrap() > before, "{restored}");
    let again = cluster.json(&["store", "show", "carts"]);
    assert_eq!(again["versioned"], store["versioned"]);
    until("the router knows the store", || {
        let found: redis::RedisResult<Option<String>> = redis.get("carts:0");
        found.is_ok()
    });
    for key in 0..before {
        let found: Option<String> = redis.get(format!("carts:{key}")).unwrap();
        assert_eq!(found, Some(format!("value of {key}")), "{key}");
    }
    assert_eq!(redis.get::<_, Option<String>>("carts:deleted").unwrap(), None);

    // Restore into a cluster of one node, with another number of partitions.
    let mut command = fondaco();
    command
        .args(["dev", "--partitions", "2", "--data"])
        .arg(dir.path().join("one"));
    command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", "error"]);
    let one = Node::start(command);
    let refused = one.refused(1, &["restore", "carts", url, "--create"]);
    assert!(refused.contains("create store carts yourself"), "{refused}");
    create(&one);
    one.done(&["restore", "carts", url]);
    for key in 0..before {
        assert_eq!(read(&one, "carts", key), Some(format!("value of {key}")));
    }
    assert_eq!(one.redis().get::<_, Option<String>>("carts:deleted").unwrap(), None);
    // New writes continue the versions: none counts as older than a restored record.
    write(&one, 0..50, "later");
    one.done(&["restore", "carts", url]);
    for key in 0..50 {
        assert_eq!(read(&one, "carts", key), Some(format!("later of {key}")));
    }
}

#[test]
fn a_restore_keeps_later_writes_and_can_fill_another_store() {
    let dev = Dev::start();
    create(&dev);
    write(&dev, 0..100, "old");
    let url = dev.path("backup");
    let url = url.to_str().unwrap();
    let made = dev.json(&["backup", "carts", "--output", url]);
    assert_eq!(made["records"], 100);
    write(&dev, 0..50, "new");
    dev.redis().del::<_, ()>("carts:60").unwrap();
    for _ in 0..2 {
        dev.done(&["restore", "carts", url]);
        assert_eq!(read(&dev, "carts", 7).as_deref(), Some("new of 7"));
        assert_eq!(read(&dev, "carts", 60), None);
        assert_eq!(read(&dev, "carts", 70).as_deref(), Some("old of 70"));
    }
    dev.done(&["restore", "others", url, "--create"]);
    for key in 0..100 {
        assert_eq!(read(&dev, "others", key), Some(format!("old of {key}")));
    }
    // Nothing is overwritten.
    assert!(
        dev.refused(1, &["backup", "carts", "--output", url])
            .contains("holds a backup")
    );
    dev.push("batch", [("1".to_owned(), "x".to_owned())]);
    let other = dev.path("other");
    let refused = dev.refused(1, &["backup", "batch", "--output", other.to_str().unwrap()]);
    assert!(refused.contains("not versioned"), "{refused}");
}

#[test]
fn an_incremental_backup_has_only_what_changed() {
    let dev = Dev::start();
    create(&dev);
    let [first, second, third, other] = ["1", "2", "3", "4"].map(|name| dev.path(name).to_str().unwrap().to_owned());
    let back_up = |output: &str, since: &str| dev.json(&["backup", "carts", "--output", output, "--since", since]);
    write(&dev, 0..3000, "old");
    let made = dev.json(&["backup", "carts", "--output", &first]);
    assert_eq!((&made["records"], &made["unchanged"]), (&3000.into(), &0.into()));
    let first_bytes = made["bytes"].as_u64().unwrap();
    write(&dev, 0..30, "new");
    dev.redis().del::<_, ()>("carts:60").unwrap();
    let made = back_up(&second, &first);
    assert_eq!(
        (&made["records"], &made["unchanged"]),
        (&31.into(), &2969.into()),
        "{made}"
    );
    write(&dev, 10..20, "newest");
    let made = back_up(&third, &second);
    assert_eq!(
        (&made["records"], &made["unchanged"]),
        (&10.into(), &2990.into()),
        "{made}"
    );
    // Beside the records, a backup has 16 bytes for each record there is.
    assert!(
        made["bytes"].as_u64().unwrap() < 3000 * 16 + first_bytes / 20,
        "{made} {first_bytes}"
    );

    dev.done(&["restore", "others", &third, "--dry-run"]);
    dev.done(&["restore", "others", &third, "--create"]);
    for key in (0..100).chain(2990..3000) {
        let expected = match key {
            10..20 => Some("newest"),
            0..30 => Some("new"),
            60 => None,
            _ => Some("old"),
        };
        let expected = expected.map(|value| format!("{value} of {key}"));
        assert_eq!(read(&dev, "others", key), expected, "{key}");
    }
    let refused = |arguments: &[&str]| dev.refused(1, arguments);
    let error = refused(&["backup", "others", "--output", &other, "--since", &third]);
    assert!(
        error.contains("another store, \"carts\"") && error.contains("without --since"),
        "{error}"
    );
    let digests = |file: &fs::DirEntry| file.path().extension().is_some_and(|extension| extension == "digests");
    let file = fs::read_dir(&third).unwrap().map(Result::unwrap).find(digests).unwrap();
    let mut damaged = fs::read(file.path()).unwrap();
    damaged[3] ^= 1;
    fs::write(file.path(), damaged).unwrap();
    let error = refused(&["backup", "carts", "--output", &other, "--since", &third]);
    assert!(error.contains("was changed since it was written"), "{error}");
    assert!(refused(&["restore", "others", &third, "--dry-run"]).contains("was changed since it was written"));
    fs::remove_file(dev.path("1").join(MANIFEST)).unwrap();
    let error = refused(&["backup", "carts", "--output", &other, "--since", &second]);
    assert!(error.contains("without --since") && error.contains(&first), "{error}");
    let error = refused(&["restore", "others", &second]);
    assert!(error.contains("needs the one in") && error.contains(&first), "{error}");
}

#[test]
fn backups_do_not_depend_on_parallelism() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::dev(&dir.path().join("data"));
    create(&node);
    write(&node, 0..300, "value");
    for count in ["1", "3", "64"] {
        let url = dir.path().join(count);
        let backup = ["backup", "carts", "--output", url.to_str().unwrap()];
        let done = node.json(&[&backup[..], &["--partitions-at-once", count]].concat());
        assert_eq!(done["records"], 300, "{done}");
        let manifest = fs::read(url.join(MANIFEST)).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let files = manifest["backup"]["files"].as_array().unwrap();
        assert_eq!(files.len() as u64, done["partitions"]);
        for (partition, file) in files.iter().enumerate() {
            let begins = format!("partition-{partition:05}-");
            assert!(file["name"].as_str().unwrap().starts_with(&begins), "{file}");
        }
    }
    let url = dir.path().join("none");
    let backup = ["backup", "carts", "--output", url.to_str().unwrap()];
    node.refused(2, &[&backup[..], &["--partitions-at-once", "0"]].concat());
}

#[test]
fn corruption_and_truncation_are_found_before_anything_is_restored() {
    let (dev, path) = with_carts(200);
    let url = path.to_str().unwrap();
    dev.done(&["backup", "carts", "--output", url]);
    let file = longest(&path);
    let sound = fs::read(&file).unwrap();
    let mut rotten = sound.clone();
    rotten[sound.len() / 2] ^= 4;
    for damaged in [&rotten[..], &sound[..sound.len() - 1]] {
        fs::write(&file, damaged).unwrap();
        let error = dev.refused(1, &["restore", "again", url, "--create"]);
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            error.contains("nothing was restored") && error.contains(name),
            "{error}"
        );
        dev.refused(1, &["store", "show", "again"]);
        dev.refused(1, &["restore", "again", url, "--dry-run"]);
    }
    fs::write(&file, &sound).unwrap();
    let manifest = path.join(MANIFEST);
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"writes\": 1", "\"writes\": 2")).unwrap();
    let error = dev.refused(1, &["restore", "again", url, "--create"]);
    assert!(error.contains("backup.json") && error.contains("checksum"), "{error}");
    fs::write(&manifest, text).unwrap();
    assert_eq!(dev.json(&["restore", "again", url, "--dry-run"])["records"], 200);
    dev.refused(1, &["store", "show", "again"]);
    dev.done(&["restore", "again", url, "--create"]);
    assert_eq!(read(&dev, "again", 7).as_deref(), Some("value of 7"));
}

#[test]
fn a_killed_backup_is_no_backup_and_can_be_repeated() {
    let (dev, path) = with_carts(200);
    let url = path.to_str().unwrap();
    let mut killed = begin_slowly(&dev, &path, "200");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!path.join(MANIFEST).exists());
    assert!(dev.refused(1, &["restore", "carts", url]).contains("holds no backup"));
    let made = dev.json(&["backup", "carts", "--output", url]);
    assert_eq!(made["records"], 200);
    dev.done(&["restore", "carts", url]);
    // Files that are not part of a backup are left alone.
    let other = dev.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("notes.txt"), "mine").unwrap();
    let refused = dev.refused(1, &["backup", "carts", "--output", other.to_str().unwrap()]);
    assert!(refused.contains("notes.txt"), "{refused}");
    assert_eq!(fs::read(other.join("notes.txt")).unwrap(), b"mine");
    for nowhere in ["ftp://host/backup", "s3:///backup", ""] {
        dev.refused(2, &["backup", "carts", "--output", nowhere]);
        dev.refused(2, &["restore", "carts", nowhere]);
    }
}

#[test]
fn a_killed_restore_can_be_repeated() {
    const KEYS: u64 = 40;
    let dev = Dev::start();
    create(&dev);
    let long = "value ".repeat(10_000);
    write(&dev, 0..KEYS, &long);
    let url = dev.path("backup");
    let url = url.to_str().unwrap();
    dev.done(&["backup", "carts", "--output", url]);
    let found = |key| dev.redis().get::<_, Option<String>>(format!("again:{key}"));
    let slow = ["restore", "again", url, "--create", "--bytes-per-second", "50000"];
    let mut killed = dev.command(&slow).spawn().unwrap();
    until("some of it is restored", || {
        (0..KEYS).any(|key| found(key).is_ok_and(|value| value.is_some()))
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(
        (0..KEYS).any(|key| found(key).unwrap().is_none()),
        "it was killed too late"
    );
    dev.done(&["restore", "again", url]);
    for key in 0..KEYS {
        assert_eq!(found(key).unwrap(), Some(format!("{long} of {key}")));
    }
}

#[test]
fn a_full_disk_fails_a_backup_and_leaves_no_files() {
    let dev = Dev::start();
    let Some(disk) = SmallDisk::temporary(64 << 10) else {
        return;
    };
    let path = disk.path();
    create(&dev);
    let mut redis = dev.redis();
    let mut random = fastrand::Rng::with_seed(1);
    for key in 0..40 {
        // Random bytes, which no compression makes shorter.
        let mut value = [0; 4096];
        random.fill(&mut value);
        redis.set::<_, _, ()>(format!("carts:{key}"), &value[..]).unwrap();
    }
    let error = dev.refused(1, &["backup", "carts", "--output", path.to_str().unwrap()]);
    assert!(!path.join(MANIFEST).exists());
    assert!(error.contains("space") && error.contains("no backup"), "{error}");
    assert_eq!(fs::read_dir(path).unwrap().count(), 0, "{error}");
}

#[test]
fn a_backup_fails_if_its_store_is_recreated_meanwhile() {
    let (dev, path) = with_carts(200);
    let backup = begin_slowly(&dev, &path, "500");
    dev.done(&["store", "drop", "carts", "--yes"]);
    create(&dev);
    let backup = backup.wait_with_output().unwrap();
    assert!(!path.join(MANIFEST).exists());
    let error = String::from_utf8(backup.stderr).unwrap();
    assert!(error.contains("no backup") && error.contains("carts"), "{error}");
}

#[test]
fn of_two_backups_in_one_location_the_slower_one_fails() {
    let (dev, path) = with_carts(200);
    let url = path.to_str().unwrap();
    let overtaken = begin_slowly(&dev, &path, "500");
    dev.done(&["backup", "carts", "--output", url]);
    let overtaken = overtaken.wait_with_output().unwrap();
    let error = String::from_utf8(overtaken.stderr).unwrap();
    assert!(error.contains("another backup"), "{error}");
    assert_eq!(dev.json(&["restore", "carts", url, "--dry-run"])["records"], 200);
}

/// Makes a backup at a URL, and restores it under another name.
fn there_and_back(url: &str, environment: &[(&str, String)]) {
    let dev = Dev::start();
    create(&dev);
    write(&dev, 0..100, "value");
    // A killed backup has left files behind.
    let slow = ["backup", "carts", "--output", url, "--bytes-per-second", "200"];
    let mut killed = dev.command(&slow).envs(environment.iter().cloned()).spawn().unwrap();
    let location = storage(environment).locate(url).unwrap();
    until("a file is there", || {
        location.list().is_ok_and(|files| !files.is_empty())
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    // The second time, there is a backup already.
    for (arguments, succeeds) in [
        (&["backup", "carts", "--output", url][..], true),
        (&["backup", "carts", "--output", url], false),
        (&["restore", "others", url, "--create"], true),
    ] {
        let done = dev
            .command(arguments)
            .envs(environment.iter().cloned())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.success(), succeeds, "{arguments:?}: {errors}");
    }
    for key in 0..100 {
        assert_eq!(read(&dev, "others", key), Some(format!("value of {key}")));
    }
}

/// The storage settings of this process for the location that programs with this environment use.
fn storage(environment: &[(&str, String)]) -> StorageOptions {
    let value = |name| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    };
    let mut options = StorageOptions::default();
    options.s3.endpoint = value("AWS_ENDPOINT_URL");
    options.s3.access_key_id = value("AWS_ACCESS_KEY_ID");
    options.s3.secret_access_key = value("AWS_SECRET_ACCESS_KEY").map(Secret::new);
    options
}

#[test]
fn a_backup_goes_to_an_object_store_and_back() {
    let server = S3::start();
    let environment = [
        ("AWS_ENDPOINT_URL", server.endpoint()),
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY_ID.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_ACCESS_KEY.to_owned()),
    ];
    there_and_back(&format!("s3://{}/backups/carts", S3::BUCKET), &environment);
}

#[test]
fn a_backup_goes_to_hdfs_and_back() {
    let server = Hdfs::start();
    there_and_back(&format!("{}/backups/carts", server.url()), &[]);
}
