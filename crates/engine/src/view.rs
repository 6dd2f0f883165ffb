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

/// The most tools of one server that are named as having lost their names.
const MOST_NAMELESS: usize = 100;

/// One server, as wanted and as observed.
#[derive(Debug, Clone)]
pub struct ServerView {
    /// Its identity.
    pub id: ServerId,
    /// What is wanted of it.
    pub spec: Arc<ServerSpec>,
    /// What is observed of it.
    pub status: ServerStatus,
    /// Tools that are not offered to everybody at once, since others have their names, and why.
    pub nameless: Vec<(String, String)>,
    /// The calls on it.
    pub queue: QueueView,
    /// Calls in a row that it let go unanswered, and whether any is still sent.
    pub breaker: BreakerView,
    /// What it uses now.
    pub usage: Option<Usage>,
    /// What it used during the last minutes, oldest first.
    pub usage_history: Vec<UsageSample>,
    /// When it was registered, in milliseconds since 1970.
    pub created_ms: u64,
    /// Lines on its stdout that were no messages, and the last of them.
    pub noise: (u64, Vec<String>),
    /// Answers that nobody waited for any more.
    pub late_replies: u64,
    /// Requests of the server's that were refused.
    pub refused_requests: u64,
    /// Notifications of the server's that were too long to be passed on.
    pub dropped_notifications: u64,
    /// Where the sign-in to a remote server stands.
    pub sign_in: Option<SignInView>,
    /// What of it is not listed for all, since another server offers the same URI.
    pub collisions: Vec<Collision>,
    /// What the tag of its image points to now, if that is another image than the one it runs. fault C6
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
        // Read once and let go: who reads it twice at a time waits for a writer that waits for them.
        let mut status = handle.status.borrow().clone();
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

    /// Returns the view with what is known of the tag of its image.
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

    /// Returns the view with what of it is hidden behind others.
    pub(crate) fn beside(mut self, collisions: &[Collision]) -> Self {
        let own = collisions.iter();
        let own = own.filter(|collision| collision.server == self.spec.name);
        self.collisions = own.cloned().collect();
        self
    }
}

/// How the engine is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthStatus {
    /// Everything is as it should be.
    Ok,
    /// Calls are made and recorded, but somebody should look: the reasons say at what.
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

/// How the engine is.
#[derive(Debug, Clone)]
pub struct Health {
    /// Calls can be made and recorded, and nothing is wrong with their record.
    pub ok: bool,
    /// The same, and what else can be, in one word.
    pub status: HealthStatus,
    /// Why it is degraded or failing.
    pub reasons: Vec<String>,
    /// The gateway is stopping.
    pub draining: bool,
    /// How many servers are in which state.
    pub servers: BTreeMap<&'static str, usize>,
    /// How the record of calls is.
    pub audit: AuditHealth,
    /// What an administrator should look at.
    pub warnings: Vec<String>,
    /// How the exports of traces and audit records are.
    pub exports: Vec<ExportHealth>,
}
