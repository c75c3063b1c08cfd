//! The client of a process's RESP port.

use std::error::Error;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fondaco_protocol::refused_certificate;
use redis::{ConnectionLike, IntoConnectionInfo, RedisConnectionInfo};

use crate::client::ADVICE_ON_TLS;
use crate::endpoint::Endpoint;
use crate::error::AdminError;
use crate::named_tls::NamedTls;
use crate::port_protocol;

/// The default address of the RESP port.
pub const RESP_DEFAULT: &str = "127.0.0.1:6500";
/// How long a connection may take to be made, and an answer to come.
const TIME_MAX: Duration = Duration::from_secs(10);

/// A connection to a RESP port.
pub type Connection = Box<dyn ConnectionLike + Send>;

/// The control port of the process whose RESP port is this one.
pub(crate) fn http_address(endpoint: &Endpoint, resp: &str) -> Result<String, AdminError> {
    let mut connection = connect(endpoint, resp)?;
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query(&mut *connection)
        .map_err(refused)?;
    let address = info.lines().find_map(|line| line.strip_prefix("http_address:"));
    let address = address.ok_or_else(|| AdminError::NoControlPort {
        address: resp.to_owned(),
    })?;
    Ok(reachable(address.trim(), host(resp)))
}

/// Connects to a RESP port: `host:port`.
///
/// # Errors
/// The port cannot be reached, refuses the credentials, or has a certificate that is not trusted.
pub fn connect(endpoint: &Endpoint, address: &str) -> Result<Connection, AdminError> {
    let failed = |error: &(dyn Error + 'static)| {
        let spoken = port_protocol::spoken_at(address);
        let spoken = spoken.and_then(|spoken| spoken.instead_of_resp(address, endpoint.is_tls()));
        let reason = match (spoken, refused_certificate(error)) {
            (Some(spoken), _) => spoken,
            (None, Some(reason)) => format!("{reason}; {ADVICE_ON_TLS}"),
            (None, None) => format!(
                "{error}; give the address with --resp or FONDACO_RESP, and your login with --user and --password"
            ),
        };
        AdminError::NotConnected {
            address: address.to_owned(),
            reason,
        }
    };
    if let Some(path) = &endpoint.ca {
        let pem = fs::read(path).map_err(|source| AdminError::Certificates {
            path: path.clone(),
            source,
        })?;
        let mut connection = NamedTls::connect(address, &pem).map_err(|error| failed(&*error))?;
        if let Some(password) = &endpoint.password {
            let user = endpoint.user.as_deref();
            connection
                .authenticate(user, password)
                .map_err(|error| failed(&error))?;
        }
        return Ok(Box::new(connection));
    }
    let scheme = if endpoint.tls { "rediss" } else { "redis" };
    let info = format!("{scheme}://{address}").into_connection_info();
    let info = info.map_err(|_| AdminError::InvalidAddress {
        address: address.to_owned(),
        remedy: "use host:port",
    })?;
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = &endpoint.user {
        login = login.set_username(user);
    }
    if let Some(password) = &endpoint.password {
        login = login.set_password(password);
    }
    let client = redis::Client::open(info.set_redis_settings(login));
    let connection = client.and_then(|client| client.get_connection_with_timeout(TIME_MAX));
    Ok(Box::new(connection.map_err(|error| failed(&error))?))
}

/// The node's error message, without the text that the library adds.
pub fn refused(error: redis::RedisError) -> AdminError {
    AdminError::Command {
        message: match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            _ => error.to_string(),
        },
    }
}

/// The host of an address or a URL.
pub(crate) fn host(address: &str) -> &str {
    let address = address.split_once("://").map_or(address, |(_, address)| address);
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// An address as others reach it: all addresses of a machine are the one that it was asked at.
pub(crate) fn reachable(address: &str, host: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => format!("{host}:{}", address.port()),
        // A loopback address of another machine cannot be reached from here.
        Ok(address) if address.ip().is_loopback() && host.parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback()) => {
            format!("{host}:{}", address.port())
        }
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_address_becomes_the_host_that_was_asked() {
        assert_eq!(reachable("0.0.0.0:6500", host("http://10.0.0.7:6580")), "10.0.0.7:6500");
        assert_eq!(reachable("[::]:6500", host("box:6580")), "box:6500");
        assert_eq!(reachable("10.0.0.8:6500", "10.0.0.7"), "10.0.0.8:6500");
        assert_eq!(reachable("node-1:6500", "10.0.0.7"), "node-1:6500");
    }
}
