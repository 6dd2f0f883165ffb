//! Views: what administrators see of servers and of the engine's health.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gantry_model::id::ServerId;
use gantry_model::naming::ToolId;
use gantry_model::spec::ServerSpec;

use crate::audit::AuditHealth;
use crate::catalog::Collision;
use crate::credentials::{Credentials, SignInView};
use crate::driver::{ImageReport, Usage};
use crate::image_store::ChangedTag;
use crate::pins::Pins;
use crate::server::catalog::ServerCatalog;
use crate::server::handle::ServerHandle;
use crate::server::link::BreakerView;
use crate::server::logs::{LogLine, LogStream};
use crate::server::pending::QueueView;
use crate::server::status::ServerStatus;
use crate::server::usage_history::UsageSample;
use crate::telemetry::ExportHealth;

/// The maximum number of tools of one server that are reported as having lost their names.
const MOST_NAMELESS: usize = 100;

/// One server, desired and observed.
#[derive(Debug, Clone)]
pub struct ServerView {
    /// Its identity.
    pub id: ServerId,
    /// Its desired configuration.
    pub spec: Arc<ServerSpec>,
    /// Its observed status.
    pub status: ServerStatus,
    /// Tools that are not in the joined list, since others have their names, and why.
    pub nameless: Vec<(String, String)>,
    /// Its calls.
    pub queue: QueueView,
    /// Its circuit breaker.
    pub breaker: BreakerView,
    /// Its current resource usage.
    pub usage: Option<Usage>,
    /// Its resource usage during the last minutes, oldest first.
    pub usage_history: Vec<UsageSample>,
    /// When it was registered, in milliseconds since 1970.
    pub created_ms: u64,
    /// The number of lines on its stdout that were not messages, and the last of them.
    pub noise: (u64, Vec<String>),
    /// Responses that arrived after their callers had left.
    pub late_replies: u64,
    /// Requests of the server that were refused.
    pub refused_requests: u64,
    /// Notifications of the server that were too long to be forwarded.
    pub dropped_notifications: u64,
    /// The state of the sign-in to a remote server.
    pub sign_in: Option<SignInView>,
    /// Its resources that are not in the joined list, since another server offers the same URI.
    pub collisions: Vec<Collision>,
    /// The new image of its tag, if it differs from the one it runs. fault C6
    pub changed_tag: Option<ChangedTag>,
    /// How many of its tools, prompts and templates are new or changed, and nobody decided on.
    pub unapproved: usize,
    /// What it lists now, to tell what is held back.
    offered: Arc<ServerCatalog>,
}

impl ServerView {
    pub(crate) fn of(handle: &ServerHandle) -> Self {
        let stray = |line: &LogLine| line.stream == LogStream::Stdout;
        let lines = handle.logs.last(usize::MAX);
        let stray: Vec<_> = lines
            .into_iter()
            .filter(stray)
            .map(|line| line.text)
            .collect();
        let last = stray[stray.len().saturating_sub(20)..].to_vec();
        // Read once and released: holding two read guards deadlocks with a waiting writer.
        let mut status = handle.status.borrow().clone();
        status.attempts.show(handle.logs.stderr_tail());
        let offered = handle.catalog.load_full();
        if !offered.hidden {
            status.count_unjudged(&offered.tools);
        }
        Self {
            id: handle.id,
            spec: Arc::clone(&handle.spec),
            status,
            nameless: Vec::new(),
            queue: handle.queue(),
            breaker: handle.breaker(),
            usage: (handle.usage)(),
            usage_history: handle.usage_history.samples(),
            created_ms: handle.created_ms,
            noise: (handle.counters.noise.load(Ordering::Relaxed), last),
            late_replies: handle.counters.late.load(Ordering::Relaxed),
            refused_requests: handle.counters.refused_requests.load(Ordering::Relaxed),
            dropped_notifications: handle.counters.dropped.load(Ordering::Relaxed),
            sign_in: handle.credentials.as_ref().map(Credentials::view),
            collisions: Vec::new(),
            changed_tag: None,
            unapproved: 0,
            offered: Arc::clone(&offered),
        }
    }

    /// Returns the view with the state of its image's tag.
    pub(crate) fn with_changed_tag(
        mut self,
        changed: impl Fn(&ImageReport) -> Option<ChangedTag>,
    ) -> Self {
        let running = self.status.hosting.as_deref();
        let running = running.and_then(|hosting| hosting.image.as_ref());
        self.changed_tag = running.and_then(changed);
        self
    }

    /// Returns the view with what is not approved; what is held back of it is not offered.
    pub(crate) fn with_pins(mut self, pins: &Pins) -> Self {
        if pins.is_open() || self.offered.hidden {
            return self;
        }
        self.unapproved = pins.undecided_of(self.id);
        let withheld = self.offered.without_unapproved(self.id, pins);
        let lost = |all: usize, left: usize| all.saturating_sub(left);
        let tools = lost(self.offered.tools.len(), withheld.tools.len());
        self.status.tools = self.status.tools.saturating_sub(tools);
        let prompts = lost(self.offered.prompts.len(), withheld.prompts.len());
        self.status.prompts = self.status.prompts.saturating_sub(prompts);
        let templates = lost(self.offered.templates.len(), withheld.templates.len());
        self.status.resources = self.status.resources.saturating_sub(templates);
        let new = withheld
            .excluded
            .into_iter()
            .skip(self.offered.excluded.len());
        self.status.excluded.extend(new.take(MOST_NAMELESS));
        self
    }

    /// Returns the view without the tools that lost their names to others: they are not offered.
    pub(crate) fn without(mut self, nameless: &[(ToolId, String)]) -> Self {
        let own = nameless
            .iter()
            .filter(|(id, _)| id.server == self.spec.name);
        for (id, why) in own {
            self.status.tools = self.status.tools.saturating_sub(1);
            if self.nameless.len() < MOST_NAMELESS {
                let tool = id.tool.escape_debug().to_string();
                let why = format!("it is not listed at `/mcp`: {why}");
                self.nameless.push((tool, why));
            }
        }
        self
    }

    /// Returns the view with its hidden resources.
    pub(crate) fn beside(mut self, collisions: &[Collision]) -> Self {
        let own = collisions.iter();
        let own = own.filter(|collision| collision.server == self.spec.name);
        self.collisions = own.cloned().collect();
        self
    }
}

/// The health of the engine, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthStatus {
    /// Healthy.
    Ok,
    /// Calls are made and recorded, but attention is needed: see the reasons.
    Degraded,
    /// Calls cannot be recorded, and are refused.
    Failing,
    /// The gateway is stopping.
    Stopping,
}

impl HealthStatus {
    /// Returns the status as shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failing => "failing",
            Self::Stopping => "stopping",
        }
    }
}

/// The health of the engine.
#[derive(Debug, Clone)]
pub struct Health {
    /// Whether calls can be made and recorded, and their record is intact.
    pub ok: bool,
    /// The same in one word.
    pub status: HealthStatus,
    /// Why it is degraded or failing.
    pub reasons: Vec<String>,
    /// The gateway is stopping.
    pub draining: bool,
    /// How many servers are in each state.
    pub servers: BTreeMap<&'static str, usize>,
    /// The health of the call record.
    pub audit: AuditHealth,
    /// Warnings for an administrator.
    pub warnings: Vec<String>,
    /// How the exports of traces and audit records are.
    pub exports: Vec<ExportHealth>,
}
