//! The configuration file of `fondaco server`: TOML, unknown keys refused.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fondaco_control::{Config, TlsConfig, UserConfig};
use serde::Deserialize;

use super::super::build::{PARTITIONS_DEFAULT, parse_bytes, partition_count};
use super::{HTTP_DEFAULT, LogFormat, RESP_DEFAULT, resolve};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ServerFile {
    data: PathBuf,
    resp: Option<String>,
    http: Option<String>,
    loops: Option<usize>,
    partitions: Option<u32>,
    token: Option<String>,
    #[serde(default)]
    allow_insecure: bool,
    disk_reserve: Option<String>,
    tls: Option<TlsSection>,
    #[serde(default)]
    users: Vec<UserSection>,
    #[serde(default)]
    log: LogSection,
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
    stores: Vec<String>,
    #[serde(default)]
    admin: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LogSection {
    filter: Option<String>,
    format: Option<LogFormat>,
}

impl ServerFile {
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

    pub(super) fn into_config(self) -> anyhow::Result<Config> {
        let mut config = Config::local(
            self.data,
            partition_count(self.partitions.unwrap_or(PARTITIONS_DEFAULT))?,
        );
        config.resp_listen = resolve(self.resp.as_deref().unwrap_or(RESP_DEFAULT))?;
        config.http_listen = resolve(self.http.as_deref().unwrap_or(HTTP_DEFAULT))?;
        config.loops = self.loops.unwrap_or(0);
        config.token = self.token;
        config.allow_insecure = self.allow_insecure;
        if let Some(reserve) = &self.disk_reserve {
            config.disk_reserve_bytes =
                parse_bytes(reserve).map_err(|reason| anyhow::anyhow!("invalid disk-reserve {reserve:?}: {reason}"))?;
        }
        config.tls = self.tls.map(|tls| TlsConfig {
            certificate: tls.certificate,
            key: tls.key,
        });
        config.users = self
            .users
            .into_iter()
            .map(|user| UserConfig {
                name: user.name,
                password_sha256: user.password_sha256,
                stores: user.stores,
                admin: user.admin,
            })
            .collect();
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_in_the_file_arrives_in_the_configuration() {
        let file = ServerFile::parse(
            r#"
            data = "/var/lib/fondaco"
            resp = "127.0.0.1:1"
            http = "127.0.0.1:2"
            loops = 3
            partitions = 64
            token = "0123456789abcdef"
            allow-insecure = true
            disk-reserve = "2GiB"
            [tls]
            certificate = "a.pem"
            key = "b.pem"
            [[users]]
            name = "reader"
            password-sha256 = "00"
            stores = ["pymk", "feature-*"]
            [log]
            filter = "debug"
            format = "json"
            "#,
        )
        .unwrap();
        assert_eq!(
            (file.log_filter(), file.log_format()),
            (Some("debug"), Some(LogFormat::Json))
        );
        let config = file.into_config().unwrap();
        assert_eq!(config.data_dir, Path::new("/var/lib/fondaco"));
        assert_eq!((config.resp_listen.port(), config.http_listen.port()), (1, 2));
        assert_eq!((config.loops, config.partitions.get()), (3, 64));
        assert_eq!(config.token.as_deref(), Some("0123456789abcdef"));
        assert!(config.allow_insecure);
        assert_eq!(config.disk_reserve_bytes, 2 << 30);
        assert_eq!(config.tls.unwrap().key, Path::new("b.pem"));
        assert_eq!(config.users[0].stores, ["pymk", "feature-*"]);
        assert!(!config.users[0].admin);
    }

    #[test]
    fn a_word_that_means_nothing_is_refused() {
        let error = ServerFile::parse("data = \"x\"\npartitons = 3").unwrap_err();
        assert!(error.to_string().contains("partitons"), "{error}");
    }
}
