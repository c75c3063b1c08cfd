//! A way to a control port on which a test sees requests before they arrive, and may lose their answers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// Whether the answer to a request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is passed on.
    Arrives,
    /// The connection is closed in its place.
    IsLost,
}

/// Passes requests to a server, after `look` has seen their bytes, piece by piece: the head comes first. Returns the address. It listens as long as the
/// process runs.
///
/// # Panics
/// If it cannot listen.
pub fn relay(server: &str, look: impl Fn(&[u8]) -> Answer + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it can listen");
    let address = listener.local_addr().expect("it is bound").to_string();
    let (server, look) = (server.to_owned(), Arc::new(look));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(&server) else {
                continue;
            };
            let look = Arc::clone(&look);
            thread::spawn(move || pass(&client, &server, &*look));
        }
    });
    address
}

/// Passes requests and answers, one after the other, until an answer is to be lost.
fn pass(client: &TcpStream, server: &TcpStream, look: &(impl Fn(&[u8]) -> Answer + Sync)) {
    let is_lost = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            copy(client, server, |bytes| {
                is_lost.fetch_or(look(bytes) == Answer::IsLost, SeqCst);
                true
            });
        });
        copy(server, client, |_| !is_lost.load(SeqCst));
    });
}

/// Passes bytes while `passes` says so. Then both connections end, and with them the other direction.
fn copy(mut from: &TcpStream, mut to: &TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut bytes = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !passes(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}
