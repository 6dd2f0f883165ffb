//! The views of servers: spec, status, resource usage and limits.

use std::time::Duration;

use gantry_engine::{Collision, Promise, ServerStatus, ServerView, UncheckedPart, Usage};
use gantry_model::pin::Finding;
use gantry_model::spec::{ProcessLaunch, Profile, RemoteLaunch, ServerSpec, Source, Start};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::hosting::{AttemptView, HostingView, UsageSampleView};
use super::rfc3339;
use super::sign_in::SignInStatus;
use super::spec::SpecView;

/// A server in a list.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ServerSummary {
    id: String,
    name: String,
    description: Option<String>,
    state: &'static str,
    reason: Option<String>,
    command: Option<String>,
    /// The image that it runs, as registered.
    image: Option<String>,
    /// The digest of the image that it runs.
    image_digest: Option<String>,
    /// Whether the tag of its image is another image now; a restart with `pull` takes that.
    image_changed: bool,
    url: Option<String>,
    transport: &'static str,
    profile: &'static str,
    source: &'static str,
    /// Its configuration file, if any.
    file: Option<String>,
    start: &'static str,
    uptime_ms: Option<u64>,
    restart_count: u32,
    next_try: Option<NextTry>,
    /// How many tools it offers.
    tools: usize,
    /// How many tools have schema parts that are not checked.
    unchecked_tools: usize,
    /// How many listed tools cannot be offered.
    refused_tools: usize,
    /// How many of its tools, prompts and templates are new or changed, and nobody decided on.
    unapproved: usize,
    /// How many of its resources are not listed at `/mcp`, since another server has the same URI.
    hidden_resources: usize,
    health_warning: bool,
    in_flight: usize,
    waiting: usize,
}

impl ServerSummary {
    /// Shows a server in a list. row 1.14
    pub(in crate::api) fn of(server: &ServerView, now_ms: u64) -> Self {
        let (spec, status) = (&server.spec, &server.status);
        Self {
            id: server.id.to_string(),
            name: spec.name.to_string(),
            description: spec.description.clone(),
            state: status.state.as_str(),
            reason: status.reason.clone(),
            command: command(spec),
            image: image(spec),
            image_digest: image_digest(server),
            image_changed: server.changed_tag.is_some(),
            url: url(spec),
            transport: status.transport.unwrap_or(spec.launch.transport()),
            profile: profile(spec),
            source: source(spec),
            file: spec.file.as_ref().map(|file| file.display().to_string()),
            start: start(spec),
            uptime_ms: status.uptime().map(milliseconds),
            restart_count: status.restarts,
            next_try: NextTry::of(status, now_ms),
            tools: status.tools,
            unchecked_tools: status.unchecked_tools,
            refused_tools: status.refused_tools,
            unapproved: server.unapproved,
            hidden_resources: server.collisions.len(),
            health_warning: status.health_warning,
            in_flight: server.queue.in_flight,
            waiting: server.queue.waiting,
        }
    }
}

/// Something in a server's texts that a person should look at.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct TextFinding {
    /// The tool, prompt or resource, or `instructions`.
    of: String,
    /// Which rule found it.
    #[schema(example = "override")]
    rule: String,
    /// Where, as a JSON pointer into the definition.
    path: String,
    /// The text around it.
    text: String,
}

impl TextFinding {
    fn of((of, finding): &(String, Finding)) -> Self {
        Self {
            of: of.clone(),
            rule: finding.rule.clone(),
            path: finding.path.clone(),
            text: finding.text.clone(),
        }
    }
}

/// A server with everything that is known of it.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ServerStatusView {
    #[serde(flatten)]
    summary: ServerSummary,
    since: String,
    since_ms: u64,
    created_ms: u64,
    pid: Option<u32>,
    /// The generation of the running instance: grows with every start, not always by one.
    generation: u64,
    protocol_version: Option<String>,
    #[schema(value_type = Option<Object>)]
    server_info: Option<Box<RawValue>>,
    instructions: Option<String>,
    prompts: usize,
    resources: usize,
    /// Its resources that are not listed at `/mcp`; they are available at `/mcp/servers/{name}`.
    hidden: Vec<Hidden>,
    excluded: Vec<Excluded>,
    /// What in its texts a person should look at: instructions to models, and what nobody sees.
    findings: Vec<TextFinding>,
    /// Schema parts that are not checked, the first 100 of them.
    unchecked: Vec<UncheckedView>,
    last_crash: Option<CrashView>,
    usage: UsageView,
    /// What it used during the last minutes, oldest first.
    usage_history: Vec<UsageSampleView>,
    /// What it runs and is held to as a hosted server; absent before its first start.
    hosting: Option<HostingView>,
    /// Its last starts, oldest first.
    attempts: Vec<AttemptView>,
    /// Its isolation, and why it was chosen; absent for a remote server.
    provider: Option<ProviderView>,
    isolation: Option<Vec<PromiseView>>,
    queue: QueueView,
    breaker: BreakerView,
    late_replies: u64,
    refused_requests: u64,
    /// Notifications that were too long to be forwarded.
    dropped_notifications: u64,
    noise: NoiseView,
    /// The sign-in status of a remote server.
    sign_in: Option<SignInStatus>,
    spec: SpecView,
}

impl ServerStatusView {
    /// Shows everything that is known of a server. row 1.13
    pub(in crate::api) fn of(server: &ServerView, now_ms: u64) -> Self {
        let (spec, status) = (&server.spec, &server.status);
        let info = status
            .server_info
            .clone()
            .and_then(|info| RawValue::from_string(info).ok());
        let excluded = status.excluded.iter().chain(&server.nameless);
        let crash = status.last_crash.as_ref();
        let isolation = status.isolation.as_ref();
        Self {
            summary: ServerSummary::of(server, now_ms),
            since: rfc3339(status.since_ms),
            since_ms: status.since_ms,
            created_ms: server.created_ms,
            pid: status.pid,
            generation: status.generation,
            protocol_version: status.protocol_version.clone(),
            server_info: info,
            instructions: status.instructions.clone(),
            prompts: status.prompts,
            resources: status.resources,
            hidden: server.collisions.iter().map(Hidden::of).collect(),
            excluded: excluded
                .map(|(tool, reason)| Excluded {
                    tool: tool.clone(),
                    reason: reason.clone(),
                })
                .collect(),
            findings: status.findings.iter().map(TextFinding::of).collect(),
            unchecked: status.unchecked.iter().map(UncheckedView::of).collect(),
            last_crash: crash.map(|crash| CrashView {
                at: rfc3339(crash.at_ms),
                at_ms: crash.at_ms,
                how: crash.how.clone(),
                stderr: crash.stderr_tail.clone(),
            }),
            usage: UsageView::of(server.usage, spec),
            usage_history: server
                .usage_history
                .iter()
                .map(UsageSampleView::of)
                .collect(),
            hosting: status
                .hosting
                .as_deref()
                .map(|report| HostingView::of(report, server.changed_tag.as_ref())),
            attempts: status.attempts.iter().map(AttemptView::of).collect(),
            provider: isolation.map(|report| ProviderView {
                name: report.provider,
                reason: report.reason.clone(),
            }),
            isolation: isolation
                .map(|report| report.promises.iter().map(PromiseView::of).collect()),
            queue: QueueView {
                in_flight: server.queue.in_flight,
                waiting: server.queue.waiting,
                limit: spec.calls.queue,
                lanes: server.queue.lanes,
                closed_lanes: server.queue.closed_lanes,
            },
            breaker: BreakerView::of(server.breaker),
            late_replies: server.late_replies,
            refused_requests: server.refused_requests,
            dropped_notifications: server.dropped_notifications,
            noise: NoiseView {
                lines: server.noise.0,
                last: server.noise.1.clone(),
            },
            sign_in: server.sign_in.clone().map(SignInStatus::of),
            spec: SpecView::of(spec),
        }
    }
}

/// The next restart attempt.
#[derive(Serialize, ToSchema)]
struct NextTry {
    at: String,
    at_ms: u64,
    in_ms: u64,
    text: String,
}

impl NextTry {
    fn of(status: &ServerStatus, now_ms: u64) -> Option<Self> {
        let in_ms = milliseconds(status.next_try_in()?);
        let at_ms = now_ms.saturating_add(in_ms);
        let text = match in_ms {
            0 => "next try now".to_owned(),
            1..1000 => format!("next try in {in_ms} ms"),
            _ => format!("next try in {} s", in_ms.div_ceil(1000)),
        };
        Some(Self {
            at: rfc3339(at_ms),
            at_ms,
            in_ms,
            text,
        })
    }
}

#[derive(Serialize, ToSchema)]
struct Excluded {
    tool: String,
    reason: String,
}

/// A part of a tool's schema that is not checked.
#[derive(Serialize, ToSchema)]
struct UncheckedView {
    tool: String,
    /// `inputSchema` or `outputSchema`, and a JSON pointer into it.
    part: String,
    reason: String,
}

impl UncheckedView {
    fn of(part: &UncheckedPart) -> Self {
        Self {
            tool: part.tool.clone(),
            part: part.part.clone(),
            reason: part.reason.clone(),
        }
    }
}

/// A resource or template that is not listed at `/mcp`.
#[derive(Serialize, ToSchema)]
struct Hidden {
    /// Its URI or template.
    uri: String,
    /// The server whose resource of the same URI is listed.
    behind: String,
}

impl Hidden {
    fn of(collision: &Collision) -> Self {
        Self {
            uri: collision.uri.clone(),
            behind: collision.listed.to_string(),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct CrashView {
    at: String,
    at_ms: u64,
    how: String,
    stderr: String,
}

// row 1.16
/// Resource usage and limits.
#[derive(Serialize, ToSchema)]
struct UsageView {
    cpu_ms: Option<u64>,
    cpu_limit: Option<f64>,
    memory_bytes: Option<u64>,
    memory_limit_bytes: Option<u64>,
    pids: Option<u64>,
    pids_limit: Option<u64>,
    /// Whether it ran into its limit of processes within the last seconds.
    pids_limit_hit: bool,
    disk_bytes: Option<u64>,
    disk_limit_bytes: Option<u64>,
}

impl UsageView {
    fn of(usage: Option<Usage>, spec: &ServerSpec) -> Self {
        let limits = spec.launch.limits();
        Self {
            cpu_ms: usage.map(|usage| usage.cpu.as_millis() as u64),
            cpu_limit: limits.cpu,
            memory_bytes: usage.map(|usage| usage.memory_bytes),
            memory_limit_bytes: limits.memory_bytes,
            pids: usage.map(|usage| usage.pids),
            pids_limit: limits.pids,
            pids_limit_hit: usage.is_some_and(|usage| usage.pids_limit_hit),
            disk_bytes: usage.and_then(|usage| usage.disk_bytes),
            disk_limit_bytes: limits.disk_bytes,
        }
    }
}

/// Resource usage at a moment, in the event stream.
#[derive(Serialize)]
pub(in crate::api) struct UsageEvent {
    server: String,
    #[serde(flatten)]
    usage: UsageView,
    in_flight: usize,
    waiting: usize,
}

impl UsageEvent {
    /// Shows what a server uses now.
    pub(in crate::api) fn of(server: &ServerView) -> Self {
        Self {
            server: server.spec.name.to_string(),
            usage: UsageView::of(server.usage, &server.spec),
            in_flight: server.queue.in_flight,
            waiting: server.queue.waiting,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct ProviderView {
    name: &'static str,
    reason: String,
}

#[derive(Serialize, ToSchema)]
struct PromiseView {
    name: &'static str,
    state: &'static str,
    detail: String,
}

impl PromiseView {
    fn of(promise: &Promise) -> Self {
        Self {
            name: promise.name,
            state: promise.state.as_str(),
            detail: promise.detail.clone(),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct QueueView {
    in_flight: usize,
    waiting: usize,
    limit: u32,
    lanes: u32,
    closed_lanes: u32,
}

/// The state of the circuit breaker.
#[derive(Serialize, ToSchema)]
struct BreakerView {
    state: &'static str,
    unanswered: u32,
    next_try_in_ms: Option<u64>,
}

impl BreakerView {
    fn of(breaker: gantry_engine::BreakerView) -> Self {
        let state = match breaker.refuses_for {
            None => "closed",
            Some(Duration::ZERO) => "half_open",
            Some(_) => "open",
        };
        Self {
            state,
            unanswered: breaker.unanswered,
            next_try_in_ms: breaker.refuses_for.map(|time| time.as_millis() as u64),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct NoiseView {
    lines: u64,
    last: Vec<String>,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the isolation profile; `remote` for a remote server.
pub(in crate::api) fn profile(spec: &ServerSpec) -> &'static str {
    spec.profile().map_or("remote", Profile::as_str)
}

/// Returns the command of a server, if it has one.
pub(in crate::api) fn command(spec: &ServerSpec) -> Option<String> {
    spec.launch.process().map(ProcessLaunch::shown_command)
}

fn image_digest(server: &ServerView) -> Option<String> {
    let hosting = server.status.hosting.as_deref()?;
    hosting.image.as_ref().map(|image| image.digest.clone())
}

/// Returns the image of a server, if it is one.
pub(in crate::api) fn image(spec: &ServerSpec) -> Option<String> {
    spec.launch.image().map(|image| image.image.clone())
}

/// Returns the URL of a remote server, without secrets.
pub(in crate::api) fn url(spec: &ServerSpec) -> Option<String> {
    spec.launch.remote().map(RemoteLaunch::shown_url)
}

fn source(spec: &ServerSpec) -> &'static str {
    match spec.source {
        Source::File => "file",
        Source::Api => "api",
        Source::Builtin => "builtin",
    }
}

/// Returns when a server starts.
pub(in crate::api) fn start(spec: &ServerSpec) -> &'static str {
    match spec.start {
        Start::Eager => "eager",
        Start::Lazy => "lazy",
    }
}
