//! The upload of a version: to a node, over its control port, file by file.
//!
//! The node reports how much of each file it has, so an interrupted upload resumes where it stopped, in this job or
//! in the next one. A lost connection is retried until nothing has arrived for [`PATIENCE`].

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fondaco_admin::{AdminError, Client};
use fondaco_api::{NodeList, NodeStatus, Role, UploadFileResource, UploadResource};
use fondaco_format::{MANIFEST_FILE, Manifest};
use fondaco_model::StoreName;
use serde::Serialize;

use crate::error::PushError;
use crate::observer::{Job, Note, Progress, Step};

/// The size of the first request, in bytes. The data of a request is durable when the node answers.
const PIECE_BYTES_FIRST: u64 = 1 << 20;

/// The smallest request, over a slow connection, in bytes.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// The largest request, over a fast connection, in bytes.
const PIECE_BYTES_MAX: u64 = 8 << 20;

/// The target duration of a request: the next one is larger after a faster one, and smaller after one that took several
/// times as long.
const PIECE_TIME: Duration = Duration::from_secs(1);

/// How long an upload may go without progress before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two attempts.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How often files may arrive with a wrong checksum before an upload fails.
const CORRUPT_MAX: u32 = 2;

/// Codes of transient errors: the node is absent or busy, or its size of the received file differs.
const PASSING: [&str; 6] = [
    "unreachable",
    "unavailable",
    "overloaded",
    "busy",
    "upload_busy",
    "wrong_offset",
];

/// The result of an upload, as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct UploadResult {
    /// The source for the push.
    pub source: String,
    /// The size of all files.
    pub bytes_total: u64,
    /// The bytes that this job sent.
    pub bytes_sent: u64,
    /// The bytes that had arrived before.
    pub bytes_resumed: u64,
}

/// Refuses a process without storage before anything is built for it.
pub(crate) fn check(client: &Client, status: &NodeStatus) -> Result<(), PushError> {
    let role = match status.role {
        Role::Single | Role::Node => return Ok(()),
        Role::Router => "router",
        Role::Controller => "controller",
    };
    let nodes: NodeList = client.get("/v1/nodes")?;
    let live = nodes.nodes.iter().filter(|node| node.live);
    let live: Vec<&str> = live.map(|node| node.http.as_str()).collect();
    Err(PushError::Unfit(format!(
        "{} is a {role}, which has no storage: upload to a node, --http {}",
        client.address(),
        live.join(" or ")
    )))
}

/// Sends the files of a version in a directory to the node, except the parts that the node already has.
pub(crate) fn send(client: &Client, name: &StoreName, dir: &Path, job: Job<'_>) -> Result<UploadResult, PushError> {
    let path = dir.join(MANIFEST_FILE);
    let manifest = fs::read(&path).map_err(PushError::file_with("read", &path, ": is it a version?"))?;
    let mut sending = Sending {
        client,
        path: format!("/v1/stores/{name}/uploads"),
        dir,
        manifest,
        job,
        step: job.step(),
        began: Instant::now(),
        moved_at: Instant::now(),
        piece_bytes: PIECE_BYTES_FIRST,
        sent: 0,
        corrupt: 0,
        arrived: 0,
        total: 0,
    };
    sending.run().map(|(upload, resumed)| UploadResult {
        source: upload.source,
        bytes_total: upload.bytes_total,
        bytes_sent: sending.sent,
        bytes_resumed: resumed,
    })
}

/// Asks the node to delete the uploaded files of the version. If it cannot be reached, it deletes them later on its
/// own.
pub(crate) fn give_up(client: &Client, name: &StoreName, dir: &Path) {
    if let Ok((_, id)) = Manifest::read_identified(dir) {
        let _ = client.delete(&format!("/v1/stores/{name}/uploads/{id}"));
    }
}

/// A running upload.
struct Sending<'a> {
    client: &'a Client,
    /// The path of the store's uploads on the control port.
    path: String,
    dir: &'a Path,
    manifest: Vec<u8>,
    job: Job<'a>,
    step: Step<'a>,
    began: Instant,
    /// When the node last received more data.
    moved_at: Instant,
    /// The size of the next request.
    piece_bytes: u64,
    /// How many bytes this job has sent.
    sent: u64,
    /// How many files arrived with a wrong checksum.
    corrupt: u32,
    /// How many bytes the node has, out of the total.
    arrived: u64,
    total: u64,
}

impl Sending<'_> {
    /// Sends everything that is missing. Also returns how many bytes the node had before.
    fn run(&mut self) -> Result<(UploadResource, u64), PushError> {
        let mut resumed = None;
        let mut noted_at = None;
        loop {
            match self.try_once(&mut resumed) {
                Ok(upload) => return Ok((upload, resumed.unwrap_or(0))),
                Err(error) if self.job.is_cancelled() => return Err(error),
                Err(error) if error.code() == "upload_corrupt" && self.corrupt < CORRUPT_MAX => {
                    self.corrupt += 1;
                    self.job.note(Note::UploadCorrupt(&error));
                }
                Err(error) if is_passing(&error) && self.moved_at.elapsed() < PATIENCE => {
                    if noted_at.replace(self.moved_at) != Some(self.moved_at) {
                        self.job.note(Note::UploadRetried(&error));
                    }
                    std::thread::sleep(RETRY_AFTER);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn try_once(&mut self, resumed: &mut Option<u64>) -> Result<UploadResource, PushError> {
        loop {
            let upload: UploadResource = self.client.post_bytes_for(&self.path, &self.manifest)?;
            if upload.bytes_arrived > self.arrived {
                self.moved_at = Instant::now();
            }
            (self.arrived, self.total) = (upload.bytes_arrived, upload.bytes_total);
            resumed.get_or_insert(upload.bytes_arrived);
            if upload.complete {
                return Ok(upload);
            }
            let files = format!("{}/{}/files", self.path, upload.id);
            for file in upload.files.iter().filter(|file| !file.complete) {
                self.send_file(&files, file)?;
            }
        }
    }

    fn send_file(&mut self, files: &str, file: &UploadFileResource) -> Result<(), PushError> {
        let path = self.dir.join(&file.name);
        let local = File::open(&path).map_err(PushError::file("open", &path))?;
        let found = local
            .metadata()
            .map_err(PushError::file("read the metadata of", &path))?
            .len();
        if found != file.bytes {
            return Err(PushError::Damaged(format!(
                "{path:?} has {found} bytes, but its manifest says {}: build the version again",
                file.bytes
            )));
        }
        let mut answer = file.clone();
        while !answer.complete {
            if self.job.is_cancelled() {
                let text = "interrupted: to resume, run fondaco deploy with --upload for the same version";
                return Err(PushError::Cancelled(text.to_owned()));
            }
            let offset = answer.bytes_arrived;
            let mut piece = vec![0; self.piece_bytes.min(file.bytes - offset) as usize];
            local
                .read_exact_at(&mut piece, offset)
                .map_err(PushError::file("read", &path))?;
            let target = format!("{files}/{}?offset={offset}", file.name);
            answer = self.put(&target, &piece)?;
            self.sent += piece.len() as u64;
            self.arrived += piece.len() as u64;
            self.show();
        }
        Ok(())
    }

    /// Sends a piece, and sets the size of the next one from the time that this one took.
    fn put(&mut self, target: &str, piece: &[u8]) -> Result<UploadFileResource, AdminError> {
        let began = Instant::now();
        let answer = self.client.put_bytes(target, piece);
        let took = began.elapsed();
        self.piece_bytes = match answer {
            Ok(_) if took < PIECE_TIME => (self.piece_bytes * 2).min(PIECE_BYTES_MAX),
            Ok(_) if took < 4 * PIECE_TIME => self.piece_bytes,
            Ok(_) | Err(_) => (self.piece_bytes / 2).max(PIECE_BYTES_MIN),
        };
        if answer.is_ok() {
            self.moved_at = Instant::now();
        }
        answer
    }

    fn show(&mut self) {
        self.step.show(Progress::Uploading {
            bytes_arrived: self.arrived,
            bytes_total: self.total,
            bytes_sent: self.sent,
            elapsed: self.began.elapsed(),
        });
    }
}

/// Whether an error is transient: the connection was lost, or the node is busy.
fn is_passing(error: &PushError) -> bool {
    PASSING.contains(&error.code()) || matches!(error, PushError::Admin(AdminError::Broken { .. }))
}
