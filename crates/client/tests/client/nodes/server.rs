//! A scripted node: it speaks RESP over TCP and answers `FONDACO.READ` with values that identify their store, version
//! and key.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fondaco_protocol::Envelope;
use fondaco_protocol::proof::{End, Introduction, ProofKey};
use fondaco_protocol::replica::ReplicaRequest;
use fondaco_resp::{Arguments, Limits, Parse, Protocol, Reply, parse_request};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::replica::{self, Held};

/// It is used twice, unlike the nonces of real nodes.
const NONCE: &[u8] = b"0123456789abcdef0123456789abcdef";

/// How a node treats requests.
#[derive(Debug, Clone, Default)]
pub enum Behaviour {
    #[default]
    Answer,
    /// It answers reads one after the other, each with this delay.
    Slow(Duration),
    /// It holds the answers to reads back until its behaviour changes.
    Hold,
    /// It reads, but answers nothing, not even probes.
    Silent,
    /// It closes the connection at the first read.
    HangUp,
    /// It answers reads with these bytes, whatever they are.
    Say(&'static str),
    /// It answers keys with this prefix with this error, all others with their values.
    ErrorFor(&'static str, &'static str),
}

/// The state of a node, and the requests that it has received.
#[derive(Debug, Default)]
pub struct State {
    pub behaviour: Behaviour,
    /// The versions of each store that are open.
    pub open: BTreeMap<String, BTreeSet<u64>>,
    /// The numbers of stores, where they matter.
    pub numbers: BTreeMap<String, u16>,
    /// Its data of versioned stores.
    pub held: Held,
    pub password: Option<&'static str>,
    /// The address that it advertises.
    pub calls_itself: String,
    /// Whether it accepts every client, and claims to know the password.
    pub is_impostor: bool,
    /// All requests that arrived before the client had authenticated.
    pub introductions: Vec<Vec<String>>,
    /// Its answer about the cluster: a tag and JSON.
    pub topology: Option<(String, String)>,
    pub reads: Vec<Seen>,
    pub topology_questions: usize,
    pub connections: usize,
    /// How often it received data.
    pub receptions: usize,
}

/// A read that a node has received.
#[derive(Debug, Clone)]
pub struct Seen {
    pub store_id: u16,
    pub version: u64,
    pub timeout_ms: u64,
    pub store: String,
    pub keys: Vec<String>,
}

pub struct Node {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    tls: Option<TlsAcceptor>,
    task: Option<JoinHandle<()>>,
}

impl Node {
    pub async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut node = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
            tls,
            task: None,
        };
        node.state(|state| state.calls_itself = node.address.to_string());
        node.serve(listener);
        node
    }

    fn serve(&mut self, listener: TcpListener) {
        let (state, tls) = (Arc::clone(&self.state), self.tls.clone());
        self.task = Some(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                state.lock().connections += 1;
                connections.spawn(connection(stream, tls.clone(), Arc::clone(&state)));
            }
        }));
    }

    /// Ends the node: its connections break, and new ones are refused.
    pub async fn kill(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    /// Starts it again, at the same address.
    pub async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serve(listener);
    }

    pub fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock())
    }

    pub fn behave(&self, behaviour: Behaviour) {
        self.state(|state| state.behaviour = behaviour);
    }

    /// How many reads it has received.
    pub fn reads(&self) -> usize {
        self.state(|state| state.reads.len())
    }
}

/// The value of a key in a version.
pub fn value(store: &str, version: u64, key: &str) -> String {
    format!("{store}/{version}/{key}")
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, state: Arc<Mutex<State>>) {
    match tls {
        None => serve(stream, state).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, state).await;
            }
        }
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<Mutex<State>>) {
    let (mut input, mut arguments) = (Vec::new(), Arguments::new());
    let mut authenticated = state.lock().password.is_none();
    loop {
        while let Ok(Parse::Complete { consumed }) = parse_request(&input, &Limits::default(), &mut arguments) {
            let words: Vec<String> = arguments
                .iter(&input)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            if let Some(command) = replica::command(&words[0]) {
                let arguments = arguments.iter(&input).skip(1).map(bytes::Bytes::copy_from_slice);
                let request = ReplicaRequest::parse(command, arguments).unwrap();
                input.drain(..consumed);
                let reply = {
                    let mut state = state.lock();
                    match state.behaviour {
                        Behaviour::Silent => continue,
                        _ => state.held.answer(request),
                    }
                };
                let mut output = Vec::new();
                reply.write(&mut Reply::new(&mut output, Protocol::Resp2));
                if stream.write_all(&output).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
                continue;
            }
            input.drain(..consumed);
            let behaviour = || state.lock().behaviour.clone();
            while words[0] == "FONDACO.READ" && matches!(behaviour(), Behaviour::Hold) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let behaviour = behaviour();
            let mut output = Vec::new();
            match &behaviour {
                Behaviour::Silent => continue,
                Behaviour::Slow(pause) if words[0] == "FONDACO.READ" => tokio::time::sleep(*pause).await,
                Behaviour::HangUp if words[0] == "FONDACO.READ" => return,
                _ => {}
            }
            answer(&words, &behaviour, &mut authenticated, &state, &mut output);
            if stream.write_all(&output).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
        input.reserve(64 * 1024);
        if !matches!(stream.read_buf(&mut input).await, Ok(1..)) {
            return;
        }
        state.lock().receptions += 1;
    }
}

fn answer(
    words: &[String],
    behaviour: &Behaviour,
    authenticated: &mut bool,
    state: &Mutex<State>,
    output: &mut Vec<u8>,
) {
    let mut state = state.lock();
    let mut reply = Reply::new(output, Protocol::Resp2);
    if !*authenticated {
        state.introductions.push(words.to_vec());
    }
    match words[0].as_str() {
        "FONDACO.NONCE" => {
            reply.array(2);
            reply.bulk(NONCE);
            reply.bulk(state.calls_itself.as_bytes());
        }
        "FONDACO.PROVE" => {
            let introduction = Introduction {
                server_nonce: NONCE,
                client_nonce: words[2].as_bytes(),
                address: state.calls_itself.as_bytes(),
                user: words[1].as_bytes(),
            };
            let key = ProofKey::of_password(state.password.unwrap_or_default().as_bytes());
            *authenticated = key.verifies(End::Client, &introduction, words[3].as_bytes());
            match *authenticated || state.is_impostor {
                true => reply.bulk(key.prove(End::Server, &introduction).as_bytes()),
                false => reply.error("WRONGPASS invalid username-password pair or user is disabled."),
            }
        }
        _ if !*authenticated => reply.error("NOAUTH Authentication required."),
        "PING" => reply.simple("PONG"),
        "FONDACO.TOPOLOGY" => {
            state.topology_questions += 1;
            match &state.topology {
                None => reply.error("CLUSTERDOWN this node knows of no cluster yet: ask again in a moment"),
                Some((tag, _)) if words.get(1) == Some(tag) => reply.null(),
                Some((tag, json)) => {
                    reply.array(2);
                    reply.bulk(tag.as_bytes());
                    reply.bulk(json.as_bytes());
                }
            }
        }
        "FONDACO.READ" => {
            let seen = Seen {
                timeout_ms: Envelope::parse(words[1].as_bytes()).unwrap().timeout_ms.unwrap(),
                store_id: words[2].parse().unwrap(),
                version: words[3].parse().unwrap(),
                store: words[4].clone(),
                keys: words[5..].to_vec(),
            };
            read(&seen, behaviour, &state, &mut reply);
            state.reads.push(seen);
        }
        other => panic!("{other} is not a request of a client"),
    }
}

fn read(seen: &Seen, behaviour: &Behaviour, state: &State, reply: &mut Reply<'_>) {
    if let Behaviour::Say(bytes) = behaviour {
        reply.buffer.extend_from_slice(bytes.as_bytes());
        return;
    }
    if state
        .numbers
        .get(&seen.store)
        .is_some_and(|&number| number != seen.store_id)
    {
        return reply.error(&format!("VERSIONGONE store {} is another store here", seen.store_id));
    }
    let open = state.open.get(&seen.store);
    if !open.is_some_and(|open| open.contains(&seen.version)) {
        return reply.error(&format!("VERSIONGONE version {} is not open here", seen.version));
    }
    reply.array(seen.keys.len());
    for key in &seen.keys {
        match behaviour {
            Behaviour::ErrorFor(prefix, error) if key.starts_with(prefix) => reply.error(error),
            _ if key.starts_with("absent") => reply.null(),
            _ => reply.bulk(value(&seen.store, seen.version, key).as_bytes()),
        }
    }
}
