//! How to reach ZooKeeper.

use std::fmt;
use std::time::Duration;

use super::tls::ZooKeeperTls;
use crate::error::CoordinationError;
use crate::path::EntryPath;

/// How to reach ZooKeeper, and where in it the entries are.
#[derive(Clone)]
pub struct ZooKeeperSettings {
    /// Its servers: `host:port`, separated by commas. One of them is enough.
    pub servers: String,
    /// The ZooKeeper path below which the entries are, such as `/fondaco/main`. It is created if needed.
    pub root: String,
    /// How long ZooKeeper waits for a silent process before it deletes its ephemeral entries. ZooKeeper has bounds for
    /// it: by default 2 to 20 of its ticks of 2 s.
    pub session_timeout_ms: u64,
    /// How long a call waits for an answer.
    pub call_timeout_ms: u64,
    /// A user and a password, as `user:password`. With them, only this user can read and write entries; without, every
    /// client that reaches ZooKeeper can.
    pub digest: Option<String>,
    /// How its servers are reached by TLS; without it they are reached in plain text.
    pub tls: Option<ZooKeeperTls>,
}

impl ZooKeeperSettings {
    /// These servers and this root; sessions of 10 s, calls of 15 s, no password and no TLS.
    pub fn new(servers: impl Into<String>, root: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            root: root.into(),
            session_timeout_ms: 10_000,
            call_timeout_ms: 15_000,
            digest: None,
            tls: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), CoordinationError> {
        let refuse = |setting, value: &str, demand| {
            let value = value.to_owned();
            Err(CoordinationError::InvalidSetting { setting, value, demand })
        };
        if !self.servers.split(',').all(is_server) {
            return refuse("servers", &self.servers, "host:port, several with commas between them");
        }
        let below = self.root.strip_prefix('/');
        if below.is_none_or(|below| below.parse::<EntryPath>().is_err()) {
            return refuse("root", &self.root, "a path such as /fondaco/main");
        }
        for (setting, value) in [
            ("session_timeout_ms", self.session_timeout_ms),
            ("call_timeout_ms", self.call_timeout_ms),
        ] {
            if !(100..=3_600_000).contains(&value) {
                return refuse(setting, &value.to_string(), "100 to 3600000");
            }
        }
        match &self.digest {
            Some(digest) if !digest.contains(':') => refuse("digest", "(hidden)", "user:password"),
            _ => Ok(()),
        }
    }

    pub(super) fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.session_timeout_ms)
    }

    pub(super) fn call_timeout(&self) -> Duration {
        Duration::from_millis(self.call_timeout_ms)
    }
}

fn is_server(server: &str) -> bool {
    let plain = |text: &str| !text.is_empty() && !text.contains(['/', ' ', '@']);
    match server.rsplit_once(':') {
        Some((host, port)) => plain(host) && port.parse::<u16>().is_ok_and(|port| port > 0),
        None => plain(server),
    }
}

impl fmt::Debug for ZooKeeperSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperSettings")
            .field("servers", &self.servers)
            .field("root", &self.root)
            .field("session_timeout_ms", &self.session_timeout_ms)
            .field("call_timeout_ms", &self.call_timeout_ms)
            .field("digest", &self.digest.as_ref().map(|_| "(hidden)"))
            .field("tls", &self.tls)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let good = ZooKeeperSettings::new("a:2181,b:2181,[::1]:2181,c", "/fondaco/main");
        good.check().unwrap();
        let broken = |change: fn(&mut ZooKeeperSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert!(broken(|s| s.servers = "a:2181,".to_owned()).contains("servers"));
        assert!(broken(|s| s.servers = "a:0".to_owned()).contains("servers"));
        assert!(broken(|s| s.servers = "a:2181/fondaco".to_owned()).contains("servers"));
        assert!(broken(|s| s.root = "fondaco".to_owned()).contains("root"));
        assert!(broken(|s| s.root = "/".to_owned()).contains("root"));
        assert!(broken(|s| s.session_timeout_ms = 0).contains("session_timeout_ms"));
        assert!(broken(|s| s.call_timeout_ms = 0).contains("call_timeout_ms"));
    }

    #[test]
    fn a_password_is_never_shown() {
        let mut settings = ZooKeeperSettings::new("a", "/b");
        settings.digest = Some("secret".to_owned());
        let shown = format!("{settings:?} {}", settings.check().unwrap_err());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
