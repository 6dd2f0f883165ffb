//! Suspending and resuming an agent, a server, a tool or the whole project: one act, effective
//! immediately, grants kept. Calls to it end, streams of its agents close, its tools leave the
//! lists, a suspended server's process stops. Entry points: [`Project::suspend`] and
//! [`Project::resume`].

use std::sync::Arc;

use gantry_model::suspension::{Suspendable, Suspension, Suspensions};
use serde_json::json;

use super::Project;
use crate::acts::{Actor, Draft};
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};

impl Project {
    /// Returns the suspensions of the project.
    pub fn suspensions(&self) -> Arc<Suspensions> {
        self.suspended.now()
    }

    /// Suspends an item; false if it already was, unless by a less powerful role.
    pub async fn suspend(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        what: Suspendable,
        reason: &str,
    ) -> Result<bool, EngineError> {
        let (by, project, reason) = (by.into(), Arc::clone(self), reason.to_owned());
        self.complete(async move {
            project.has(&what).await?;
            let suspension = Suspension {
                reason,
                by: by.name().to_owned(),
                at_ms: unix_ms(),
                role: by.role(),
            };
            let draft = Draft::new("suspend", what.to_string());
            let draft = draft.after(json!({
                "kind": what.kind(), "name": what.name(), "reason": suspension.reason,
            }));
            // A suspension does not wait for its record.
            let act = project.acts.begin_anyway(&by, draft).await;
            let store = &project.machine.store;
            let suspended = store.suspend(&project.name, &what, &suspension).await;
            let suspended = project.settled_suspension(suspended).await;
            act.end(&suspended).await;
            suspended
        })
        .await
    }

    /// Ends a suspension; false if there was none. Nobody lifts what a more powerful role imposed.
    pub async fn resume(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        what: Suspendable,
    ) -> Result<bool, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            // Another gateway may have suspended it a moment ago.
            let all = project.machine.store.suspensions(&project.name).await?;
            let known = all.into_iter().find(|(known, _)| *known == what);
            let known = known.map(|(_, known)| known);
            let before = known.as_ref().map(|known| {
                json!({"kind": what.kind(), "name": what.name(), "reason": known.reason,
                    "by": known.by, "at_ms": known.at_ms})
            });
            let mut draft = Draft::new("resume", what.to_string());
            draft.before = before;
            let resume = async {
                let imposed = known.filter(|known| !known.may_be_ended_by(by.role()));
                if let Some(role) = imposed.and_then(|known| known.role) {
                    return Err(AdminError::SuspendedAbove { role }.into());
                }
                let resumed = project.machine.store.resume(&project.name, &what).await;
                project.settled_suspension(resumed).await
            };
            project.acts.run(&by, draft, resume).await
        })
        .await
    }

    async fn settled_suspension(
        &self,
        stored: Result<bool, gantry_store::StoreError>,
    ) -> Result<bool, EngineError> {
        let is_new = stored?;
        if is_new {
            self.follow_suspensions().await?;
        }
        Ok(is_new)
    }

    /// Applies the suspensions in the store.
    pub(super) async fn follow_suspensions(&self) -> Result<(), EngineError> {
        let store = &self.machine.store;
        // First calls, then access, then what takes longer.
        self.suspended.reload(store, &self.name).await?;
        self.access.reread().await?;
        self.supervisor.follow_suspended().await
    }

    /// Refuses an unknown name. A tool need not be listed by its server now.
    async fn has(&self, what: &Suspendable) -> Result<(), EngineError> {
        match what {
            Suspendable::Project => Ok(()),
            Suspendable::Agent(agent) => self.agent(agent).await.map(drop),
            Suspendable::Server(server) | Suspendable::Tool(server, _) => {
                let is_native = server.as_str() == gantry_model::id::ServerName::NATIVE;
                let is_tool = matches!(what, Suspendable::Tool(..));
                match self.supervisor.find(server.as_str()) {
                    Some(_) => Ok(()),
                    None if is_native && is_tool => Ok(()),
                    None => Err(EngineError::UnknownServer {
                        name: server.to_string(),
                    }),
                }
            }
        }
    }
}
