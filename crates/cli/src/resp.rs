//! The client of a process's RESP port.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, anyhow};
use fondaco_protocol::refused_certificate;
use redis::{ConnectionLike, IntoConnectionInfo, RedisConnectionInfo};

use crate::client::ADVICE_ON_TLS;
use crate::control_port::ControlPort;
use crate::named_tls::NamedTls;
use crate::wire;

/// The default address of the RESP port.
pub const DEFAULT: &str = "127.0.0.1:6500";
/// How long a connection may take to be made, and an answer to come.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Where the process serves HTTP whose RESP port is this one.
pub fn http_address(port: &ControlPort, resp: &str) -> anyhow::Result<String> {
    let mut connection = connect(port, resp)?;
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query(&mut *connection)
        .map_err(refused)?;
    let address = info.lines().find_map(|line| line.strip_prefix("http_address:"));
    let address = address.with_context(|| format!("{resp} does not tell its control port: give it with --http"))?;
    Ok(reachable(address.trim(), host(resp)))
}

/// Connects to a RESP port.
pub fn connect(port: &ControlPort, address: &str) -> anyhow::Result<Box<dyn ConnectionLike + Send>> {
    let failed = |error: anyhow::Error| {
        let spoken = wire::spoken_at(address).and_then(|spoken| spoken.instead_of_resp(address, port.tls.is_wanted()));
        let why = match (spoken, refused_certificate(error.as_ref())) {
            (Some(spoken), _) => spoken,
            (None, Some(reason)) => format!("{reason}; {ADVICE_ON_TLS}"),
            (None, None) => format!(
                "{error:#}; give the address with --resp or FONDACO_RESP, and your login with --user and --password"
            ),
        };
        anyhow!("cannot connect to {address}: {why}")
    };
    if let Some(path) = &port.tls.ca {
        let pem = fs::read(path).with_context(|| format!("cannot read the certificates in {path:?}"))?;
        let mut connection = NamedTls::connect(address, &pem).map_err(failed)?;
        if let Some(password) = &port.password {
            let user = port.user.as_deref();
            connection
                .authenticate(user, password)
                .map_err(|error| failed(error.into()))?;
        }
        return Ok(Box::new(connection));
    }
    let scheme = if port.tls.tls { "rediss" } else { "redis" };
    let invalid = || format!("invalid address {address:?}: use host:port");
    let info = format!("{scheme}://{address}")
        .into_connection_info()
        .with_context(invalid)?;
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = &port.user {
        login = login.set_username(user);
    }
    if let Some(password) = &port.password {
        login = login.set_password(password);
    }
    let client = redis::Client::open(info.set_redis_settings(login));
    let connection = client.and_then(|client| client.get_connection_with_timeout(TIME_MAX));
    Ok(Box::new(connection.map_err(|error| failed(error.into()))?))
}

/// The node's error message, without the text that the library adds.
pub fn refused(error: redis::RedisError) -> anyhow::Error {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => anyhow!("{code} {detail}"),
        _ => error.into(),
    }
}

/// The host of an address or a URL.
pub fn host(address: &str) -> &str {
    let address = address.split_once("://").map_or(address, |(_, address)| address);
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// An address as others reach it: all addresses of a machine are the one that it was asked at.
pub fn reachable(address: &str, host: &str) -> String {
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
