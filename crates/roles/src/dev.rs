//! A whole cluster in one process, for trying things: nodes, routers and controllers, each with its own session, ports
//! and data directory, each stopped and started by hand.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fondaco_agent::DataDir;
use fondaco_api::{DevMember, Role};
use fondaco_cluster::ClusterError;
use fondaco_coordination::EmbeddedCoordination;
use fondaco_http::{DevHandle, DevMembers, MemberError};
use fondaco_stream::EventLog;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::dev_file::DevFile;
use crate::error::RoleError;
use crate::running::Running;
use crate::starting::{Fondaco, Surroundings};

/// A running development cluster.
pub struct Dev {
    members: Arc<Members>,
    /// The lock on the directory of the whole cluster.
    _dir: DataDir,
}

/// How a development cluster is made.
#[derive(Debug, Clone)]
pub struct DevConfig {
    /// The common configuration of all members; its role is ignored. Each member gets a directory within its data
    /// directory. The first router gets its ports, and the system chooses all others. Without ZooKeeper the cluster
    /// coordinates itself in this directory.
    pub common: Config,
    /// How many nodes there are.
    pub nodes: u32,
    /// How many routers there are, 1 or more.
    pub routers: u32,
    /// How many controllers there are, 1 or more: one leads, the others wait.
    pub controllers: u32,
    /// How many zones the members stand in, 1 or more: the first of each role in `zone-1`, the second in `zone-2`, and
    /// so on in turn. With one zone, all stand in the zone of the common configuration.
    pub zones: u32,
    /// How many groups the nodes form under the placement *grouped*, 1 or more: the first node is in `group-1`, the second
    /// in `group-2`, and so on in turn. With one group, all nodes are in the group of the common configuration, if any.
    pub groups: u32,
}

struct Members {
    all: Mutex<Vec<Member>>,
    /// Their shared coordination, unless it is ZooKeeper.
    embedded: Option<EmbeddedCoordination>,
    /// Their shared log of events.
    events: Arc<EventLog>,
}

struct Member {
    name: String,
    config: Config,
    running: Option<Running>,
}

impl Dev {
    /// Starts all members, and returns when they serve. Waits for the disk.
    ///
    /// # Errors
    /// An error of the configuration, the directory or the addresses.
    pub fn start(config: DevConfig) -> Result<Self, RoleError> {
        for (role, count) in [
            ("node", config.nodes),
            ("router", config.routers),
            ("controller", config.controllers),
        ] {
            if count == 0 {
                let reason = format!("a development cluster without a {role} serves nothing: ask for 1 or more");
                return Err(RoleError::InvalidConfig(reason));
            }
        }
        for (what, count) in [("zones", config.zones), ("groups", config.groups)] {
            let nodes = config.nodes;
            if !(1..=nodes).contains(&count) {
                let reason = format!("{count} {what} for {nodes} nodes: ask for 1 to {nodes}");
                return Err(RoleError::InvalidConfig(reason));
            }
        }
        let dir = DataDir::open(&config.common.data_dir)?;
        let mut file = DevFile::open(&config.common.data_dir, config.nodes, &config.common)?;
        let embedded = match &config.common.zookeeper {
            Some(_) => None,
            None => Some(EmbeddedCoordination::open(dir.metadata())?),
        };
        let members = Arc::new(Members {
            all: Mutex::default(),
            embedded,
            events: Arc::new(EventLog::in_dir(&dir.events())),
        });
        let dev = Self { members, _dir: dir };
        // Controllers first, so that nodes are given their numbers in the order of their names.
        for (name, mut config) in dev.configs(&config) {
            config.check()?;
            file.recall(&name, &mut config);
            let running = dev.members.launch(&config)?;
            // One that is stopped and started again keeps its ports, too.
            if let Some(resp) = running.resp_addr() {
                config.resp_listen.set_port(resp.port());
            }
            config.http_listen.set_port(running.http_addr().port());
            file.note(&name, running.resp_addr(), running.http_addr());
            dev.members.all.lock().push(Member {
                name,
                config,
                running: Some(running),
            });
        }
        file.write()?;
        Ok(dev)
    }

    /// The RESP and HTTP addresses of the first router; `None` while it does not run.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let all = self.members.all.lock();
        let router = all.iter().find(|member| member.config.role == Role::Router)?;
        let running = router.running.as_ref()?;
        Some((running.resp_addr()?, running.http_addr()))
    }

    /// The members.
    pub fn members(&self) -> Vec<DevMember> {
        self.members.list()
    }

    /// Stops a member, as an operator would.
    ///
    /// # Errors
    /// There is no such member, or it does not run.
    pub fn stop_member(&self, name: &str) -> Result<(), RoleError> {
        Ok(self.members.stop(name, None)?)
    }

    /// Starts a member that was stopped, with the data that it had.
    ///
    /// # Errors
    /// There is no such member, or it runs, or it cannot be started.
    pub fn start_member(&self, name: &str) -> Result<(), RoleError> {
        self.members.start_again(name)
    }

    /// Stops all members.
    pub async fn shutdown(self) {
        let (sender, done) = oneshot::channel();
        // Stopping waits for threads, which an event loop must not.
        let stopping = std::thread::Builder::new().name("stop".into()).spawn(move || {
            let all = std::mem::take(&mut *self.members.all.lock());
            // The router last, so that no client is refused that could still be answered.
            for running in all.into_iter().rev().filter_map(|member| member.running) {
                running.stop();
            }
            drop(self);
            // The receiver is gone if the future was dropped.
            let _ = sender.send(());
        });
        match stopping {
            // Only a panic of the thread drops the sender, and it was printed.
            Ok(_) => drop(done.await),
            Err(error) => tracing::error!(%error, "cannot start the thread that stops the cluster"),
        }
    }

    fn configs(&self, config: &DevConfig) -> Vec<(String, Config)> {
        let roles = [
            (Role::Controller, "controller", config.controllers),
            (Role::Node, "node", config.nodes),
            (Role::Router, "router", config.routers),
        ];
        let member = |role: Role, word: &str, number: u32| {
            let name = format!("{word}-{number}");
            let mut own = config.common.clone();
            own.role = role;
            own.data_dir = config.common.data_dir.join(&name);
            if config.zones > 1 {
                own.member.zone = format!("zone-{}", (number - 1) % config.zones + 1);
            }
            if config.groups > 1 && role == Role::Node {
                own.member.group = Some(format!("group-{}", (number - 1) % config.groups + 1));
            }
            if role != Role::Router || number > 1 {
                own.resp_listen.set_port(0);
                own.http_listen.set_port(0);
            }
            (name, own)
        };
        let mut members = Vec::new();
        for (role, word, count) in roles {
            members.extend((1..=count).map(|number| member(role, word, number)));
        }
        members
    }
}

impl Members {
    fn launch(self: &Arc<Self>, config: &Config) -> Result<Running, RoleError> {
        let (coordination, session_timeout) = match (&self.embedded, &config.zookeeper) {
            (Some(embedded), _) => (embedded.session(), Duration::ZERO),
            (None, Some(zookeeper)) => (zookeeper.connect()?, zookeeper.session_timeout),
            (None, None) => return Err(ClusterError::NothingSeen.into()),
        };
        let data_dir = config.role.holds_data().then(|| DataDir::open(&config.data_dir));
        let surroundings = Surroundings {
            coordination,
            session_timeout,
            data_dir: data_dir.transpose()?,
            events: Some(Arc::clone(&self.events)),
            dev: Some(DevHandle::new(Arc::downgrade(self) as Weak<dyn DevMembers>)),
        };
        Fondaco::start_in(config, surroundings)
    }

    fn start_again(self: &Arc<Self>, name: &str) -> Result<(), RoleError> {
        let config = {
            let mut all = self.all.lock();
            let member = find(&mut all, name)?;
            if member.running.is_some() {
                return Err(busy(name, "runs already: stop it first").into());
            }
            member.config.clone()
        };
        // If another thread starts it meanwhile, the lock on its directory or port refuses one of the two.
        let running = self.launch(&config)?;
        find(&mut self.all.lock(), name)?.running = Some(running);
        Ok(())
    }
}

impl DevMembers for Members {
    fn list(&self) -> Vec<DevMember> {
        let member = |member: &Member| DevMember {
            name: member.name.clone(),
            role: member.config.role,
            running: member.running.is_some(),
            resp: member
                .running
                .as_ref()
                .and_then(Running::resp_addr)
                .map(|addr| addr.to_string()),
            http: member.running.as_ref().map(|running| running.http_addr().to_string()),
        };
        self.all.lock().iter().map(member).collect()
    }

    fn stop(&self, name: &str, asked: Option<SocketAddr>) -> Result<(), MemberError> {
        let running = {
            let mut all = self.all.lock();
            let member = find(&mut all, name)?;
            let address = member.running.as_ref().map(Running::http_addr);
            if asked.is_some() && address == asked {
                return Err(busy(name, "cannot stop itself: ask another one to"));
            }
            member.running.take()
        };
        // Without the lock: the stopping member may still be asked for the list of members.
        running
            .ok_or_else(|| busy(name, "does not run: start it first"))?
            .stop();
        Ok(())
    }

    fn start(self: Arc<Self>, name: &str) -> Result<(), MemberError> {
        self.start_again(name).map_err(|error| match error {
            RoleError::Member(error) => error,
            error => MemberError::NotStarted(error.to_string()),
        })
    }
}

fn find<'a>(all: &'a mut [Member], name: &str) -> Result<&'a mut Member, MemberError> {
    let found = all.iter_mut().find(|member| member.name == name);
    found.ok_or_else(|| MemberError::NotFound {
        member: name.to_owned(),
    })
}

fn busy(name: &str, reason: &'static str) -> MemberError {
    MemberError::Busy {
        member: name.to_owned(),
        reason,
    }
}
