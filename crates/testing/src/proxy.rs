//! A network between a client and a server, which can be cut.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;

/// How much a connection receives before the proxy reads it.
const RECEIVE_BUFFER_BYTES: usize = 128 << 10;

/// Forwards bytes between its own port and a server's, until it is cut.
pub struct Proxy {
    address: SocketAddr,
    network: Arc<Network>,
    accepting: Option<JoinHandle<()>>,
}

struct Network {
    server: SocketAddr,
    ended: AtomicBool,
    is_cut: AtomicBool,
    is_refusing: AtomicBool,
    reply_delay_ms: AtomicU64,
    /// The rate limit of each connection, in each direction; 0 for no limit.
    bytes_per_second: AtomicU64,
    /// How many bytes the server has sent.
    reply_bytes: AtomicU64,
    /// Both ends of all connections that were not cut.
    connections: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A proxy to the server at a port of this machine.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn to(server_port: u16) -> Self {
        Self::listening_on("127.0.0.1", server_port)
    }

    /// A proxy to the server at a port of this machine's loopback address, listening on another loopback address.
    ///
    /// # Panics
    /// If it cannot listen there.
    pub fn listening_on(ip: &str, server_port: u16) -> Self {
        let listener = TcpListener::bind(format!("{ip}:0"));
        let listener = listener.unwrap_or_else(|error| panic!("cannot listen on {ip}: {error}"));
        // As in a slow network, the sender notices soon how fast its bytes move. Connections inherit it.
        let _ = SockRef::from(&listener).set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
        let address = listener.local_addr().expect("it is bound");
        let network = Arc::new(Network {
            server: (Ipv4Addr::LOCALHOST, server_port).into(),
            ended: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            is_refusing: AtomicBool::new(false),
            reply_delay_ms: AtomicU64::new(0),
            bytes_per_second: AtomicU64::new(0),
            reply_bytes: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        let accepting = {
            let network = Arc::clone(&network);
            std::thread::spawn(move || network.accept(&listener))
        };
        Self {
            address,
            network,
            accepting: Some(accepting),
        }
    }

    /// The address for clients: `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Breaks all connections, and all new ones from now on.
    pub fn cut(&self) {
        self.network.is_cut.store(true, Ordering::SeqCst);
        self.network.break_connections();
    }

    /// Breaks all connections, and answers HTTP requests on new ones with 503 from now on.
    pub fn refuse(&self) {
        self.network.is_refusing.store(true, Ordering::SeqCst);
        self.network.break_connections();
    }

    /// From now on, requests pass immediately, and replies are delayed by this time. A test that sees the effect of a
    /// request and [cuts](Self::cut) before the reply loses the reply.
    pub fn delay_replies(&self, delay: Duration) {
        let delay_ms = delay.as_millis() as u64;
        self.network.reply_delay_ms.store(delay_ms, Ordering::SeqCst);
    }

    /// From now on, each connection passes at most this number of bytes in a second, in each direction.
    pub fn limit(&self, bytes_per_second: u64) {
        self.network.bytes_per_second.store(bytes_per_second, Ordering::SeqCst);
    }

    /// How many bytes of replies have passed so far.
    pub fn reply_bytes(&self) -> u64 {
        self.network.reply_bytes.load(Ordering::SeqCst)
    }

    /// Lets new connections through again, without delay.
    pub fn heal(&self) {
        self.network.is_cut.store(false, Ordering::SeqCst);
        self.network.is_refusing.store(false, Ordering::SeqCst);
        self.delay_replies(Duration::ZERO);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.ended.store(true, Ordering::SeqCst);
        self.network.break_connections();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

impl Network {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            if self.is_refusing.load(Ordering::SeqCst) {
                std::thread::spawn(move || refuse(client));
                continue;
            }
            let Ok(server) = TcpStream::connect(self.server) else {
                continue;
            };
            // Small packets are not held back: the network delays nothing by itself.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ends = (
                client.try_clone(),
                server.try_clone(),
                client.try_clone(),
                server.try_clone(),
            );
            let (Ok(client_end), Ok(server_end), Ok(from_client), Ok(to_server)) = ends else {
                continue;
            };
            let mut connections = self.connections.lock();
            // Checked under the lock: a cut breaks the connections in the list, and this one is not in it yet.
            if self.is_cut.load(Ordering::SeqCst) {
                continue;
            }
            connections.extend([client_end, server_end]);
            let (up, down) = (Arc::clone(self), Arc::clone(self));
            std::thread::spawn(move || up.pass(from_client, to_server, false));
            std::thread::spawn(move || down.pass(server, client, true));
        }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, are_replies: bool) {
        let mut buffer = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if are_replies {
                let delay_ms = self.reply_delay_ms.load(Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(delay_ms));
                self.reply_bytes.fetch_add(length as u64, Ordering::SeqCst);
            }
            if let rate @ 1.. = self.bytes_per_second.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_nanos(length as u64 * 1_000_000_000 / rate));
            }
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        // The other direction ends as well; it may have ended before.
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    fn break_connections(&self) {
        for connection in self.connections.lock().drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Answers one HTTP request with 503.
fn refuse(mut client: TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).is_ok() {
        head.push(byte[0]);
    }
    // The client may be gone.
    let _ = client.write_all(b"HTTP/1.1 503 Slow Down\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers every byte with the next one.
    fn server() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while client.read_exact(&mut byte).is_ok() && client.write_all(&[byte[0] + 1]).is_ok() {}
                });
            }
        });
        port
    }

    fn ask(connection: &mut TcpStream) -> Option<u8> {
        let mut answer = [0];
        connection.write_all(&[7]).ok()?;
        connection.read_exact(&mut answer).ok()?;
        Some(answer[0])
    }

    #[test]
    fn a_network_passes_breaks_and_heals() {
        let proxy = Proxy::to(server());
        let mut connection = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(ask(&mut connection), Some(8));
        proxy.cut();
        assert_eq!(ask(&mut connection), None);
        assert_eq!(ask(&mut TcpStream::connect(proxy.address()).unwrap()), None);
        proxy.heal();
        assert_eq!(ask(&mut TcpStream::connect(proxy.address()).unwrap()), Some(8));
    }

    #[test]
    fn a_delayed_reply_is_lost_by_a_cut() {
        let proxy = Proxy::to(server());
        let mut connection = TcpStream::connect(proxy.address()).unwrap();
        proxy.delay_replies(Duration::from_secs(1));
        connection.write_all(&[7]).unwrap();
        proxy.cut();
        assert_eq!(connection.read(&mut [0]).unwrap_or(0), 0);
    }
}
