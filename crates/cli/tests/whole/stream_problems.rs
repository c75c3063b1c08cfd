//! The output of commands while a stream cannot be read: a topic that is missing, or one that may not be read.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use fondaco_testing::Kafka;

use super::node::{Node, of_csv, until, wait, write_csv};

/// A process that is a whole cluster, and reads this Kafka as a user with only the rights that it was allowed.
fn node(dir: &Path, kafka: &Kafka) -> Node {
    let config = dir.join("fondaco.toml");
    let data = dir.join("data");
    let mut text = format!("data = {data:?}\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n[kafka]\n");
    for (property, value) in kafka.secured_properties() {
        text += &format!("{property:?} = {value:?}\n");
    }
    fs::write(&config, text).unwrap();
    Node::server(&config)
}

/// How long lines are watched: several would be printed in this time if each change of the clock counted.
const WATCHED: Duration = Duration::from_secs(7);

/// A store whose stream is this topic cannot be read: each command says why, with these words, until `mend` was called.
fn each_command_says_why(node: &Node, dir: &Path, kafka: &Kafka, topic: &str, why: &str, mend: impl FnOnce()) {
    let stream = format!("kafka://{}/{topic}", kafka.secured_address());
    let create = ["store", "create", topic, "--kind", "hybrid", "--stream", &stream];
    let created = node.done(&create);
    assert!(
        created.contains("its stream cannot be read yet") && created.contains(why),
        "{created}"
    );
    let (rows, printed) = (dir.join("rows.csv"), dir.join(format!("{topic}.log")));
    write_csv(&rows, [("k".to_owned(), "v".to_owned())]);
    let mut command = node.command(&of_csv("push", topic, &rows, &[]));
    let mut push = command.stderr(File::create(&printed).unwrap()).spawn().unwrap();
    let lines = || {
        let printed = fs::read_to_string(&printed).unwrap();
        let lines = printed.lines().filter(|line| line.contains(why));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    until("the push to say what it waits for", || !lines().is_empty());
    let first_at = Instant::now();
    let expected = format!("node 1: waiting for the stream, which cannot be read: {why}");
    assert!(lines()[0].starts_with(&format!("waiting: {expected}")), "{:?}", lines());
    for command in [&["versions", topic][..], &["store", "show", topic], &["status"]] {
        until(&format!("fondaco {} to say why", command.join(" ")), || {
            node.done(command).contains(why)
        });
    }
    for command in [&["versions", topic][..], &["status"]] {
        let text = node.done(command);
        assert!(text.contains(&expected), "{text}");
    }
    until("the time to be over", || first_at.elapsed() > WATCHED);
    assert_eq!(lines().len(), 1, "{:?}", lines());
    mend();
    assert!(wait(&mut push).success(), "{}", fs::read_to_string(&printed).unwrap());
    for command in [&["versions", topic][..], &["store", "show", topic], &["status"]] {
        until(&format!("fondaco {} to say nothing more", command.join(" ")), || {
            !node.done(command).contains(why)
        });
    }
}

#[test]
fn commands_say_why_a_stream_cannot_be_read() {
    let kafka = Kafka::start_secured();
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), &kafka);
    kafka.allow("read", "absent");
    let absent = "there is no topic \"absent\"";
    each_command_says_why(&node, dir.path(), &kafka, "absent", absent, || {
        kafka.make_topic("absent", 1);
    });
    kafka.make_topic("forbidden", 1);
    let forbidden = "the brokers do not allow topic \"forbidden\" to be read";
    each_command_says_why(&node, dir.path(), &kafka, "forbidden", forbidden, || {
        kafka.allow("read", "forbidden")
    });
}
