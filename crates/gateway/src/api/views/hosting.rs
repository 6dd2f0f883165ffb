//! The views of hosted servers: their image, their limits and whether these are enforced, their
//! last starts, their volumes.

use gantry_engine::{Attempt, ChangedTag, HostingReport, LimitReport, LimitValue, UsageSample};
use serde::Serialize;
use utoipa::ToSchema;

use super::image::ChangedTagView;
use super::rfc3339;

/// What a hosted server runs and is held to. row 1.13
#[derive(Serialize, ToSchema)]
pub(super) struct HostingView {
    /// The image; nothing for a command.
    image: Option<HostedImage>,
    /// What it may use, and whether that is enforced. row 1.16
    limits: Vec<LimitView>,
    /// The network it was given: `none`, `egress` or `full`.
    network: &'static str,
    /// The hosts and ports that it may connect to, if it has `egress`.
    egress: Vec<String>,
    /// The loopback address at which it is reached past the gateway.
    published: Option<String>,
    /// What that means: grants and audit do not apply there.
    published_warning: Option<&'static str>,
    /// The paths of its volumes.
    volumes: Vec<String>,
}

/// An image as an instance runs it.
#[derive(Serialize, ToSchema)]
struct HostedImage {
    reference: String,
    /// What the reference was resolved to when it was pulled.
    digest: String,
    platform: String,
    /// Its layers, lowest first.
    layers: Vec<HostedLayer>,
    pulled: String,
    pulled_ms: u64,
    /// The user that the image asks for.
    user: Option<String>,
    /// What its tag is now in the registry, if it was seen to be another image; `pull` of a restart takes
    /// it.
    changed: Option<ChangedTagView>,
}

#[derive(Serialize, ToSchema)]
struct HostedLayer {
    digest: String,
    bytes: u64,
}

/// One limit, and whether it is enforced.
#[derive(Serialize, ToSchema)]
struct LimitView {
    /// `cpu`, `memory`, `pids` or `disk`.
    name: &'static str,
    /// Cores, bytes or a number of processes.
    value: f64,
    /// `enforced`, `not_enforced` or `not_asked`.
    state: &'static str,
    /// How it is enforced, or why it is not.
    detail: String,
}

impl HostingView {
    pub(super) fn of(report: &HostingReport, changed: Option<&ChangedTag>) -> Self {
        let warning = "grants and audit do not apply to this port";
        Self {
            image: report.image.as_ref().map(|image| HostedImage {
                reference: image.reference.clone(),
                digest: image.digest.clone(),
                platform: image.platform.clone(),
                layers: image
                    .layers
                    .iter()
                    .map(|layer| HostedLayer {
                        digest: layer.digest.clone(),
                        bytes: layer.bytes,
                    })
                    .collect(),
                pulled: rfc3339(image.pulled_ms),
                pulled_ms: image.pulled_ms,
                user: image.user.clone(),
                changed: changed.map(ChangedTagView::of),
            }),
            limits: report.limits.iter().map(LimitView::of).collect(),
            network: report.network,
            egress: report.egress.clone(),
            published: report.published.clone(),
            published_warning: report.published.as_ref().map(|_| warning),
            volumes: report.volumes.clone(),
        }
    }
}

impl LimitView {
    fn of(limit: &LimitReport) -> Self {
        Self {
            name: limit.name,
            value: match limit.value {
                LimitValue::Cores(cores) => cores,
                LimitValue::Bytes(number) | LimitValue::Count(number) => number as f64,
            },
            state: limit.state.as_str(),
            detail: limit.detail.clone(),
        }
    }
}

/// One start of a server. row 1.9
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct AttemptView {
    /// Counts the starts of the server, from 1.
    number: u64,
    started: String,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// Whether the server became ready.
    was_ready: bool,
    /// How it ended, in a sentence.
    how: Option<String>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    oom_killed: bool,
    pids_limit_hit: bool,
    /// The end of what it wrote to stderr.
    stderr: String,
}

impl AttemptView {
    pub(in crate::api) fn of(attempt: &Attempt) -> Self {
        Self {
            number: attempt.number,
            started: rfc3339(attempt.started_ms),
            started_ms: attempt.started_ms,
            ended_ms: attempt.ended_ms,
            was_ready: attempt.was_ready,
            how: attempt.how.clone(),
            exit_code: attempt.exit_code,
            signal: attempt.signal,
            oom_killed: attempt.oom_killed,
            pids_limit_hit: attempt.pids_limit_hit,
            stderr: attempt.stderr_tail.clone(),
        }
    }
}

/// What a server used at a moment.
#[derive(Serialize, ToSchema)]
pub(super) struct UsageSampleView {
    at_ms: u64,
    /// Processor cores used since the sample before.
    cpu_cores: f64,
    memory_bytes: u64,
    pids: u64,
    disk_bytes: Option<u64>,
}

impl UsageSampleView {
    pub(super) fn of(sample: &UsageSample) -> Self {
        Self {
            at_ms: sample.at_ms,
            cpu_cores: sample.cpu_cores,
            memory_bytes: sample.memory_bytes,
            pids: sample.pids,
            disk_bytes: sample.disk_bytes,
        }
    }
}

/// A volume.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct VolumeView {
    /// The server that it belongs to, by name; it may be gone.
    server: String,
    /// Its path inside the server.
    path: String,
    /// What its files take.
    bytes: u64,
    files: u64,
    /// Whether an instance uses it now.
    in_use: bool,
    /// Whether a server of that name is there.
    has_server: bool,
}

impl VolumeView {
    pub(in crate::api) fn of(volume: &gantry_engine::VolumeView, has_server: bool) -> Self {
        Self {
            server: volume.server.to_string(),
            path: volume.path.display().to_string(),
            bytes: volume.bytes,
            files: volume.files,
            in_use: volume.in_use,
            has_server,
        }
    }
}
