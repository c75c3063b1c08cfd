//! Pushes: rows become a version, and clusters serve it.
//!
//! - [`build`]: rows to a version in a directory;
//! - [`push`]: a build, and a deploy of its result;
//! - [`deploy`]: a built version goes to one cluster, or to several that serve it together, and is watched to its end;
//! - [`compact`]: a push of the changes that events have made on top of a hybrid store's version;
//! - [`cancel`]: the end of a push under way;
//! - [`VersionCopy`]: the files of a version on this machine, for programs that read it.
//!
//! The nodes do the work of a deploy; these functions ask for it and watch. They read no arguments, print nothing and install no
//! signal handlers: an [`Observer`] hears of the progress, and a [`CancelToken`] stops them. Each of them blocks until its job has
//! ended.
//!
//! ```no_run
//! use fondaco_admin::Endpoint;
//! use fondaco_push::{CancelToken, Clusters, Deploy, Job, Quiet, deploy};
//!
//! let (observer, cancel) = (Quiet, CancelToken::default());
//! let job = Job { observer: &observer, cancel: &cancel };
//! let clusters = Clusters::one(Endpoint::of_http("node-1:6580"));
//! let outcome = deploy(&clusters, &Deploy::new("cities".parse()?, "s3://versions/cities-7"), job)?;
//! assert!(outcome.rolled.has_swapped());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod base_version;
mod build;
mod checks;
mod cluster_deploy;
mod compact;
mod declared;
mod deploy;
mod error;
mod graph_ids;
mod observer;
mod push;
mod rollout;
mod scratch;
mod target;
mod task;
mod together;
mod topic;
mod upload;
mod version_copy;

pub use build::{
    BuildResult, Earlier, Edges, GraphResult, IncrementResult, Rows, RowsInMemory, build, partition_count,
};
pub use checks::{Checks, Sample};
pub use cluster_deploy::{Deployed, is_end};
pub use compact::{Compact, Compacted, compact};
pub use declared::declaration;
pub use deploy::{Deploy, Outcome, check_only, deploy};
pub use error::{PushError, with_causes};
pub use graph_ids::BuiltIds;
pub use observer::{CancelToken, INTERVAL, Job, Note, Observer, Progress, Quiet};
pub use push::{Push, Pushed, cancel, push};
pub use rollout::{ClusterOutcome, Clusters, Rolled, State};
pub use task::{commit_task, write_task};
pub use topic::Topic;
pub use upload::UploadResult;
pub use version_copy::{VersionCopy, manifest_at, manifest_of_current};
