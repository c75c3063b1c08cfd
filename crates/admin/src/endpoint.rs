//! The way to reach a cluster: addresses, credentials and TLS.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::{AdminError, Client, resp};

/// The control port of the default address, which a node without other settings has.
const HTTP_DEFAULT: &str = "127.0.0.1:6580";

/// The default timeout of a request: longer than the node's own limit.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);

/// The way to reach a cluster: the control port or the RESP port of any process, in any role. Each of them gives the
/// address of the other port.
#[derive(Clone)]
pub struct Endpoint {
    /// The control port: `host:port`, or a URL. `None`: the process of `resp` is asked for it.
    pub http: Option<String>,
    /// The RESP port: `host:port`. `None`: the process of `http` is asked for it.
    pub resp: Option<String>,
    /// The user name at the RESP port.
    pub user: Option<String>,
    /// The password at the RESP port.
    pub password: Option<String>,
    /// The token of the control port.
    pub token: Option<String>,
    /// Whether to use TLS. A URL of `https` uses it, too.
    pub tls: bool,
    /// A PEM file with the certificates to trust in place of the system's; TLS is used then.
    pub ca: Option<PathBuf>,
    /// The timeout of one request.
    pub request_time_max: Duration,
}

impl Default for Endpoint {
    fn default() -> Self {
        Self {
            http: None,
            resp: None,
            user: None,
            password: None,
            token: None,
            tls: false,
            ca: None,
            request_time_max: REQUEST_TIME_MAX,
        }
    }
}

/// Without the credentials.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Endpoint");
        fields
            .field("http", &self.http)
            .field("resp", &self.resp)
            .field("ca", &self.ca);
        fields.finish_non_exhaustive()
    }
}

impl Endpoint {
    /// The process with this control port: `host:port`, or a URL.
    pub fn of_http(address: impl Into<String>) -> Self {
        Self {
            http: Some(address.into()),
            ..Self::default()
        }
    }

    /// Another process of the cluster, at the `host:port` of its control port.
    #[must_use]
    pub fn at(&self, address: &str) -> Self {
        let is_tls = self.http.as_ref().is_some_and(|http| http.starts_with("https://"));
        Self {
            http: Some(match is_tls {
                true => format!("https://{address}"),
                false => address.to_owned(),
            }),
            ..self.clone()
        }
    }

    /// A client of the control port. It sends no request, unless only the RESP port is known: then it asks there for the
    /// control port.
    ///
    /// # Errors
    /// The address or a certificate is invalid, or the RESP port cannot be reached.
    pub fn client(&self) -> Result<Client, AdminError> {
        Client::new(self)
    }

    /// A client of the node at this `host:port`, which was read from the cluster. Anyone with write access there could have
    /// put the address in, so requests are signed with the token, and the token itself is never sent.
    ///
    /// # Errors
    /// As for [`client`](Self::client).
    pub fn client_of_node(&self, address: &str) -> Result<Client, AdminError> {
        Client::signing(&self.at(address))
    }

    /// The RESP port: the known one, that of the process with the known control port, or the default one.
    ///
    /// # Errors
    /// The control port cannot be reached, or its process has no RESP port.
    pub fn resp_address(&self) -> Result<String, AdminError> {
        match (&self.resp, &self.http) {
            (Some(resp), _) => Ok(resp.clone()),
            (None, Some(_)) => self.client()?.resp_address(),
            (None, None) => Ok(resp::RESP_DEFAULT.to_owned()),
        }
    }

    /// Whether TLS is used.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls || self.ca.is_some()
    }

    /// The URL of the control port, without a slash at the end.
    pub(crate) fn base_url(&self) -> Result<String, AdminError> {
        let http = match (&self.http, &self.resp) {
            (Some(http), _) => http.clone(),
            (None, Some(resp)) => resp::http_address(self, resp)?,
            (None, None) => HTTP_DEFAULT.to_owned(),
        };
        match http.split_once("://") {
            Some(("http" | "https", _)) => Ok(http.trim_end_matches('/').to_owned()),
            Some(_) => Err(AdminError::InvalidAddress {
                address: http,
                remedy: "use host:port, or an http or https URL",
            }),
            None if self.is_tls() => Ok(format!("https://{http}")),
            None => Ok(format!("http://{http}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_reached_as_the_first_one() {
        let first = Endpoint {
            token: Some("t".into()),
            ..Endpoint::of_http("https://a:1")
        };
        let other = first.at("b:2");
        assert_eq!(
            (other.http.as_deref(), other.token.as_deref()),
            (Some("https://b:2"), Some("t"))
        );
        assert_eq!(Endpoint::of_http("a:1").at("b:2").http.as_deref(), Some("b:2"));
    }

    #[test]
    fn credentials_are_not_in_logs() {
        let endpoint = Endpoint {
            token: Some("secret-1".into()),
            password: Some("secret-2".into()),
            ..Endpoint::of_http("a:1")
        };
        assert!(!format!("{endpoint:?}").contains("secret"));
    }

    #[test]
    fn an_address_of_another_protocol_is_refused() {
        let refused = Endpoint::of_http("ftp://a:1").client().err().unwrap();
        assert!(matches!(refused, AdminError::InvalidAddress { .. }), "{refused}");
    }
}
