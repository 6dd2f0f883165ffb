//! Suspended servers: shown, never started; their processes stop on suspension and start when they
//! are resumed. Entry point: [`Supervisor::follow_suspended`].

use std::sync::Arc;

use gantry_model::spec::{InactiveReason, ServerSpec};
use gantry_store::ServerRow;

use super::Supervisor;
use crate::error::EngineError;
use crate::server::handle::ServerHandle;

impl Supervisor {
    /// Stops newly suspended servers and starts resumed ones. Does not wait for the grace period of
    /// processes.
    pub(crate) async fn follow_suspended(&self) -> Result<(), EngineError> {
        for handle in self.all() {
            let wanted = self.suspended.now().of_server(&handle.name).is_some();
            let is_so = matches!(handle.spec.inactive, Some(InactiveReason::Suspended(_)));
            let can_be = handle.spec.inactive.is_none() || is_so;
            if wanted != is_so && can_be {
                self.take_again(&handle).await?;
            }
        }
        // Suspended tools leave the lists, resumed ones return.
        self.publish();
        Ok(())
    }

    /// Ends a server's runner and starts another, held or not according to the current state.
    async fn take_again(&self, handle: &Arc<ServerHandle>) -> Result<(), EngineError> {
        let _turn = self.turn(&handle.name).await?;
        let is_here = self.find(handle.name.as_str());
        if is_here.is_none_or(|here| !Arc::ptr_eq(&here.spec, &handle.spec)) {
            return Ok(());
        }
        let spec = ServerSpec {
            inactive: None,
            ..ServerSpec::clone(&handle.spec)
        };
        let row = ServerRow {
            id: handle.id,
            project: self.project.clone(),
            spec: spec.clone(),
            enabled: true,
            created_ms: handle.created_ms,
            updated_ms: handle.created_ms,
        };
        self.succeed(handle, &row, spec).await;
        Ok(())
    }

    /// Returns the spec of a server, held if it is suspended.
    pub(super) fn held_suspended(&self, mut spec: ServerSpec) -> ServerSpec {
        if spec.inactive.is_none()
            && let Some(suspension) = self.suspended.now().of_server(&spec.name)
        {
            let why = match suspension.reason.as_str() {
                "" => format!("suspended by {}", suspension.by),
                reason => format!("suspended by {}: {reason}", suspension.by),
            };
            spec.inactive = Some(InactiveReason::Suspended(why));
        }
        spec
    }
}
