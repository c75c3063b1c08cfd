//! Checks a push before it begins: reads the manifest at the source and compares it with the cluster.

use std::path::PathBuf;
use std::sync::Arc;

use fondaco_api::DryRunResource;
use fondaco_cluster::Operator;
use fondaco_decisions::operator::{OperatorError, PushTerms, check_base, check_space_quota};
use fondaco_fetch::{FetchError, FetchPlan, FetchSource, FetchTarget, SourceError, Sources};
use fondaco_format::{Checksum, FormatError, MANIFEST_FILE, Manifest, protocol_of};
use fondaco_model::cluster::{ClusterView, StoreRecord, VersionDetail};
use fondaco_model::{NodeId, PartitionCount, PartitionSet, StoreName};
use fondaco_schema::Schema;

use crate::config::KafkaConfig;
use crate::data_dir::version_dirs;
use crate::error::AgentError;
use crate::sources::built_at;
use crate::uploads;
use crate::uploads::{UploadError, UploadSource, Uploads};

/// The largest manifest that is read, in bytes: a million chunks.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;

/// Checks sources of pushes.
pub struct PushCheck {
    /// The directory of stores in this process, if it holds any.
    pub stores_dir: Option<PathBuf>,
    /// The uploads to this process, if it has a disk.
    pub uploads: Option<Arc<Uploads>>,
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
    /// How Kafka is reached.
    pub kafka: KafkaConfig,
}

/// The version found at a source.
struct Found {
    detail: VersionDetail,
    /// The checksum of the version that it was built from, if it was built from a difference.
    base: Option<String>,
    /// The time up to which it contains all events, if its build was told one.
    cut_unix_ms: Option<u64>,
    /// See [`Manifest::undated_unix_ms`].
    undated_unix_ms: Option<u64>,
    needed_bytes: u64,
    links: bool,
}

impl PushCheck {
    /// The version at a source, and the terms that its manifest sets. Nothing is changed.
    ///
    /// # Errors
    /// No such store, another push of it, a source that cannot be read, a version of another store or another number of
    /// partitions, too little space on this node.
    pub fn check(
        &self,
        operator: &Operator,
        node: Option<NodeId>,
        name: &StoreName,
        source: &str,
    ) -> Result<(VersionDetail, PushTerms), AgentError> {
        let found = self.find(operator, node, name, source)?;
        let terms = PushTerms {
            base: found.base,
            cut_unix_ms: found.cut_unix_ms,
            undated_unix_ms: found.undated_unix_ms,
            ..PushTerms::default()
        };
        Ok((found.detail, terms))
    }

    /// The effects of a push.
    ///
    /// # Errors
    /// The errors that the push itself would be refused with.
    pub fn dry_run(
        &self,
        operator: &Operator,
        node: Option<NodeId>,
        name: &StoreName,
        source: &str,
        any_base: bool,
    ) -> Result<DryRunResource, AgentError> {
        let found = self.find(operator, node, name, source)?;
        if let Some(base) = found.base.filter(|_| !any_base) {
            check_base(&operator.mirror().view(), name, &base, &found.detail.manifest_checksum)?;
        }
        let version = operator.store(name)?.versions.allocate();
        Ok(DryRunResource {
            version: version.get(),
            source: found.detail.source,
            records: found.detail.records,
            bytes_total: found.detail.bytes,
            needed_bytes: found.needed_bytes,
            links: found.links,
        })
    }

    fn find(
        &self,
        operator: &Operator,
        node: Option<NodeId>,
        name: &StoreName,
        source: &str,
    ) -> Result<Found, AgentError> {
        let store = operator.store(name)?;
        if let Some(version) = store.pushing() {
            let store = name.clone();
            return Err(OperatorError::PushInProgress { store, version }.into());
        }
        let view = operator.mirror().view();
        let partitions = view.buildable().ok_or(OperatorError::NoCluster)?;
        let source = self.source(node, name, source)?;
        let bytes = read_manifest(&*source).map_err(|error| {
            let error = AgentError::from(error);
            match uploads::remedy(name, &source.name(), &error) {
                Some(remedy) => UploadError::unreadable(&error, &remedy).into(),
                None => error,
            }
        })?;
        let (manifest, identity) = Manifest::identified(&bytes).map_err(|error| FetchError::Manifest {
            location: source.name(),
            source: error,
        })?;
        let (needed, in_force) = (protocol_of(manifest.format_version), view.protocol());
        if needed > in_force {
            return Err(AgentError::Fetch(FetchError::LaterFormat {
                location: source.name(),
                format: manifest.format_version,
                needed,
                in_force,
            }));
        }
        if manifest.store != *name {
            return Err(AgentError::Fetch(FetchError::WrongStore {
                location: source.name(),
                expected: name.clone(),
                found: manifest.store,
            }));
        }
        if !partitions.contains(&manifest.partitions) {
            return Err(AgentError::Fetch(FetchError::WrongPartitions {
                location: source.name(),
                expected: *partitions.end(),
                found: manifest.partitions,
            }));
        }
        if manifest.value_type != store.definition.value_type {
            return Err(AgentError::Fetch(FetchError::WrongValueType {
                location: source.name(),
                expected: store.definition.value_type,
                found: manifest.value_type,
            }));
        }
        check_declaration(&view, &store, &manifest, &source.name())?;
        let detail = detail(&*source, &manifest, identity);
        check_space_quota(&store, detail.bytes)?;
        let (needed_bytes, links) = match &self.stores_dir {
            Some(dir) => {
                let dir = dir.join(name.as_str());
                let wanted = node.and_then(|node| wanted(&view, node, &store, manifest.partitions));
                let target = FetchTarget {
                    store: name,
                    partitions: manifest.partitions,
                    wanted: wanted.as_ref(),
                    manifest_checksum: None,
                    fetching_dir: &dir,
                    version_dir: &dir,
                    siblings: &version_dirs(&dir),
                    reserve_bytes: self.reserve_bytes,
                };
                let sources = Sources::new([Box::new(Arc::clone(&source)) as Box<dyn FetchSource>]);
                let plan = FetchPlan::new(&sources, &target)?;
                (plan.needed_bytes(), plan.links())
            }
            None => (0, false),
        };
        Ok(Found {
            detail,
            base: manifest.base.map(|base| base.to_string()),
            cut_unix_ms: manifest.cut_unix_ms,
            undated_unix_ms: manifest.undated_unix_ms,
            needed_bytes,
            links,
        })
    }

    /// The location of a version that is to be pushed.
    fn source(&self, node: Option<NodeId>, name: &StoreName, source: &str) -> Result<Arc<dyn FetchSource>, AgentError> {
        let Some(upload) = UploadSource::of(source) else {
            return built_at(source, &self.kafka);
        };
        match &self.uploads {
            Some(uploads) if node == Some(upload.node) => {
                uploads.get(name, upload.id)?.check_complete()?;
                Ok(Arc::new(uploads.files(upload)))
            }
            _ => Err(UploadError::Elsewhere { node: upload.node }.into()),
        }
    }
}

/// Refuses a version whose keys are of another type than those of the store, or whose values have schemas that the store does not
/// have under the same ids.
fn check_declaration(
    view: &ClusterView,
    store: &StoreRecord,
    manifest: &Manifest,
    location: &str,
) -> Result<(), FetchError> {
    let (name, key_type) = (&store.definition.name, &store.definition.key_type);
    if manifest.key_type != *key_type {
        return Err(FetchError::WrongKeyType {
            location: location.to_owned(),
            expected: key_type.clone(),
            found: manifest.key_type.clone(),
        });
    }
    for schema in &manifest.value_schemas {
        let id = schema.id;
        let refused = |reason: String| FetchError::WrongSchema {
            location: location.to_owned(),
            store: name.clone(),
            id,
            reason,
        };
        let Some(registered) = view.schemas_of(store.id).find(|registered| registered.id == id) else {
            return Err(refused(format!("store {name} has no schema {id}")));
        };
        let registered = Schema::of_record(registered).map_err(|error| refused(error.to_string()))?;
        let own = Schema::of_text(manifest.value_type, &schema.text, schema.message.as_deref());
        let own = own.map_err(|error| refused(error.to_string()))?;
        if own.canonical() != registered.canonical() {
            let differences = fondaco_schema::diff(&registered, &own);
            let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
            return Err(refused(format!(
                "schema {id} of store {name} is another one: {}",
                differences.join("; ")
            )));
        }
    }
    Ok(())
}

/// The partitions that a node should hold of a version of a store, counted by the number that the version was built for;
/// `None` if unknown.
fn wanted(view: &ClusterView, node: NodeId, store: &StoreRecord, built_for: PartitionCount) -> Option<PartitionSet> {
    let table = &view.routing.as_ref()?.record;
    let partitions: PartitionSet = table.partitions_of(node, view.copies(store)).collect();
    Some(partitions.among(table.partitions(), built_for))
}

fn read_manifest(source: &dyn FetchSource) -> Result<Vec<u8>, FetchError> {
    source
        .read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX)
        .map_err(|error| match error {
            SourceError::Missing => FetchError::Manifest {
                location: source.name(),
                source: FormatError::NoManifest {
                    path: source.name().into(),
                },
            },
            error => FetchError::Source {
                file: MANIFEST_FILE.to_owned(),
                location: source.name(),
                source: error,
            },
        })
}

fn detail(source: &dyn FetchSource, manifest: &Manifest, identity: Checksum) -> VersionDetail {
    VersionDetail {
        source: source.name(),
        manifest_checksum: identity.to_string(),
        partitions: manifest.partitions,
        bytes: manifest.files_bytes(),
        index_bytes: manifest.index_bytes(),
        records: manifest.records,
        chunks: manifest.chunks.len() as u64,
        built_unix_ms: manifest.built.created_unix_ms,
        compression: manifest.compression.to_string(),
        events: None,
    }
}
