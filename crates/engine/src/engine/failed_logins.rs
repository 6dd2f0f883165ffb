//! Failed logins: unknown keys are counted, reported as events and written to the audit.
//!
//! They belong to no project and are recorded in that of the data folder. A row has no agent and no
//! key, and never the text that was tried. Entry points: [`Engine::count_wrong_key`] and
//! [`Engine::report_wrong_keys`].

use std::time::Duration;

use gantry_model::caller::{Context, UserTrust};
use gantry_model::event::EventKind;
use gantry_model::id::ServerName;
use gantry_model::secret::Redactor;
use gantry_store::{CallStatus, ErrorKind};

use super::Engine;
use crate::audit::{Intent, Measurements, Outcome, Surface};
use crate::clock::unix_ms;

/// The code of such a row, as in the answer.
const WRONG_KEY: &str = "auth.wrong_key";

impl Engine {
    /// Counts a request with a key that is not known.
    pub fn count_wrong_key(&self) {
        self.inner.machine.metrics.wrong_key();
    }

    /// Records attempts with wrong keys, among the events of the server `native` and in the audit;
    /// the caller limits the rate. fault U5
    pub fn report_wrong_keys(&self, surface: Surface, what: String) {
        let events = &self.inner.default.router.events;
        events.report(&ServerName::native(), EventKind::WrongKeys, what.clone());
        let engine = self.clone();
        self.inner
            .machine
            .tracker
            .spawn(async move { engine.record_wrong_keys(surface, &what).await });
    }

    async fn record_wrong_keys(&self, surface: Surface, what: &str) {
        let (now, redactor) = (unix_ms(), Redactor::own_keys());
        let context = Context::default();
        let intent = Intent {
            id: self.inner.machine.ids.next(now),
            project: self.inner.default.name().as_str(),
            agent: "",
            key: "",
            context: &context,
            users: UserTrust::Asserted,
            surface,
            server: "",
            server_id: None,
            method: "",
            tool: "",
            schema_version: None,
            started_ms: now,
            input: None,
            redactor,
            policy_revision: None,
            grant: None,
            user_source: None,
        };
        let outcome = Outcome {
            status: CallStatus::Refused,
            code: Some(WRONG_KEY),
            error: Some(what),
            output: None,
            duration: Duration::ZERO,
            redactor,
            measured: Measurements::default(),
            error_kind: Some(ErrorKind::Policy),
        };
        if let Err(error) = self.inner.machine.audit.refusal(&intent, &outcome).await {
            tracing::warn!(
                error = gantry_model::diagnose::chain(&error),
                "wrong keys could not be recorded in the audit"
            );
        }
    }
}
