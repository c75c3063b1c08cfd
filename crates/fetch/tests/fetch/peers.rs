//! Fetching from other nodes, over HTTP. The peer here answers like a node, and fails when told to.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use fondaco_fetch::{FetchError, FetchSource, PageCache, PeerClient, PeerSource, SourceError, Sources};
use fondaco_model::VersionNumber;
use fondaco_protocol::{RequestKey, SIGNED_MS_MAX, Signature, SignedRequest, TIME_HEADER};
use parking_lot::Mutex;

use crate::place::{Place, Source, Tuning, hurried};

const TOKEN: &str = "between-nodes";

/// A node that serves the files of a directory as version 7 of store `pymk`. Its threads end with the test.
struct Peer {
    address: String,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    /// How many requests are answered with 503.
    busy: AtomicU32,
    /// How many bodies end in the middle.
    cut: AtomicU32,
    /// How many answers ignore the range.
    whole: AtomicU32,
    requests: AtomicU32,
    /// The time of its clock, if that is ahead.
    clock_ms: AtomicU64,
    last_path: Mutex<String>,
}

impl Peer {
    fn of(dir: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let faults = Arc::new(Faults::default());
        let (dir, shared, own) = (dir.to_owned(), Arc::clone(&faults), address.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (dir, faults, own) = (dir.clone(), Arc::clone(&shared), own.clone());
                // A client that disconnects is not a failure of the test.
                std::thread::spawn(move || serve(stream.unwrap(), &own, &dir, &faults));
            }
        });
        Self { address, faults }
    }

    fn source(&self) -> PeerSource {
        let client = PeerClient::new(Some(TOKEN), None).unwrap();
        let version = VersionNumber::new(7).unwrap();
        client.source(&self.address, &"pymk".parse().unwrap(), version)
    }
}

fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Answers requests on one connection, until it ends.
fn serve(stream: TcpStream, own: &str, dir: &Path, faults: &Faults) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        faults.requests.fetch_add(1, Relaxed);
        let path = lines[0].split(' ').nth(1)?.to_owned();
        let header = |name: &str| {
            let found = lines.iter().find(|line| line.to_lowercase().starts_with(name))?;
            Some(found.split_once(':')?.1.trim().to_owned())
        };
        faults.last_path.lock().clone_from(&path);
        let spent = |count: &AtomicU32| count.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        assert!(!lines.concat().contains(TOKEN), "the token is sent");
        let signature: Option<Signature> = header("authorization:").and_then(|text| text.parse().ok());
        let range = header("range:").unwrap_or_default();
        let signed = SignedRequest {
            method: "GET",
            target: &path,
            recipient: own,
            range: &range,
        };
        let now_ms = faults.clock_ms.load(Relaxed).max(now_unix_ms());
        let is_ours = |signature: &Signature| RequestKey::new(TOKEN).verifies(&signed, signature);
        let is_now = |signature: &Signature| signature.unix_ms().abs_diff(now_ms) < SIGNED_MS_MAX;
        if !signature.is_some_and(|signature| is_ours(&signature) && is_now(&signature)) {
            write!(
                writer,
                "HTTP/1.1 401 Unauthorized\r\n{TIME_HEADER}: {now_ms}\r\nContent-Length: 0\r\n\r\n"
            )
            .ok()?;
            continue;
        }
        if spent(&faults.busy) {
            let busy = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n";
            writer.write_all(busy).ok()?;
            continue;
        }
        let file: PathBuf = dir.join(path.strip_prefix("/v1/stores/pymk/versions/7/files/")?);
        let Ok(bytes) = fs::read(file) else {
            writer
                .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                .ok()?;
            continue;
        };
        let range = header("range:")?;
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first >= bytes.len() {
            writer
                .write_all(b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n")
                .ok()?;
            continue;
        }
        if spent(&faults.whole) {
            write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len()).ok()?;
            writer.write_all(&bytes).ok()?;
            continue;
        }
        let last = last.min(bytes.len() - 1);
        let part = &bytes[first..=last];
        write!(
            writer,
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{}\r\nContent-Length: {}\r\n\r\n",
            bytes.len(),
            part.len()
        )
        .ok()?;
        if spent(&faults.cut) {
            writer.write_all(&part[..part.len() / 2]).ok()?;
            return None;
        }
        writer.write_all(part).ok()?;
    }
}

#[test]
fn a_version_comes_from_a_peer() {
    let (origin, place) = (Source::new(false), Place::new());
    let peer = Peer::of(origin.dir.path());
    let report = place.fetch(peer.source(), &hurried(), &Tuning::default()).unwrap();
    place.assert_whole();
    assert_eq!(report.bytes_from[0].0, peer.source().name());
    assert!(peer.faults.last_path.lock().ends_with(".index"), "indexes come last");
}

#[test]
fn a_busy_peer_is_waited_for_or_replaced_by_another() {
    let (origin, place) = (Source::new(false), Place::new());
    let peer = Peer::of(origin.dir.path());
    peer.faults.busy.store(1, Relaxed);
    let Err(SourceError::Busy { retry_after }) = peer.source().read_whole("manifest.json", 1 << 20) else {
        panic!("it is not busy");
    };
    assert_eq!(retry_after.as_secs(), 2);

    // Alone: the fetch waits for it, by a clock whose waits take no time.
    let manifest = peer.source().read_whole("manifest.json", 1 << 20).unwrap();
    assert_eq!(manifest, fs::read(origin.dir.path().join("manifest.json")).unwrap());
    let busy_after_the_manifest = BusyAfterManifest(peer.source(), Arc::clone(&peer.faults));
    place
        .fetch(busy_after_the_manifest, &hurried(), &Tuning::default())
        .unwrap();
    place.assert_whole();
    assert_eq!(peer.faults.busy.load(Relaxed), 0);

    // With another peer: the fetch does not wait.
    let (place, idle) = (Place::new(), Peer::of(origin.dir.path()));
    peer.faults.busy.store(u32::MAX, Relaxed);
    let both = [peer.source(), idle.source()].map(|source| Box::new(source) as Box<dyn FetchSource>);
    let report = place.fetch(Sources::new(both), &hurried(), &Tuning::default()).unwrap();
    place.assert_whole();
    assert_eq!(report.bytes_from[0].1, 0);
}

/// A peer that becomes busy once the manifest was read.
struct BusyAfterManifest(PeerSource, Arc<Faults>);

impl FetchSource for BusyAfterManifest {
    fn name(&self) -> String {
        self.0.name()
    }

    fn local_dir(&self) -> Option<&Path> {
        None
    }

    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError> {
        let read = self.0.read_whole(file, bytes_max);
        self.1.busy.store(5, Relaxed);
        read
    }

    fn open(&self, file: &str, offset: u64, cache: PageCache) -> Result<Box<dyn Read + Send>, SourceError> {
        self.0.open(file, offset, cache)
    }
}

#[test]
fn a_peer_that_cuts_connections_or_ignores_ranges_is_retried() {
    let (origin, place) = (Source::new(false), Place::new());
    let peer = Peer::of(origin.dir.path());
    peer.faults.cut.store(3, Relaxed);
    assert!(peer.source().read_whole("manifest.json", 1 << 20).is_err());
    peer.faults.cut.store(0, Relaxed);
    peer.faults.whole.store(1, Relaxed);
    assert!(peer.source().read_whole("manifest.json", 1 << 20).is_err());

    let broken = Source::new(false);
    peer.faults.cut.store(4, Relaxed);
    fs::copy(
        origin.dir.path().join("manifest.json"),
        broken.dir.path().join("manifest.json"),
    )
    .unwrap();
    broken.failures.store(u32::MAX, Relaxed);
    let both = [
        Box::new(Arc::clone(&broken)) as Box<dyn FetchSource>,
        Box::new(peer.source()),
    ];
    place.fetch(Sources::new(both), &hurried(), &Tuning::default()).unwrap();
    place.assert_whole();
    assert_eq!(peer.faults.cut.load(Relaxed), 0);
}

#[test]
fn a_peer_replaces_a_corrupt_source() {
    let (origin, right, place) = (Source::new(false), Source::new(false), Place::new());
    origin.corrupt(&origin.data_file());
    let peer = Peer::of(right.dir.path());
    let both = [
        Box::new(Arc::clone(&origin)) as Box<dyn FetchSource>,
        Box::new(peer.source()),
    ];
    let report = place.fetch(Sources::new(both), &hurried(), &Tuning::default()).unwrap();
    place.assert_whole();
    assert_eq!(report.corrupt.len(), 1);
    assert_eq!(report.corrupt[0].location, origin.name());
}

#[test]
fn a_corrupt_peer_is_named_and_replaced() {
    let (origin, lying, place) = (Source::new(false), Source::new(false), Place::new());
    lying.corrupt(&lying.data_file());
    let peer = Peer::of(lying.dir.path());
    let both = [
        Box::new(peer.source()) as Box<dyn FetchSource>,
        Box::new(Arc::clone(&origin)),
    ];
    let report = place.fetch(Sources::new(both), &hurried(), &Tuning::default()).unwrap();
    place.assert_whole();
    assert_eq!(report.corrupt.len(), 1);
    assert_eq!(report.corrupt[0].location, peer.source().name());
}

#[test]
fn a_wrong_token_and_a_missing_file_are_reported() {
    let origin = Source::new(false);
    let peer = Peer::of(origin.dir.path());
    let (store, version) = ("pymk".parse().unwrap(), VersionNumber::new(7).unwrap());
    let wrong = PeerClient::new(Some("wrong"), None).unwrap();
    let error = wrong
        .source(&peer.address, &store, version)
        .read_whole("manifest.json", 1 << 20)
        .unwrap_err();
    assert!(error.to_string().contains("401"), "{error}");
    let missing = peer.source().read_whole("p00099-c0000.data", 1 << 20).unwrap_err();
    assert!(matches!(missing, SourceError::Missing), "{missing}");
    let long = peer.source().read_whole("manifest.json", 10).unwrap_err();
    assert!(long.to_string().contains("more than the 10 allowed"), "{long}");
    let error = PeerClient::new(None, Some(b"no certificate")).err().unwrap();
    assert!(matches!(error, FetchError::PeerCertificates { .. }), "{error}");
}

#[test]
fn a_peer_with_a_clock_an_hour_ahead_works() {
    let origin = Source::new(false);
    let peer = Peer::of(origin.dir.path());
    peer.faults.clock_ms.store(now_unix_ms() + 3_600_000, Relaxed);
    let source = peer.source();
    let manifest = source.read_whole("manifest.json", 1 << 20).unwrap();
    assert_eq!(manifest, fs::read(origin.dir.path().join("manifest.json")).unwrap());
    let requests = peer.faults.requests.load(Relaxed);
    source.read_whole("manifest.json", 1 << 20).unwrap();
    // It has learnt the time: no further request is refused.
    assert_eq!(peer.faults.requests.load(Relaxed), requests + 1);
}

#[test]
fn requests_signed_for_one_peer_are_refused_by_another() {
    let origin = Source::new(false);
    let peer = Peer::of(origin.dir.path());
    let client = PeerClient::new(Some(TOKEN), None).unwrap();
    // The same machine under another name, like an attacker that forwards requests.
    let address = peer.address.replace("127.0.0.1", "localhost");
    let other = client.source(&address, &"pymk".parse().unwrap(), VersionNumber::new(7).unwrap());
    let error = other.read_whole("manifest.json", 1 << 20).unwrap_err();
    assert!(error.to_string().contains("401"), "{error}");
}
