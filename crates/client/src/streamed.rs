//! A look-up of many keys whose values are taken as they come.

use std::sync::Arc;
use std::time::Duration;

use fondaco_protocol::WireKey;

use crate::client::Inner;
use crate::driver::Run;
use crate::error::ClientError;
use crate::operation::Operation;
use crate::options::ReadOptions;
use crate::read::{BatchReply, Chunk, PinnedStore, Read};

/// How long the first answers are kept back: until then, all keys may still be read from a newer version.
const KEPT_BACK: Duration = Duration::from_millis(2);

/// The answers for many keys, which come in any order. Each key gets one, at the deadline at the latest.
///
/// ```no_run
/// # async fn example(client: fondaco_client::Client) -> Result<(), fondaco_client::ClientError> {
/// use fondaco_client::ReadOptions;
///
/// let keys: Vec<_> = (0..10_000).map(|key| ("pymk".parse().unwrap(), key.to_string())).collect();
/// let options = ReadOptions::default().within(std::time::Duration::from_millis(50));
/// let mut values = client.stream(&keys, &options).await?;
/// while let Some(chunk) = values.next().await? {
///     for (key, value) in chunk.answers {
///         println!("{}: {value:?}", keys[key].1);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Streamed {
    source: Source,
    /// Whether answers were taken.
    has_begun: bool,
}

enum Source {
    Read(Box<Run<Read>>),
    /// All answers are there.
    Whole(BatchReply),
}

impl Streamed {
    pub(crate) fn begin(inner: &Arc<Inner>, keys: Vec<WireKey>, options: &ReadOptions) -> Result<Self, ClientError> {
        let run = inner.begin(|_, env| Ok(Read::start(Arc::new(keys), options.clone(), env)?.streamed()))?;
        Ok(Self {
            source: Source::Read(Box::new(run)),
            has_begun: false,
        })
    }

    pub(crate) fn of(reply: BatchReply) -> Self {
        Self {
            source: Source::Whole(reply),
            has_begun: false,
        }
    }

    /// Waits for further answers, and takes them; `None` if all were taken before.
    ///
    /// # Errors
    /// Unless [`Partial::PerKey`](crate::Partial::PerKey) is set, any reason why one of the keys cannot be read.
    pub async fn next(&mut self) -> Result<Option<Chunk>, ClientError> {
        loop {
            let is_over = self.ready().await;
            let chunk = self.take()?;
            if is_over || chunk.as_ref().is_none_or(|chunk| !chunk.answers.is_empty()) {
                return Ok(chunk);
            }
        }
    }

    /// Waits until there are answers to take, at first only for a short time; returns whether all have come. It may be dropped
    /// at any time.
    pub async fn ready(&mut self) -> bool {
        let Source::Read(run) = &mut self.source else {
            return true;
        };
        match self.has_begun {
            true => run.until(|read| read.fresh() > 0 || read.is_over()).await,
            false => _ = tokio::time::timeout(KEPT_BACK, run.until(Read::is_over)).await,
        }
        run.operation.is_over()
    }

    /// Waits until all answers have come. Until they are taken, they count within the memory limit of their options. It may be
    /// dropped at any time.
    pub async fn over(&mut self) {
        if let Source::Read(run) = &mut self.source {
            run.until(Read::is_over).await;
        }
    }

    /// Takes the answers that have come; `None` if all were taken before. From now on the versions stay.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn take(&mut self) -> Result<Option<Chunk>, ClientError> {
        self.has_begun = true;
        let chunk = match &mut self.source {
            Source::Read(run) => {
                if let Some(error) = run.operation.failure() {
                    return Err(error.clone());
                }
                run.operation.take_fresh()
            }
            Source::Whole(reply) => Chunk {
                answers: std::mem::take(&mut reply.values).into_iter().enumerate().collect(),
                room: std::mem::take(&mut reply.room),
            },
        };
        let is_last = chunk.answers.is_empty() && self.is_over();
        Ok((!is_last).then_some(chunk))
    }

    /// Whether all answers have come.
    pub fn is_over(&self) -> bool {
        match &self.source {
            Source::Read(run) => run.operation.is_over(),
            Source::Whole(_) => true,
        }
    }

    /// The batch stores of the request, each with the version that its values are from. It may change until answers are taken.
    pub fn stores(&self) -> Vec<PinnedStore> {
        match &self.source {
            Source::Read(run) => run.operation.stores().collect(),
            Source::Whole(reply) => reply.stores.to_vec(),
        }
    }

    /// Waits for the rest: its values are those of the keys whose answers were not taken.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn finish(mut self) -> Result<BatchReply, ClientError> {
        self.over().await;
        match self.source {
            Source::Read(run) => run.operation.finish(),
            Source::Whole(reply) => Ok(reply),
        }
    }
}
