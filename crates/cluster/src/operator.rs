//! Requests of operators, carried out by whichever process receives them: the model decides on the change, and this
//! module writes it, on condition that no other process was faster. There is no need to find the leader.
//!
//! Calls wait for the coordination service, so they are made on threads that may block.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_coordination::{Coordination, CoordinationError, EntryPath};
use fondaco_decisions::operator::{self, MoveCosts, OperatorError, PlanRequest, Present, SetPush};
use fondaco_decisions::{Change, RecordPath, not_serving};
use fondaco_model::cluster::{
    ClusterView, NodeMark, PlanRecord, PushRecord, ReportRecord, SchemaKey, SchemaRecord, StoreRecord, UserName,
    UserRecord,
};
use fondaco_model::versioned::VersionedChange;
use fondaco_model::{
    CanaryAction, GateReport, NodeId, StoreChange, StoreDefinition, StoreKind, StoreName, VersionNumber,
};
use fondaco_protocol::now_unix_ms;
use fondaco_schema::Schema;

use crate::changes::carry_out;
use crate::error::ClusterError;
use crate::layout;
use crate::mirror::{Mirror, Origin, parse};

/// How often a change is tried when other processes are faster.
pub const ATTEMPTS_MAX: u32 = 20;

/// The first delay before reports are read again, by a process that does not mirror them; it doubles.
const POLL_MIN: Duration = Duration::from_millis(5);

/// The longest delay before reports are read again.
const POLL_MAX: Duration = Duration::from_millis(200);

/// Carries out requests of operators. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    coordination: Arc<dyn Coordination>,
    mirror: Mirror,
    /// Whether the mirror has the reports of nodes.
    mirrors_reports: bool,
    /// How long the data of dropped stores is kept.
    keep_deleted: Duration,
}

impl Operator {
    /// Carries out requests by this session, and makes the mirror see the changes at once. Controllers mirror reports.
    pub fn new(
        coordination: Arc<dyn Coordination>,
        mirror: Mirror,
        mirrors_reports: bool,
        keep_deleted: Duration,
    ) -> Self {
        Self {
            coordination,
            mirror,
            mirrors_reports,
            keep_deleted,
        }
    }

    /// The mirror of this process.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The coordination service.
    pub fn coordination(&self) -> &dyn Coordination {
        &*self.coordination
    }

    /// The present view with the reports of all nodes; without reports if the coordination service does not answer.
    pub fn view_with_reports(&self) -> Result<Arc<ClusterView>, ClusterError> {
        let view = self.mirror.view();
        if self.mirrors_reports || self.mirror.stale_since().is_some() || view.remembered {
            return Ok(view);
        }
        let mut view = Arc::unwrap_or_clone(view);
        for (name, entry) in self.coordination.read_children(&layout::REPORTS.parse()?)? {
            if let (Ok(node), Ok(Some(report))) = (name.parse(), parse::<ReportRecord>(Some(&entry))) {
                view.reports.insert(node, report.record);
            }
        }
        Ok(Arc::new(view))
    }

    /// The present record of a store.
    pub fn store(&self, name: &StoreName) -> Result<StoreRecord, ClusterError> {
        let known = |view: &ClusterView| view.stores.get(name).map(|store| store.record.clone());
        if let Some(store) = known(&self.mirror.view()) {
            return Ok(store);
        }
        // Another process may have created it a moment ago.
        self.refresh_store(name)?;
        let store = known(&self.mirror.view());
        Ok(store.ok_or_else(|| OperatorError::StoreNotFound { store: name.clone() })?)
    }

    /// Creates a store. Omitted settings of a versioned store follow from the cluster.
    pub fn create(&self, definition: &StoreDefinition, settings: Option<&VersionedChange>) -> Result<(), ClusterError> {
        let name = &definition.name;
        let paths = [RecordPath::Store(name.clone()), RecordPath::Numbers];
        self.change(&paths, |view| {
            let mut definition = definition.clone();
            match definition.kind {
                StoreKind::Versioned => {
                    let change = settings.copied().unwrap_or_default();
                    let settings = operator::versioned_settings(view, definition.replicas, &change)?;
                    definition.versioned = Some(settings);
                }
                StoreKind::Batch | StoreKind::Hybrid if settings.is_some() => {
                    return Err(OperatorError::NotVersioned { store: name.clone() });
                }
                StoreKind::Batch | StoreKind::Hybrid => {}
            }
            operator::create_store(view, definition, now_unix_ms()).map(Some)
        })?;
        tracing::info!(store = %name, "created");
        Ok(())
    }

    /// Changes a store's definition.
    pub fn alter(&self, name: &StoreName, change: &StoreChange) -> Result<(), ClusterError> {
        self.change_with_reports(&[name], |view| {
            operator::alter_store(view, name, change, now_unix_ms()).map(Some)
        })
    }

    /// Drops a store with all its versions. Its data is kept for the configured time, or deleted `now`.
    pub fn drop_store(&self, name: &StoreName, now: bool) -> Result<(), ClusterError> {
        let keep_ms = if now { 0 } else { self.keep_deleted.as_millis() as u64 };
        self.change_store(name, |view| {
            operator::drop_store(view, name, now_unix_ms(), keep_ms).map(Some)
        })?;
        tracing::info!(store = %name, keep_ms, "dropped");
        Ok(())
    }

    /// Restores a dropped store.
    pub fn restore_store(&self, name: &StoreName) -> Result<(), ClusterError> {
        self.change_store(name, |view| {
            operator::restore_store(view, name, now_unix_ms()).map(Some)
        })?;
        tracing::info!(store = %name, "restored");
        Ok(())
    }

    /// After the coordination service lost entries or went back to older ones: writes the entries that this process
    /// remembers, or declares the `present` ones to be true.
    pub fn adopt(&self, present: bool) -> Result<(), ClusterError> {
        let known = self.mirror.view();
        for _ in 0..ATTEMPTS_MAX {
            let found = present_entries(&*self.coordination)?;
            let changes = match present {
                true => vec![operator::accept(&known, &found)?],
                false => operator::adopt(&known, &found)?,
            };
            let carried_out = changes
                .iter()
                .try_for_each(|change| carry_out(&*self.coordination, &self.mirror, change));
            match carried_out {
                Ok(()) => {
                    let all = layout::watched(self.mirrors_reports)?;
                    self.mirror.refresh(&*self.coordination, &all)?;
                    tracing::warn!(present, "an operator has decided which entries of the cluster are true");
                    return Ok(());
                }
                // Other processes write there, too: their writes are overwritten.
                Err(CoordinationError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ClusterError::TooManyConflicts)
    }

    /// Begins the pushes of stores that are swapped together, unless earlier ones answer the request. Returns the push of the first, and
    /// whether it is an earlier one.
    pub fn push(&self, pushes: &[SetPush]) -> Result<(PushRecord, bool), ClusterError> {
        let mut answer = None;
        let paths: Vec<_> = pushes
            .iter()
            .map(|push| RecordPath::Store(push.store.clone()))
            .collect();
        self.change(&paths, |view| {
            let pushed = operator::push_set(view, pushes, now_unix_ms())?;
            answer = Some((pushed.push, pushed.is_repeated));
            Ok(pushed.change)
        })?;
        // A change that was carried out has a push.
        let (push, is_repeated) = answer.ok_or(OperatorError::NoCluster)?;
        for SetPush { store, detail, terms } in pushes {
            let version = if *store == pushes[0].store {
                Some(push.version)
            } else {
                push.with.get(store).copied()
            };
            match is_repeated {
                true => tracing::info!(%store, ?version, run = ?terms.run, "no push begins: an earlier one answers"),
                false => tracing::info!(%store, ?version, source = %detail.source, "push begins"),
            }
        }
        Ok((push, is_repeated))
    }

    /// The push that belongs to a run, whichever process began it.
    pub fn push_of_run(&self, name: &StoreName, run: &str) -> Result<Option<PushRecord>, ClusterError> {
        self.refresh_store(name)?;
        Ok(self.store(name)?.push_of_run(run).cloned())
    }

    /// Cancels the push under way; if a version is given, only that of this version. Returns the number of its version.
    pub fn cancel_push(&self, name: &StoreName, version: Option<VersionNumber>) -> Result<VersionNumber, ClusterError> {
        self.change_store(name, |view| {
            operator::cancel_set(view, name, version, now_unix_ms()).map(Some)
        })?;
        let push = self.store(name)?.push;
        let push = push.ok_or_else(|| OperatorError::PushNotFound { store: name.clone() })?;
        Ok(push.version)
    }

    /// Pauses, resumes, aborts or promotes the canary of a store.
    pub fn steer_canary(&self, name: &StoreName, action: CanaryAction) -> Result<(), ClusterError> {
        self.change_store(name, |view| operator::steer_canary(view, name, action, now_unix_ms()))?;
        tracing::info!(store = %name, ?action, "the canary is steered");
        Ok(())
    }

    /// Writes the comparison of the current version with the pushed one into the push whose gates wait for it.
    pub fn put_comparison(
        &self,
        name: &StoreName,
        version: VersionNumber,
        report: &GateReport,
    ) -> Result<(), ClusterError> {
        self.change_store(name, |view| operator::put_comparison(view, name, version, report))
    }

    /// Makes the version of a push current that awaits its confirmation, or begins its canary; or refuses it for a reason.
    pub fn confirm(&self, name: &StoreName, version: VersionNumber, refused: Option<&str>) -> Result<(), ClusterError> {
        self.change_with_reports(&[name], |view| {
            operator::confirm(view, name, version, refused, now_unix_ms())
        })
    }

    /// Makes kept or held versions of stores current, by one write.
    pub fn swap(&self, versions: &BTreeMap<StoreName, VersionNumber>) -> Result<(), ClusterError> {
        let names: Vec<_> = versions.keys().collect();
        self.change_with_reports(&names, |view| operator::swap_set(view, versions, Some(now_unix_ms())))
    }

    /// Goes back to the given version, or to the one before the current one; `together` with the stores that were swapped with it, or
    /// without them; only from `if_current`, if that is said.
    pub fn roll_back(
        &self,
        name: &StoreName,
        to: Option<VersionNumber>,
        together: Option<bool>,
        if_current: Option<VersionNumber>,
    ) -> Result<(), ClusterError> {
        self.change_with_reports(&[name], |view| {
            operator::roll_back_set(view, name, to, together, if_current)
        })
    }

    /// A plan, without saving it.
    pub fn dry_plan(&self, request: &PlanRequest, costs: &MoveCosts<'_>) -> Result<PlanRecord, ClusterError> {
        let plan = operator::propose_plan(&self.mirror.view(), request, costs, now_unix_ms())?;
        Ok(plan.0)
    }

    /// Makes a plan, and saves it as a proposal.
    pub fn propose(&self, request: &PlanRequest, costs: &MoveCosts<'_>) -> Result<PlanRecord, ClusterError> {
        let mut proposed = None;
        self.change(&[RecordPath::Routing], |view| {
            let (plan, change) = operator::propose_plan(view, request, costs, now_unix_ms())?;
            proposed = Some(plan);
            Ok(Some(change))
        })?;
        // A change that was carried out has a plan.
        let plan = proposed.ok_or(OperatorError::NothingToMove)?;
        tracing::info!(number = plan.number, moves = plan.next.len(), "a plan is proposed");
        Ok(plan)
    }

    /// Runs a plan.
    pub fn run_plan(&self, number: u64) -> Result<(), ClusterError> {
        let paths = [RecordPath::Routing, RecordPath::Plan(number)];
        self.change(&paths, |view| operator::run_plan(view, number).map(Some))?;
        tracing::info!(number, "the plan runs");
        Ok(())
    }

    /// Pauses the plan under way, or resumes it.
    pub fn pause_plan(&self, number: u64, is_paused: bool) -> Result<(), ClusterError> {
        let paths = [RecordPath::Plan(number)];
        self.change(&paths, |view| operator::pause_plan(view, number, is_paused).map(Some))?;
        tracing::info!(number, is_paused, "the plan is paused or resumed");
        Ok(())
    }

    /// Cancels a plan.
    pub fn cancel_plan(&self, number: u64) -> Result<(), ClusterError> {
        let paths = [RecordPath::Routing, RecordPath::Plan(number)];
        self.change(&paths, |view| {
            operator::cancel_plan(view, Some(number), now_unix_ms()).map(Some)
        })?;
        tracing::info!(number, "the plan is cancelled");
        Ok(())
    }

    /// Splits each partition in two.
    pub fn split_partitions(&self) -> Result<(), ClusterError> {
        self.change(&[RecordPath::Routing], |view| {
            operator::split_partitions(view).map(Some)
        })?;
        tracing::info!("each partition was split in two");
        Ok(())
    }

    /// Adds a user, or changes one: `record` makes the new record of the former one.
    pub fn put_user(
        &self,
        name: &UserName,
        record: impl Fn(Option<&UserRecord>) -> UserRecord,
    ) -> Result<UserRecord, ClusterError> {
        let mut put = None;
        self.change(&[RecordPath::User(name.clone())], |view| {
            let user = record(view.users.get(name).map(|user| &user.record));
            put = Some(user.clone());
            operator::put_user(view, user).map(Some)
        })?;
        tracing::info!(user = %name, "the user is added or changed");
        // A change that was carried out has a record.
        put.ok_or_else(|| OperatorError::UserNotFound { user: name.clone() }.into())
    }

    /// Deletes a user.
    pub fn delete_user(&self, name: &UserName) -> Result<(), ClusterError> {
        let paths = [RecordPath::User(name.clone())];
        self.change(&paths, |view| operator::delete_user(view, name).map(Some))?;
        tracing::info!(user = %name, "the user is deleted");
        Ok(())
    }

    /// Registers a schema of a store's values, or only checks it. Returns its record, and whether the store had it before.
    pub fn register_schema(
        &self,
        name: &StoreName,
        schema: &Schema,
        dry_run: bool,
    ) -> Result<(SchemaRecord, bool), ClusterError> {
        let mut registered = None;
        self.change_store(name, |view| {
            let outcome = operator::register_schema(view, name, schema, now_unix_ms())?;
            registered = Some((outcome.record, outcome.change.is_none()));
            Ok(outcome.change.filter(|_| !dry_run))
        })?;
        // A change that was carried out, or was not needed, has a record.
        let registered = registered.ok_or_else(|| OperatorError::StoreNotFound { store: name.clone() })?;
        if !registered.1 && !dry_run {
            tracing::info!(store = %name, id = registered.0.id, "a schema is registered");
        }
        Ok(registered)
    }

    /// A schema of a store; `None` if there is none with this number. One that this process has not seen yet is read now.
    pub fn schema(&self, name: &StoreName, id: u16) -> Result<Option<SchemaRecord>, ClusterError> {
        let store = self.store(name)?.id;
        let key = SchemaKey { store, id };
        let known = |view: &ClusterView| view.schemas.get(&key).map(|schema| schema.record.clone());
        if let Some(schema) = known(&self.mirror.view()) {
            return Ok(Some(schema));
        }
        self.mirror
            .refresh(&*self.coordination, &[layout::path(&RecordPath::Schema(key))?])?;
        Ok(known(&self.mirror.view()))
    }

    /// All schemas of a store, oldest first, as the coordination service has them now: also one that another process registered just
    /// before the call.
    pub fn present_schemas(&self, name: &StoreName) -> Result<(StoreRecord, Vec<SchemaRecord>), ClusterError> {
        self.coordination.sync()?;
        self.refresh_store(name)?;
        loop {
            let store = self.store(name)?;
            let view = self.mirror.view();
            let records: Vec<SchemaRecord> = view.schemas_of(store.id).cloned().collect();
            // Ids are consecutive.
            let id = records.last().map_or(1, |last| last.id + 1);
            let path = layout::path(&RecordPath::Schema(SchemaKey { store: store.id, id }))?;
            self.mirror.refresh(&*self.coordination, &[path])?;
            if self.mirror.view().schemas_of(store.id).count() <= records.len() {
                return Ok((store, records));
            }
        }
    }

    /// Marks a node, or takes its mark away.
    pub fn mark_node(&self, node: NodeId, mark: Option<NodeMark>) -> Result<(), ClusterError> {
        self.change(&[RecordPath::Node(node), RecordPath::Routing], |view| {
            operator::mark_node(view, node, mark, now_unix_ms()).map(Some)
        })?;
        tracing::info!(%node, ?mark, "the node is marked");
        Ok(())
    }

    /// Forgets a node that is gone for good.
    pub fn forget_node(&self, node: NodeId) -> Result<(), ClusterError> {
        self.change(&[RecordPath::Node(node), RecordPath::Routing], |view| {
            operator::forget_node(view, node).map(Some)
        })?;
        tracing::info!(%node, "the node is forgotten");
        Ok(())
    }

    /// Waits until all nodes that should serve a store's current version do, at most for `timeout`. Returns the nodes
    /// that do not yet.
    pub fn wait_serving(&self, name: &StoreName, timeout: Duration) -> Result<Vec<NodeId>, ClusterError> {
        let deadline = Instant::now() + timeout;
        let change_signal = self.mirror.own_signal();
        let mut poll = POLL_MIN;
        loop {
            let seen = change_signal.count();
            let view = self.view_with_reports()?;
            let current = view.stores.get(name).and_then(|store| store.record.versions.current());
            let Some(current) = current else {
                return Ok(Vec::new());
            };
            let pending = not_serving(&view, name, current);
            let left = deadline.saturating_duration_since(Instant::now());
            if pending.is_empty() || left.is_zero() {
                return Ok(pending.into_iter().collect());
            }
            let wait = if self.mirrors_reports { left } else { poll.min(left) };
            change_signal.wait(seen, wait);
            poll = (poll * 2).min(POLL_MAX);
        }
    }

    fn change_store(
        &self,
        name: &StoreName,
        decide: impl FnMut(&ClusterView) -> Result<Option<Change>, OperatorError>,
    ) -> Result<(), ClusterError> {
        self.change(&[RecordPath::Store(name.clone())], decide).map(drop)
    }

    fn change_with_reports(
        &self,
        names: &[&StoreName],
        mut decide: impl FnMut(&ClusterView) -> Result<Option<Change>, OperatorError>,
    ) -> Result<(), ClusterError> {
        let paths: Vec<_> = names.iter().map(|&name| RecordPath::Store(name.clone())).collect();
        names.iter().try_for_each(|name| self.refresh_store(name))?;
        let reports = match self.mirrors_reports {
            true => None,
            false => Some(self.view_with_reports()?.reports.clone()),
        };
        let changed = self.change(&paths, |view| match &reports {
            None => decide(view),
            Some(reports) => {
                let mut view = view.clone();
                view.reports.clone_from(reports);
                decide(&view)
            }
        });
        changed.map(drop)
    }

    /// Lets the model decide on the present state, and writes the change; decides again if another process was faster.
    fn change(
        &self,
        paths: &[RecordPath],
        mut decide: impl FnMut(&ClusterView) -> Result<Option<Change>, OperatorError>,
    ) -> Result<Option<Change>, ClusterError> {
        let paths: Vec<EntryPath> = paths.iter().map(layout::path).collect::<Result<_, _>>()?;
        for _ in 0..ATTEMPTS_MAX {
            self.mirror.refresh(&*self.coordination, &paths)?;
            let sighting = self.mirror.sighting();
            if let Some(discontinuity) = self.mirror.discontinuity() {
                return Err(discontinuity.into());
            }
            if sighting.origin != Origin::Service {
                return Err(ClusterError::NothingSeen);
            }
            let Some(change) = decide(&sighting.view)? else {
                return Ok(None);
            };
            match carry_out(&*self.coordination, &self.mirror, &change) {
                Ok(()) => return Ok(Some(change)),
                Err(CoordinationError::Conflict { path }) => {
                    self.mirror.refresh(&*self.coordination, &[path])?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ClusterError::TooManyConflicts)
    }

    fn refresh_store(&self, name: &StoreName) -> Result<(), ClusterError> {
        let path = layout::path(&RecordPath::Store(name.clone()))?;
        Ok(self.mirror.refresh(&*self.coordination, &[path])?)
    }
}

/// The entries in the coordination service, except for ephemeral ones.
fn present_entries(coordination: &dyn Coordination) -> Result<Present, ClusterError> {
    let mut present = Present::default();
    for prefix in layout::watched(false)? {
        let lasting = |path: &EntryPath| {
            let path = RecordPath::parse(path.as_str());
            path.filter(|path| !matches!(path, RecordPath::Announcement(_) | RecordPath::Router(_)))
        };
        if let (Some(path), Some(entry)) = (lasting(&prefix), coordination.read(&prefix)?) {
            if path == RecordPath::Cluster {
                present.cluster = serde_json::from_slice(&entry.bytes).ok();
            }
            present.revisions.insert(path, entry.revision.get());
        }
        if layout::FOLDERS.contains(&prefix.as_str()) {
            for (name, entry) in coordination.read_children(&prefix)? {
                if let Some(path) = lasting(&prefix.join(&name)?) {
                    present.revisions.insert(path, entry.revision.get());
                }
            }
        }
    }
    Ok(present)
}
