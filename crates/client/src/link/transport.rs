//! Making connections, plain or over TLS, and single calls over them.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fondaco_resp::{Limits, Protocol, Reply, ReplyItem, ReplyItems, ReplyParse, parse_reply};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use fondaco_protocol::in_words;
use fondaco_protocol::proof::{self, DEFAULT_USER, End, Introduction, ProofKey};

/// The client's identity towards the nodes.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// How connections are made, and how many.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) connections_per_node: usize,
    pub(crate) in_flight_max: usize,
    pub(crate) connect_timeout: Duration,
    /// How long a node that owes answers may be silent before it is probed.
    pub(crate) silence: Duration,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) limits: Limits,
    /// The protocol that requests are written in: the one in force in the present topology.
    pub(crate) protocol: AtomicU32,
    /// Whether the client's tasks run in the local set in which it was made.
    pub(crate) is_local: bool,
    /// The runtime in which the client was made, which runs its tasks otherwise.
    pub(crate) runtime: Option<Handle>,
}

/// A connection, plain or over TLS.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Runs a background task. A local client runs it on the local set of the requests. Other clients run it on the
    /// runtime in which they were made, even if requests are made in another one.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match &self.runtime {
            _ if self.is_local => tokio::task::spawn_local(task),
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }
    }

    /// Connects to a node, authenticates, and waits until it answers.
    pub(crate) async fn connect(&self, address: &str) -> io::Result<Stream> {
        let connected = tokio::time::timeout(self.connect_timeout, self.introduce(address)).await;
        connected.unwrap_or_else(|_| {
            let waited = self.connect_timeout.as_millis();
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {waited} ms"),
            ))
        })
    }

    async fn introduce(&self, address: &str) -> io::Result<Stream> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let mut stream = match &self.tls {
            None => Stream::Plain(tcp),
            Some(config) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(host).map_err(io::Error::other)?;
                let connector = TlsConnector::from(Arc::clone(config));
                Stream::Tls(Box::new(connector.connect(name, tcp).await.map_err(in_words)?))
            }
        };
        if let Some(Credentials { user, password }) = &self.credentials {
            let user = user.as_deref().unwrap_or(DEFAULT_USER).as_bytes();
            self.prove(&mut stream, address, user, password.as_bytes()).await?;
        }
        call(&mut stream, &[b"PING"], &self.limits).await?;
        Ok(stream)
    }
}

impl Transport {
    /// Proves knowledge of the user's password to a server, and has the server prove the same.
    async fn prove(&self, stream: &mut Stream, address: &str, user: &[u8], password: &[u8]) -> io::Result<()> {
        let challenge: &[&[u8]] = &[b"FONDACO.NONCE"];
        let (reply, items) = call(stream, challenge, &self.limits).await?;
        let Some([server_nonce, advertised]) = first_bulks(&reply, &items) else {
            return Err(io::Error::other(
                "the answer is not a challenge: is this a fondaco of the same version?",
            ));
        };
        // With TLS it has shown a certificate for the connected name.
        if self.tls.is_none() && advertised != address.as_bytes() {
            let advertised = String::from_utf8_lossy(advertised);
            return Err(io::Error::other(format!(
                "the server at {address} calls itself {advertised:?}: connect by that name, or over TLS"
            )));
        }
        let client_nonce = proof::nonce().map_err(|_| io::Error::other("the system provides no random numbers"))?;
        let introduction = Introduction {
            server_nonce,
            client_nonce: client_nonce.as_bytes(),
            address: advertised,
            user,
        };
        let key = ProofKey::of_password(password);
        let own = key.prove(End::Client, &introduction);
        let arguments = [b"FONDACO.PROVE", user, client_nonce.as_bytes(), own.as_bytes()];
        let (answer, items) = call(stream, &arguments, &self.limits).await?;
        match items[..] {
            [ReplyItem::Bulk(ref place)] if key.verifies(End::Server, &introduction, &answer[place.range()]) => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "the server at {address} does not know the password of the user: it is not a node of this cluster"
                ),
            )),
        }
    }
}

/// Sends one command over a connection that nothing else uses. Returns the reply and its items.
///
/// # Errors
/// The connection breaks, or the node answers with an error, which becomes the message.
pub(crate) async fn call(
    stream: &mut Stream,
    arguments: &[&[u8]],
    limits: &Limits,
) -> io::Result<(Bytes, Vec<ReplyItem>)> {
    let mut request = Vec::new();
    let mut writer = Reply::new(&mut request, Protocol::Resp2);
    writer.array(arguments.len());
    arguments.iter().for_each(|argument| writer.bulk(argument));
    stream.write_all(&request).await?;
    stream.flush().await?;
    let (mut input, mut items) = (BytesMut::new(), ReplyItems::new());
    loop {
        match parse_reply(&input, limits, &mut items).map_err(io::Error::other)? {
            ReplyParse::Complete { consumed } => {
                let reply = input.split_to(consumed).freeze();
                if let [ReplyItem::Error(place)] = items.as_slice() {
                    let message = String::from_utf8_lossy(&reply[place.range()]);
                    return Err(io::Error::other(message.into_owned()));
                }
                return Ok((reply, items.as_slice().to_vec()));
            }
            ReplyParse::Incomplete { .. } => {}
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The elements of a reply that is an array of `N` strings; `None` for any other reply.
pub(crate) fn first_bulks<'a, const N: usize>(reply: &'a Bytes, items: &[ReplyItem]) -> Option<[&'a [u8]; N]> {
    let (ReplyItem::Array(length), elements) = items.split_first()? else {
        return None;
    };
    if *length as usize != N || elements.len() != N {
        return None;
    }
    let mut found = [&[][..]; N];
    for (found, element) in found.iter_mut().zip(elements) {
        let ReplyItem::Bulk(place) = element else { return None };
        *found = &reply[place.range()];
    }
    Some(found)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
