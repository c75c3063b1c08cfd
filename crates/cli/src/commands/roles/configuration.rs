//! The configuration file of a process: TOML, unknown keys are refused. One file may serve all roles: a role ignores
//! the settings that it does not need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context, anyhow, bail};
use fondaco_api::Role;
use fondaco_model::{NodeId, Placement, StoreName};
use fondaco_push::partition_count;
use fondaco_roles::{
    ClusterConfig, Config, KafkaConfig, MemberConfig, PeerConfig, TlsConfig, UserConfig, ZooKeeperConfig,
};
use serde::Deserialize;

use super::super::build::{PARTITIONS_DEFAULT, parse_bytes};
use super::machines::MachinesSection;
use super::{HTTP_DEFAULT, LogFormat, RESP_DEFAULT, resolve};

/// The default path in ZooKeeper.
const ROOT_DEFAULT: &str = "/fondaco";

/// The longest interval of anti-entropy between the replicas of a partition: a week.
const EXCHANGE_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// The longest time for which deleted data is kept: a year.
const KEEP_DELETED_SECONDS_MAX: u64 = 366 * 24 * 3600;

/// The configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ConfigurationFile {
    pub(super) data: Option<PathBuf>,
    pub(super) resp: Option<String>,
    pub(super) http: Option<String>,
    pub(super) resp_advertised: Option<String>,
    pub(super) http_advertised: Option<String>,
    pub(super) loops: Option<usize>,
    pub(super) token: Option<String>,
    #[serde(default)]
    pub(super) allow_insecure: bool,
    default_store: Option<StoreName>,
    disk_reserve: Option<String>,
    memory: Option<String>,
    keep_deleted_seconds: Option<u64>,
    pub(super) zone: Option<String>,
    pub(super) group: Option<String>,
    pub(super) template: Option<String>,
    pub(super) weight: Option<u32>,
    pub(super) host: Option<String>,
    #[serde(default)]
    pub(super) backup: bool,
    node: Option<NodeId>,
    pub(super) zookeeper: Option<ZooKeeperSection>,
    #[serde(default)]
    cluster: ClusterSection,
    #[serde(default)]
    peers: PeersSection,
    #[serde(default)]
    versioned: VersionedSection,
    #[serde(default)]
    kafka: KafkaSection,
    tls: Option<TlsSection>,
    #[serde(default)]
    users: Vec<UserSection>,
    machines: Option<MachinesSection>,
    #[serde(default)]
    log: LogSection,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ZooKeeperSection {
    connect: String,
    #[serde(default = "root_default")]
    root: String,
    session_timeout_ms: Option<u64>,
    auth: Option<String>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ClusterSection {
    partitions: Option<u32>,
    placement: Option<Placement>,
    replicas: Option<u32>,
    nodes_initial: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PeersSection {
    user: Option<String>,
    password: Option<String>,
    certificates: Option<PathBuf>,
}

/// Properties of librdkafka.
#[derive(Default, Deserialize)]
struct KafkaSection(BTreeMap<String, String>);

impl fmt::Debug for KafkaSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some values are passwords.
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct VersionedSection {
    cache: Option<String>,
    mysql: Option<String>,
    exchange_every_seconds: Option<u64>,
    exchange_rate: Option<String>,
    handoff_rate: Option<String>,
}

impl fmt::Debug for VersionedSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the database URL, which contains a password.
        f.debug_struct("VersionedSection")
            .field("cache", &self.cache)
            .field("exchange_every_seconds", &self.exchange_every_seconds)
            .field("exchange_rate", &self.exchange_rate)
            .field("handoff_rate", &self.handoff_rate)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TlsSection {
    certificate: PathBuf,
    key: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct UserSection {
    name: String,
    password_sha256: String,
    #[serde(default)]
    stores: Vec<String>,
    #[serde(default)]
    writes: Vec<String>,
    #[serde(default)]
    admin: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LogSection {
    filter: Option<String>,
    format: Option<LogFormat>,
}

fn root_default() -> String {
    ROOT_DEFAULT.to_owned()
}

impl ConfigurationFile {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path:?}"))?;
        Self::parse(&text).with_context(|| format!("{path:?} is not a configuration; docs/operations.md has one"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(toml::from_str(text)?)
    }

    pub(super) fn log_filter(&self) -> Option<&str> {
        self.log.filter.as_deref()
    }

    pub(super) fn log_format(&self) -> Option<LogFormat> {
        self.log.format
    }

    /// Lets flags override the ZooKeeper settings of the file.
    pub(super) fn override_zookeeper(&mut self, connect: Option<String>, root: Option<String>) -> anyhow::Result<()> {
        match (&mut self.zookeeper, connect, root) {
            (Some(section), connect, root) => {
                section.connect = connect.unwrap_or(std::mem::take(&mut section.connect));
                section.root = root.unwrap_or(std::mem::take(&mut section.root));
            }
            (None, Some(connect), root) => {
                self.zookeeper = Some(ZooKeeperSection {
                    connect,
                    root: root.unwrap_or_else(root_default),
                    session_timeout_ms: None,
                    auth: None,
                    ca: None,
                    certificate: None,
                    key: None,
                });
            }
            (None, None, Some(root)) => bail!("the root {root:?} is a ZooKeeper path: set zookeeper too"),
            (None, None, None) => {}
        }
        Ok(())
    }

    /// The configuration of a process in this role.
    pub(super) fn into_config(self, role: Role) -> anyhow::Result<Config> {
        let data = match (role.holds_data(), self.data) {
            (true, None) => bail!("no data directory: set data in the file, or use --data"),
            (true, Some(data)) => data,
            // Its decisions are kept there.
            (false, Some(data)) if role.decides() => data,
            (false, _) => PathBuf::new(),
        };
        let cluster = self.cluster;
        let partitions = partition_count(cluster.partitions.unwrap_or(PARTITIONS_DEFAULT))?;
        let mut config = Config::local(data, partitions);
        config.role = role;
        config.program = std::env::current_exe().ok();
        config.resp_listen = resolve(self.resp.as_deref().unwrap_or(RESP_DEFAULT))?;
        config.http_listen = resolve(self.http.as_deref().unwrap_or(HTTP_DEFAULT))?;
        config.loops = self.loops.unwrap_or(0);
        config.token = self.token;
        config.allow_insecure = self.allow_insecure;
        config.default_store = self.default_store;
        let bytes = |name: &str, text: &Option<String>| {
            let parse =
                |text: &String| parse_bytes(text).map_err(|reason| anyhow!("invalid {name} {text:?}: {reason}"));
            text.as_ref().map(parse).transpose()
        };
        if let Some(reserve) = bytes("disk-reserve", &self.disk_reserve)? {
            config.disk_reserve_bytes = reserve;
        }
        config.memory_bytes = bytes("memory", &self.memory)?;
        if let Some(seconds) = self.keep_deleted_seconds {
            if seconds > KEEP_DELETED_SECONDS_MAX {
                bail!("invalid keep-deleted-seconds {seconds}: use 0 to {KEEP_DELETED_SECONDS_MAX}");
            }
            config.keep_deleted = Duration::from_secs(seconds);
        }
        config.versioned.cache_bytes = bytes("cache", &self.versioned.cache)?;
        config.versioned.exchange_bytes_per_second = bytes("exchange-rate", &self.versioned.exchange_rate)?;
        config.versioned.handoff_bytes_per_second = bytes("handoff-rate", &self.versioned.handoff_rate)?;
        config.versioned.mysql = self.versioned.mysql;
        config.kafka = KafkaConfig(self.kafka.0);
        if let Some(seconds) = self.versioned.exchange_every_seconds {
            if !(1..=EXCHANGE_SECONDS_MAX).contains(&seconds) {
                bail!("invalid exchange-every-seconds {seconds}: use 1 to {EXCHANGE_SECONDS_MAX}");
            }
            config.versioned.exchange_period = Some(Duration::from_secs(seconds));
        }
        let defaults = ClusterConfig::default();
        config.cluster = ClusterConfig {
            placement: cluster.placement.unwrap_or(defaults.placement),
            replicas: cluster.replicas.unwrap_or(defaults.replicas),
            nodes_initial: cluster.nodes_initial.unwrap_or(defaults.nodes_initial),
        };
        let defaults = MemberConfig::default();
        config.member = MemberConfig {
            id: self.node,
            zone: self.zone.unwrap_or(defaults.zone),
            group: self.group,
            template: self.template,
            weight: self.weight.unwrap_or(defaults.weight),
            host: self.host,
            backup: self.backup,
            resp_advertised: self.resp_advertised,
            http_advertised: self.http_advertised,
        };
        config.zookeeper = self.zookeeper.map(ZooKeeperSection::into_config).transpose()?;
        config.peers = PeerConfig {
            user: self.peers.user,
            password: self.peers.password,
            certificates: self.peers.certificates,
        };
        config.tls = self.tls.map(|tls| TlsConfig {
            certificate: tls.certificate,
            key: tls.key,
        });
        config.machines = self.machines.map(MachinesSection::into_config).transpose()?;
        config.users = self.users.into_iter().map(UserSection::into_config).collect();
        Ok(config)
    }
}

impl ZooKeeperSection {
    fn into_config(self) -> anyhow::Result<ZooKeeperConfig> {
        let timeout = self.session_timeout_ms.map(Duration::from_millis);
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(TlsConfig { certificate, key }),
            (None, None) => None,
            _ => bail!("certificate and key in [zookeeper] belong together: set both or neither"),
        };
        if identity.is_some() && self.ca.is_none() {
            bail!("[zookeeper] has a certificate, and nothing to trust its servers by: set ca");
        }
        Ok(ZooKeeperConfig {
            connect: self.connect,
            root: self.root,
            session_timeout: timeout.unwrap_or(ZooKeeperConfig::SESSION_TIMEOUT_DEFAULT),
            auth: self.auth,
            ca: self.ca,
            identity,
        })
    }
}

impl UserSection {
    fn into_config(self) -> UserConfig {
        UserConfig {
            name: self.name,
            password_sha256: self.password_sha256,
            stores: self.stores,
            writes: self.writes,
            admin: self.admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        data = "/var/lib/fondaco"
        resp = "127.0.0.1:1"
        http = "127.0.0.1:2"
        resp-advertised = "node-3.example:1"
        http-advertised = "node-3.example:2"
        loops = 3
        token = "0123456789abcdef"
        allow-insecure = true
        default-store = "cache"
        disk-reserve = "2GiB"
        memory = "3GiB"
        keep-deleted-seconds = 60
        zone = "a"
        group = "first"
        weight = 2
        node = 3
        [zookeeper]
        connect = "zk-1:2181,zk-2:2181"
        root = "/fondaco/production"
        session-timeout-ms = 4000
        auth = "fondaco:secret"
        ca = "zk-ca.pem"
        certificate = "zk.pem"
        key = "zk-key.pem"
        [cluster]
        partitions = 64
        placement = "zoned"
        replicas = 2
        nodes-initial = 5
        [peers]
        user = "node"
        password = "peer-password"
        certificates = "peers.pem"
        [tls]
        certificate = "a.pem"
        key = "b.pem"
        [[users]]
        name = "reader"
        password-sha256 = "00"
        stores = ["pymk", "feature-*"]
        writes = ["cart-*"]
        [versioned]
        cache = "1GiB"
        mysql = "mysql://user:password@database.example:3306/node"
        exchange-every-seconds = 5
        exchange-rate = "64MiB"
        handoff-rate = "0"
        [machines]
        hook-url = "https://machines.example/fondaco"
        nodes-max = 9
        [log]
        filter = "debug"
        format = "json"
    "#;

    #[test]
    fn every_setting_of_the_file_reaches_the_configuration() {
        let file = ConfigurationFile::parse(WHOLE).unwrap();
        assert_eq!(
            (file.log_filter(), file.log_format()),
            (Some("debug"), Some(LogFormat::Json))
        );
        let config = file.into_config(Role::Node).unwrap();
        assert_eq!(
            (config.role, config.data_dir.as_path()),
            (Role::Node, Path::new("/var/lib/fondaco"))
        );
        assert_eq!((config.resp_listen.port(), config.http_listen.port()), (1, 2));
        assert_eq!((config.loops, config.partitions.get()), (3, 64));
        assert_eq!(config.token.as_deref(), Some("0123456789abcdef"));
        assert!(config.allow_insecure);
        assert_eq!(config.default_store.unwrap().as_str(), "cache");
        assert_eq!(config.disk_reserve_bytes, 2 << 30);
        assert_eq!(config.memory_bytes, Some(3 << 30));
        assert_eq!(config.keep_deleted, Duration::from_secs(60));
        assert_eq!(config.versioned.cache_bytes, Some(1 << 30));
        assert!(config.versioned.mysql.unwrap().starts_with("mysql://user"));
        assert_eq!(config.versioned.exchange_period, Some(Duration::from_secs(5)));
        assert_eq!(config.versioned.exchange_bytes_per_second, Some(64 << 20));
        assert_eq!(config.versioned.handoff_bytes_per_second, Some(0));
        assert_eq!(config.tls.unwrap().key, Path::new("b.pem"));
        assert_eq!(config.users[0].stores, ["pymk", "feature-*"]);
        assert_eq!(config.users[0].writes, ["cart-*"]);
        assert!(!config.users[0].admin);
        let member = config.member;
        assert_eq!((member.id, member.weight), (NodeId::new(3), 2));
        assert_eq!((member.zone.as_str(), member.group.as_deref()), ("a", Some("first")));
        assert_eq!(member.resp_advertised.as_deref(), Some("node-3.example:1"));
        assert_eq!(member.http_advertised.as_deref(), Some("node-3.example:2"));
        let cluster = config.cluster;
        assert_eq!(
            (cluster.placement, cluster.replicas, cluster.nodes_initial),
            (Placement::Zoned, 2, 5)
        );
        let peers = config.peers;
        assert_eq!(
            (peers.user.as_deref(), peers.password.as_deref()),
            (Some("node"), Some("peer-password"))
        );
        assert_eq!(peers.certificates.as_deref(), Some(Path::new("peers.pem")));
        let zookeeper = config.zookeeper.unwrap();
        assert_eq!(zookeeper.connect, "zk-1:2181,zk-2:2181");
        assert_eq!(zookeeper.root, "/fondaco/production");
        assert_eq!(zookeeper.session_timeout, Duration::from_secs(4));
        assert_eq!(zookeeper.auth.as_deref(), Some("fondaco:secret"));
        assert_eq!(config.machines.unwrap().settings.nodes_max, 9);
        assert_eq!(zookeeper.ca.as_deref(), Some(Path::new("zk-ca.pem")));
        let identity = zookeeper.identity.unwrap();
        assert_eq!(
            (identity.certificate.as_path(), identity.key.as_path()),
            (Path::new("zk.pem"), Path::new("zk-key.pem"))
        );
    }

    #[test]
    fn a_certificate_for_zookeeper_needs_its_key_and_authorities() {
        let refused = |lines: &str| {
            let text = format!("[zookeeper]\nconnect = \"a\"\n{lines}");
            let file = ConfigurationFile::parse(&text).unwrap();
            file.into_config(Role::Router).unwrap_err().to_string()
        };
        assert!(refused("ca = \"c\"\ncertificate = \"a\"").contains("both or neither"));
        assert!(refused("certificate = \"a\"\nkey = \"b\"").contains("set ca"));
    }

    #[test]
    fn an_unknown_word_is_refused() {
        for text in ["data = \"x\"\npartitons = 3", "[cluster]\npartitons = 3"] {
            let error = ConfigurationFile::parse(text).unwrap_err();
            assert!(error.to_string().contains("partitons"), "{error}");
        }
    }

    #[test]
    fn only_roles_that_hold_data_need_a_directory() {
        let file = || ConfigurationFile::parse("http = \"127.0.0.1:0\"").unwrap();
        let error = file().into_config(Role::Node).unwrap_err().to_string();
        assert!(error.contains("--data"), "{error}");
        assert!(file().into_config(Role::Router).is_ok());
        assert!(file().into_config(Role::Controller).is_ok());
    }

    #[test]
    fn a_controller_keeps_its_directory_and_a_router_has_none() {
        let data = |role| {
            let file = ConfigurationFile::parse("data = \"/var/lib/fondaco\"").unwrap();
            file.into_config(role).unwrap().data_dir
        };
        assert_eq!(data(Role::Controller), Path::new("/var/lib/fondaco"));
        assert_eq!(data(Role::Router), Path::new(""));
    }

    #[test]
    fn the_interval_of_anti_entropy_is_bounded() {
        let config = |seconds: u64| {
            let text = format!("data = \"x\"\n[versioned]\nexchange-every-seconds = {seconds}");
            ConfigurationFile::parse(&text).unwrap().into_config(Role::Node)
        };
        for seconds in [0, EXCHANGE_SECONDS_MAX + 1] {
            let error = config(seconds).unwrap_err().to_string();
            assert!(error.contains("exchange-every-seconds"), "{error}");
        }
        assert!(config(EXCHANGE_SECONDS_MAX).is_ok());
    }

    #[test]
    fn flags_override_the_zookeeper_of_the_file() {
        let zookeeper = |text: &str, connect: Option<&str>, root: Option<&str>| {
            let mut file = ConfigurationFile::parse(text)?;
            file.override_zookeeper(connect.map(str::to_owned), root.map(str::to_owned))?;
            anyhow::Ok(file.zookeeper.map(|zookeeper| (zookeeper.connect, zookeeper.root)))
        };
        let found = |connect: &str, root: &str| Some((connect.to_owned(), root.to_owned()));
        let file = "[zookeeper]\nconnect = \"a:1\"\nroot = \"/a\"";
        assert_eq!(zookeeper(file, None, None).unwrap(), found("a:1", "/a"));
        assert_eq!(zookeeper(file, Some("b:1"), None).unwrap(), found("b:1", "/a"));
        assert_eq!(zookeeper(file, None, Some("/b")).unwrap(), found("a:1", "/b"));
        assert_eq!(zookeeper("", Some("b:1"), None).unwrap(), found("b:1", "/fondaco"));
        assert_eq!(zookeeper("", None, None).unwrap(), None);
        assert!(zookeeper("", None, Some("/b")).is_err());
    }
}
