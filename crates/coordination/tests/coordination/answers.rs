//! A network to a ZooKeeper that can keep back the answers to requests, but passes those to pings.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The network. Its threads end with the process.
pub struct Answers {
    address: SocketAddr,
    are_kept: Arc<AtomicBool>,
}

impl Answers {
    /// A network to the server at a port of this machine.
    pub fn of(server_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let are_kept = Arc::new(AtomicBool::new(false));
        let kept = Arc::clone(&are_kept);
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)).unwrap();
                let (mut requests, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    let _ = io::copy(&mut requests, &mut to_server);
                    let _ = to_server.shutdown(Shutdown::Both);
                });
                std::thread::spawn(move || {
                    // Either side may close the connection at any time.
                    let _ = pass(&mut server, &mut client, &kept);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, are_kept }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on, answers to requests are lost, or pass again.
    pub fn keep_back(&self, is_kept: bool) {
        self.are_kept.store(is_kept, Ordering::SeqCst);
    }
}

/// Passes frames: the length in four bytes, then the body. The first one of a connection tells the session; the body of
/// each other begins with the number of its request, which is negative for pings and notifications.
fn pass(server: &mut TcpStream, client: &mut TcpStream, are_kept: &AtomicBool) -> io::Result<()> {
    let mut is_first = true;
    loop {
        let mut length = [0; 4];
        server.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        server.read_exact(&mut body)?;
        let is_request = !std::mem::take(&mut is_first) && body[0] < 0x80;
        if !(is_request && are_kept.load(Ordering::SeqCst)) {
            client.write_all(&length)?;
            client.write_all(&body)?;
        }
    }
}
