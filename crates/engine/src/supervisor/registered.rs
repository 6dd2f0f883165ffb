//! Follows the registered servers in the store: other gateways register, change and remove them,
//! and take over their leases. Entry point: `Supervisor::follow_registered`.

use std::sync::Arc;

use gantry_model::event::EventKind;
use gantry_model::id::ServerId;
use gantry_model::spec::{InactiveReason, ServerSpec, Source};
use gantry_store::ServerRow;
use tracing::info;

use super::{Supervisor, files};
use crate::error::EngineError;
use crate::leases::Leases;
use crate::server::handle::ServerHandle;

/// A change of one server.
enum Step {
    /// Another gateway has registered it.
    Add(Box<ServerRow>),
    /// Its spec or its lease holder has changed.
    Replace(Arc<ServerHandle>, Box<ServerRow>),
    /// Another gateway has removed it.
    Remove(Arc<ServerHandle>),
}

impl Supervisor {
    /// Returns the leases of registered servers.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Returns whether all servers are stopping and none is started any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Applies the registered servers of the store, touching only those that differ.
    pub(crate) async fn follow_registered(&self) -> Result<(), EngineError> {
        let steps = {
            let _one = self.changing.lock().await;
            self.steps().await?
        };
        for step in steps {
            match step {
                Step::Add(row) => self.follow_added(&row).await?,
                Step::Replace(handle, row) => self.follow_changed(&handle, &row).await?,
                Step::Remove(handle) => self.follow_removed(&handle).await,
            }
        }
        self.follow_secrets().await
    }

    /// Returns the differences between store and memory; the caller must hold the change lock.
    async fn steps(&self) -> Result<Vec<Step>, EngineError> {
        let rows = self.opened_rows().await?;
        let is_registered = |row: &ServerRow| row.enabled && row.spec.source == Source::Api;
        let rows: Vec<_> = rows.into_iter().filter(is_registered).collect();
        let gone = self.all().into_iter().filter(|handle| {
            handle.spec.source == Source::Api && !rows.iter().any(|row| row.id == handle.id)
        });
        let mut steps: Vec<_> = gone.map(Step::Remove).collect();
        for row in rows {
            let running = self.find(row.spec.name.as_str());
            match running {
                None => steps.push(Step::Add(Box::new(row))),
                Some(handle) if handle.id == row.id => {
                    let wanted = self.held_elsewhere(row.id, row.spec.clone()).await;
                    let wanted = self.held_suspended(wanted);
                    if !same(&handle.spec, &wanted) {
                        steps.push(Step::Replace(handle, Box::new(row)));
                    }
                }
                // A file of this gateway uses the name, or the old server is removed first.
                Some(handle) if handle.spec.source == Source::Api => {
                    steps.push(Step::Add(Box::new(row)));
                }
                Some(_) => {}
            }
        }
        Ok(steps)
    }

    async fn follow_added(&self, row: &ServerRow) -> Result<(), EngineError> {
        let _turn = self.turn(&row.spec.name).await?;
        if self.find(row.spec.name.as_str()).is_none() {
            self.add(row, row.spec.clone()).await;
        }
        Ok(())
    }

    async fn follow_changed(
        &self,
        handle: &Arc<ServerHandle>,
        row: &ServerRow,
    ) -> Result<(), EngineError> {
        let _turn = self.turn(&row.spec.name).await?;
        let is_here = self.find(row.spec.name.as_str());
        if is_here.is_none_or(|here| !Arc::ptr_eq(&here.spec, &handle.spec)) {
            return Ok(());
        }
        let holder = self.leases.holder(row.id).await;
        info!(server = %handle.name, elsewhere = ?holder, "changed by another gateway");
        self.succeed(handle, row, row.spec.clone()).await;
        Ok(())
    }

    async fn follow_removed(&self, handle: &Arc<ServerHandle>) {
        let turn = self.changing.lock().await;
        // Another may have taken its place meanwhile.
        let here = self.find(&handle.id.to_string());
        if let Some(here) = &here {
            self.leave(here);
        }
        drop(turn);
        if here.is_some() {
            let why = "not registered any more";
            self.context
                .events
                .report(&handle.name, EventKind::Removed, why);
        }
    }

    /// Returns the spec of a server, held if another gateway runs it.
    pub(super) async fn held_elsewhere(&self, id: ServerId, mut spec: ServerSpec) -> ServerSpec {
        if spec.source == Source::Api
            && let Some(holder) = self.leases.holder(id).await
        {
            spec.inactive = Some(InactiveReason::Disabled(format!(
                "runs on the gateway {holder}"
            )));
        }
        spec
    }
}

/// Returns whether two specs are equal in their stored form.
fn same(one: &ServerSpec, other: &ServerSpec) -> bool {
    let written = |spec: &ServerSpec| serde_json::to_value(files::stored(spec)).ok();
    written(one) == written(other)
}
