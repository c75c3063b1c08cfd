//! The address of a registry of schemas outside of the cluster.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text_form::stored_as_text;

/// One or more addresses of a registry: `http://HOST:PORT`, with a path if the registry has one, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RegistryAddress(Vec<String>);

/// The text names no registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown address of a registry {found:?}: use http://HOST:PORT, with a path if it has one, and more after commas"
)]
pub struct RegistryAddressError {
    /// The text.
    pub found: String,
}

/// The most addresses of a registry.
const ADDRESSES_MAX: usize = 16;

impl RegistryAddress {
    /// The URLs, without a slash at the end, in the order in which they are asked.
    pub fn urls(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for RegistryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl FromStr for RegistryAddress {
    type Err = RegistryAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let urls: Option<Vec<String>> = text.split(',').map(url).collect();
        let urls = urls.filter(|urls| urls.len() <= ADDRESSES_MAX);
        let found = || RegistryAddressError { found: text.to_owned() };
        urls.map(Self).ok_or_else(found)
    }
}

/// One address; those after the first may leave out `http://`.
fn url(text: &str) -> Option<String> {
    let text = text.trim_end_matches('/');
    let rest = text.strip_prefix("http://").unwrap_or(text);
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = address.rsplit_once(':')?;
    let is_plain = |text: &str| {
        text.chars()
            .all(|character| character.is_ascii_graphic() && !"@?#%\\".contains(character))
    };
    let is_one = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) && is_plain(host) && is_plain(path);
    is_one.then(|| format!("http://{rest}"))
}

stored_as_text!(RegistryAddress, RegistryAddressError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_urls() {
        for (text, urls) in [
            ("http://r:8081", &["http://r:8081"][..]),
            ("http://r:8081/", &["http://r:8081"]),
            ("http://[::1]:80/apis/ccompat/v7", &["http://[::1]:80/apis/ccompat/v7"]),
            (
                "http://a:1,b:2,http://c:3/x",
                &["http://a:1", "http://b:2", "http://c:3/x"],
            ),
        ] {
            let address: RegistryAddress = text.parse().unwrap();
            assert_eq!(address.urls(), urls);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for text in [
            "",
            "http://r",
            "https://r:8081",
            "http://:1",
            "http://r:0",
            "http://r:1,",
            "http://u:p@r:1",
            "http://r:1/?a",
            "http://r:1/a b",
        ] {
            let error = text.parse::<RegistryAddress>().unwrap_err();
            assert!(error.to_string().contains("http://HOST:PORT"), "{error}");
        }
    }
}
