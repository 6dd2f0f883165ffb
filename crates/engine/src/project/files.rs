//! Changes by configuration files: servers that are added, changed and removed with them, and
//! approved files. Each change is recorded before its effect, as an act of its file; an unchanged
//! server is not an act. Entry points: `Project::apply` and `Project::note_approvals`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use gantry_model::id::ServerName;
use gantry_model::spec::{ServerSpec, Source};
use gantry_store::{ActFilter, ActOutcome, ServerRow};
use serde_json::{Value, json};

use super::Project;
use super::grants::is_of_files;
use crate::acts::values::difference;
use crate::acts::{Actor, Draft, OpenAct};
use crate::config::{OnStartFailure, Startup};
use crate::error::EngineError;
use crate::server::handle::LinkState;
use crate::supervisor::Applied;

/// Time limit of a start that must succeed; each server's own handshake limit is shorter.
const START_BOUND: Duration = Duration::from_secs(120);
/// The recorded actor of changes by files.
const FILES: &str = "configuration files";
/// How many past approvals are read.
const APPROVALS: u32 = 1000;

impl Project {
    /// Applies the servers of files, touching only those that changed.
    pub async fn apply(self: &Arc<Self>, specs: Vec<ServerSpec>) -> Result<Applied, EngineError> {
        self.admit()?;
        let project = Arc::clone(self);
        self.complete(async move { project.apply_all(specs).await })
            .await
    }

    async fn apply_all(&self, mut specs: Vec<ServerSpec>) -> Result<Applied, EngineError> {
        self.police_files(&mut specs);
        let config = &self.machine.config;
        let abort = config.on_start_failure == OnStartFailure::Abort;
        let sequential = config.startup == Startup::Sequential;
        let names: Vec<_> = specs.iter().map(|spec| spec.name.clone()).collect();
        let mut applied = Applied::default();
        let removals = self.begin_removals(&specs).await?;
        // Before the servers exist, so that they are granted from the beginning. A name of a
        // registered server does not count as the file's.
        let is_theirs = |name: &&ServerName| {
            let known = self.supervisor.find(name.as_str());
            known.is_none_or(|known| is_of_files(&known.spec))
        };
        let of_files = names.iter().filter(is_theirs).cloned().collect();
        self.access.set_file_servers(of_files).await?;
        self.regranted();
        let begun = self.supervisor.begin(&specs, &mut applied).await;
        for act in removals {
            act.end(&begun).await;
        }
        let stored = begun?;
        // A restarted server waits for its old process; no other server waits for that.
        specs.sort_by_key(|spec| self.supervisor.is_replaced(spec));
        for spec in specs {
            let name = spec.name.clone();
            let act = self.begin_placing(&spec, &stored).await?;
            let placed = self.supervisor.place(spec, &stored, &mut applied).await;
            if let Some(act) = act {
                act.end(&placed).await;
            }
            placed?;
            if sequential {
                self.supervisor.settled(START_BOUND).await;
                if abort {
                    self.require_started(name.as_str())?;
                }
            }
        }
        if abort && !sequential {
            self.supervisor.settled(START_BOUND).await;
            for name in &names {
                self.require_started(name.as_str())?;
            }
        }
        Ok(applied)
    }

    fn require_started(&self, name: &str) -> Result<(), EngineError> {
        let Some(handle) = self.supervisor.find(name) else {
            return Ok(());
        };
        match &*handle.live.borrow() {
            LinkState::Ready(_) | LinkState::Cold => Ok(()),
            // It is held and must not start yet, so it has not failed.
            LinkState::Down(..) if handle.spec.held().is_some() => Ok(()),
            LinkState::Starting => Err(EngineError::StartFailed {
                server: handle.name.clone(),
                reason: "still starting".into(),
            }),
            LinkState::Down(reason, _) => Err(EngineError::StartFailed {
                server: handle.name.clone(),
                reason: reason.to_string(),
            }),
        }
    }

    /// Records new approvals of files, each a path and the hash of the approved content, and
    /// withdrawn ones, before they take effect.
    pub async fn note_approvals(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        approved: BTreeMap<String, String>,
    ) -> Result<(), EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let known = project.approvals_on_record().await?;
            let digest = |what: &String| match what.len() {
                64 => json!({"sha256": what}),
                _ => json!({"approved": what}),
            };
            for (path, new) in &approved {
                let old = known.get(path);
                if old == Some(new) {
                    continue;
                }
                let mut draft = Draft::new("file.approve", path).after(digest(new));
                draft.before = old.map(digest);
                let act = project.acts.begin(&by, draft).await?;
                act.end(&Ok::<_, EngineError>(())).await;
            }
            for (path, old) in known
                .iter()
                .filter(|(path, _)| !approved.contains_key(*path))
            {
                let draft = Draft::new("file.withdraw", path).before(digest(old));
                let act = project.acts.begin(&by, draft).await?;
                act.end(&Ok::<_, EngineError>(())).await;
            }
            Ok(())
        })
        .await
    }

    /// Returns the approved files, according to the recorded acts.
    async fn approvals_on_record(&self) -> Result<BTreeMap<String, String>, EngineError> {
        let filter = ActFilter {
            act: Some("file.*".to_owned()),
            gateway: Some(self.machine.store.gateway()),
            limit: APPROVALS,
            ..ActFilter::default()
        };
        let mut known = BTreeMap::new();
        for row in self.acts.list(&filter).await?.into_iter().rev() {
            let after: Option<Value> = row.after.and_then(|text| serde_json::from_str(&text).ok());
            let digest = after.and_then(|after| {
                let what = after["sha256"].as_str().or(after["approved"].as_str());
                what.map(str::to_owned)
            });
            match digest {
                Some(digest) => known.insert(row.target, digest),
                None => known.remove(&row.target),
            };
        }
        Ok(known)
    }

    /// Starts the acts of all removed servers of files.
    async fn begin_removals(&self, specs: &[ServerSpec]) -> Result<Vec<OpenAct>, EngineError> {
        let wanted: HashSet<_> = specs.iter().map(|spec| &spec.name).collect();
        let mut acts = Vec::new();
        for row in self.machine.store.servers(&self.name).await? {
            let name = &row.spec.name;
            if row.spec.source == Source::Api || wanted.contains(name) {
                continue;
            }
            let running = self.supervisor.find(name.as_str());
            let before = match &running {
                Some(handle) => self.acts.values.spec(&handle.spec),
                None => self.acts.values.spec(&row.spec),
            };
            let draft = Draft::new("server.remove", name.as_str()).before(before);
            acts.push(self.acts.begin(&actor(&row.spec), draft).await?);
        }
        Ok(acts)
    }

    /// Starts the act of a new or changed server of a file; `None` if it is unchanged, or has no
    /// effect.
    async fn begin_placing(
        &self,
        spec: &ServerSpec,
        stored: &[ServerRow],
    ) -> Result<Option<OpenAct>, EngineError> {
        let acts = &self.acts;
        let name = spec.name.as_str();
        let running = self.supervisor.find(name);
        let row = stored.iter().find(|row| row.spec.name == spec.name);
        let source = running.as_ref().map(|handle| handle.spec.source);
        let source = source.or_else(|| row.map(|row| row.spec.source));
        if source == Some(Source::Api) && spec.source != Source::Api {
            // It is shadowed, or refused before anything changes.
            return Ok(None);
        }
        let after = acts.values.spec(spec);
        let draft = match (running, row) {
            (Some(handle), _) if *handle.spec == *spec => return Ok(None),
            (Some(handle), _) => {
                let (before, after) = difference(&acts.values.spec(&handle.spec), &after);
                Draft::new("server.replace", name)
                    .before(before)
                    .after(after)
            }
            (None, Some(_)) if self.last_fingerprint(name).await == after["fingerprint"] => {
                return Ok(None);
            }
            (None, Some(row)) => {
                let (before, after) = difference(&acts.values.spec(&row.spec), &after);
                Draft::new("server.replace", name)
                    .before(before)
                    .after(after)
            }
            (None, None) => Draft::new("server.register", name).after(after),
        };
        Ok(Some(acts.begin(&actor(spec), draft).await?))
    }

    /// Returns the fingerprint of a server of a file after its last recorded act.
    async fn last_fingerprint(&self, name: &str) -> Value {
        let filter = ActFilter {
            act: Some("server.re*".to_owned()),
            target: Some(name.to_owned()),
            outcome: Some(ActOutcome::Done),
            gateway: Some(self.machine.store.gateway()),
            limit: 5,
            ..ActFilter::default()
        };
        let rows = self.acts.list(&filter).await.unwrap_or_default();
        let lasting = rows.into_iter().find(|row| row.act != "server.restart");
        let after = lasting.and_then(|row| row.after);
        let after: Option<Value> = after.and_then(|text| serde_json::from_str(&text).ok());
        after.map_or(Value::Null, |mut after| after["fingerprint"].take())
    }
}

/// Returns the recorded actor of a spec's change.
fn actor(spec: &ServerSpec) -> Actor {
    match spec.source {
        Source::Builtin => Actor::gateway(),
        Source::File | Source::Api => Actor::files(FILES),
    }
}
