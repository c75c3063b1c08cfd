//! MirrorMaker 2, which copies topics of one Kafka to another.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::jars::jars_of;
use crate::java::java;
use crate::process::ServerProcess;

const ARTIFACTS: [&str; 2] = [
    "org.apache.kafka:connect-mirror:4.1.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
];

/// A MirrorMaker from one Kafka, called `source`, to another. Dropping it kills it.
pub struct MirrorMaker {
    dir: TempDir,
    process: Option<ServerProcess>,
}

impl MirrorMaker {
    /// Makes one that copies topics whose names match a regular expression; `source.` is put before each name. `more` is
    /// further lines of its configuration. It does not run yet.
    ///
    /// # Panics
    /// If its directory cannot be made.
    pub fn prepare(source: &str, target: &str, topics: &str, more: &str) -> Self {
        Self::with(&format!(
            "clusters=source,target\n\
             source.bootstrap.servers={source}\n\
             target.bootstrap.servers={target}\n\
             source->target.enabled=true\n\
             source->target.topics={topics}\n\
             target->source.enabled=false\n\
             {more}\n"
        ))
    }

    /// Makes one that copies a topic both ways between two Kafkas: in the first one, `west.TOPIC` has the records of the second one's
    /// topic, and in the second one `east.TOPIC` those of the first one's. It notes no position: started again, it copies all anew. It
    /// does not run yet.
    ///
    /// # Panics
    /// If its directory cannot be made.
    pub fn prepare_both_ways(east: &str, west: &str, topic: &str) -> Self {
        // A former process that was killed counts as gone as soon as the brokers allow.
        let of = |name: &str, address: &str| {
            format!(
                "{name}.bootstrap.servers={address}\n\
                 {name}.offset.flush.interval.ms=3600000\n\
                 {name}.session.timeout.ms=6000\n\
                 {name}.heartbeat.interval.ms=1000\n"
            )
        };
        Self::with(&format!(
            "clusters=east,west\n{}{}\
             east->west.enabled=true\n\
             west->east.enabled=true\n\
             topics={topic}\n\
             emit.checkpoints.enabled=false\n\
             sync.topic.configs.enabled=false\n",
            of("east", east),
            of("west", west)
        ))
    }

    fn with(flows: &str) -> Self {
        let dir = tempfile::tempdir().expect("temporary directories can be made");
        // A task of a process that was killed is given to the next one at once, not after five minutes.
        let properties = format!(
            "{flows}\
             replication.factor=1\n\
             checkpoints.topic.replication.factor=1\n\
             offset-syncs.topic.replication.factor=1\n\
             offset.storage.replication.factor=1\n\
             status.storage.replication.factor=1\n\
             config.storage.replication.factor=1\n\
             emit.heartbeats.enabled=false\n\
             sync.topic.acls.enabled=false\n\
             scheduled.rebalance.max.delay.ms=0\n"
        );
        fs::write(dir.path().join("mirror.properties"), properties).expect("the directory was just made");
        Self { dir, process: None }
    }

    /// Starts it, or starts it again: then it repeats what it copied since it last noted how far it was.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(&mut self) {
        self.start_by(Command::new("env"));
    }

    /// The same, by a command that gets the program and its arguments as arguments.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_by(&mut self, mut through: Command) {
        self.kill();
        let mut command = java(self.dir.path(), &jars_of("mirrormaker", &ARTIFACTS));
        command.arg("org.apache.kafka.connect.mirror.MirrorMaker");
        command.arg(self.dir.path().join("mirror.properties"));
        through.arg(command.get_program()).args(command.get_args());
        let log = self.dir.path().join("mirror.log");
        self.process = Some(ServerProcess::start("MirrorMaker", &mut through, &log));
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        self.process.as_ref().map_or_else(String::new, ServerProcess::log_end)
    }
}
