//! The common part of hosted servers, commands and images: the sandbox, a place of limited size on
//! disk, separate users, the granted network, and a required level of isolation.
//!
//! Only this module, `process` and `image` use the sandbox's types. Entry points: [`Hosted::open`]
//! and [`Hosted::start`].

mod control;
mod floor;
mod forward;
mod gvisor;
mod memory;
mod rungs;
mod shown;
mod sockets;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::{Bridge, EgressRule, Hosting, NetworkGrant, RemoteLaunch, ResourceLimits};
use gantry_sandbox::{
    Command, Floor, Hidden, Ids, Limits, Meter, Network, Sandbox, SandboxOptions, Scratch,
    SpawnError, Spawned,
};
use gantry_store::{Store, VolumeRow};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::control::HostedControl;
use self::floor::{FloorError, check_report};
pub(super) use self::floor::{Rungs, choose};
use self::forward::Dialer;
pub(super) use self::gvisor::Gvisor;
pub(super) use self::rungs::namespaces;
pub use self::rungs::probe_host;
pub(super) use self::shown::{host_report, promises};
use self::shown::{isolation, limit_reports, watched_memory};
use super::{
    DriverError, HostFact, HostReport, HostingReport, ImageReport, InsideServer, Instance, Io,
    Labels, Stdin, Streams, Usage,
};
use crate::disk::{Disks, Owner, Place, PlaceRequest};
use crate::egress::Egress;

/// The `PATH` of hosted servers; the gateway's own would show where its owner has programs.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The share of a server's memory limit for a scratch space in memory, as a divisor.
const SCRATCH_SHARE: u64 = 4;
/// The maximum size of such a scratch space.
const MOST_SCRATCH: u64 = 256 << 20;
/// The minimum size.
const LEAST_SCRATCH: u64 = 8 << 20;
/// The limit of open descriptors of each process.
const NOFILE: u64 = 1024;
/// How long a start waits for earlier ones.
const LONGEST_TURN: Duration = Duration::from_secs(2);
/// The default disk limit.
const DISK_BYTES: u64 = 1 << 30;

/// Shared by the drivers of hosted servers. One per gateway.
pub(crate) struct Hosted {
    pub(super) sandbox: Sandbox,
    pub(super) disks: Disks,
    pub(super) gvisor: Gvisor,
    pub(super) options: HostedOptions,
    /// The store that allocates user ids, once it is open.
    store: OnceLock<Store>,
    /// Limits how many servers start at once, for a moment.
    starts: Semaphore,
}

/// The options of the process and image drivers.
pub(crate) struct HostedOptions {
    /// The project of the data folder.
    pub(crate) project: ProjectName,
    /// Identifies the gateway; the same over its restarts.
    pub(crate) gateway: String,
    /// The variables of a user's own processes.
    pub(crate) environment: Vec<(String, String)>,
    /// Hidden from servers, except each server's own folder in it.
    pub(crate) data_folder: PathBuf,
    /// Additional folders that are hidden from servers.
    pub(crate) hidden: Vec<PathBuf>,
}

/// A hosted server that is about to start: the driver's parameters besides the command.
pub(super) struct HostedStart<'a> {
    pub(super) labels: &'a Labels,
    pub(super) hosting: &'a Hosting,
    pub(super) limits: ResourceLimits,
    pub(super) place: Arc<Place>,
    pub(super) volumes: Vec<PathBuf>,
    pub(super) provider: &'static str,
    pub(super) reason: String,
    pub(super) image: Option<ImageReport>,
    /// Held until the instance has ended, such as the lock on an image's layers.
    pub(super) held: Box<dyn Send>,
}

impl Hosted {
    /// Probes the host, and removes the leftovers of an earlier process of this gateway. Blocks.
    pub(crate) fn open(options: HostedOptions) -> Result<Self, DriverError> {
        let sandbox = probe(options.gateway.clone())?;
        let data_folder = &options.data_folder;
        let folders = options.hidden.iter().chain([data_folder]);
        let hidden = Hidden {
            folders: folders.cloned().collect(),
            shared: Some(data_folder.clone()),
            private: ["keys", "journal"]
                .map(|name| data_folder.join(name))
                .into(),
        };
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(Self {
            sandbox: sandbox.hiding(hidden),
            disks: Disks::open(data_folder.join("hosted")),
            gvisor: Gvisor::find(&options.environment),
            store: OnceLock::new(),
            starts: Semaphore::new(2 * cores),
            options,
        })
    }

    /// Sets the store that allocates user ids.
    pub(crate) fn use_store(&self, store: Store) {
        // Only the first is used.
        drop(self.store.set(store));
    }

    /// Returns the storage of the servers.
    pub(crate) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Returns what the host supports.
    pub(super) fn host_report(&self) -> HostReport {
        let mut report = host_report(&self.sandbox);
        let (available, detail) = match self.disks.how() {
            None => return report,
            Some(Ok(how)) => (true, how.to_owned()),
            Some(Err(why)) => (false, why),
        };
        report.facts.push(HostFact {
            name: "disk_limits",
            available,
            detail,
        });
        report
    }

    /// Returns how the host supports an isolation feature, or why it does not.
    pub(super) fn has(&self, name: &str) -> Result<String, String> {
        fact(&self.sandbox, name)
    }

    /// Returns the user ids of a server: a separate range if the gateway is root. The range of a
    /// server that writes outside its place is never reused.
    pub(super) async fn ids(
        &self,
        labels: &Labels,
        writes_outside: bool,
    ) -> Result<Ids, DriverError> {
        let Some(store) = self.store.get().filter(|_| self.has("id range").is_ok()) else {
            return Ok(Ids::Gateway);
        };
        let seed = self.options.gateway.bytes().fold(0_u64, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let (project, server) = (&labels.project, &labels.server);
        let range = store.id_range(project, server, seed).await;
        let first = range.map_err(DriverError::new)?;
        if writes_outside {
            let kept = store.keep_id_range(project, server).await;
            kept.map_err(DriverError::new)?;
        }
        Ok(Ids::Range { first })
    }

    /// Returns the digest of the image with which a registered server last became ready.
    pub(super) async fn known_digest(&self, labels: &Labels, image: &str) -> Option<String> {
        let rows = self.store.get()?.workspaces(&labels.project).await.ok()?;
        let mut rows = rows.into_iter();
        let row = rows.find(|row| row.name == labels.server)?;
        row.image_digest
            .filter(|_| row.image.as_deref() == Some(image))
    }

    /// Prepares the place of a server on disk for a start.
    pub(super) async fn place(
        &self,
        labels: &Labels,
        limits: &ResourceLimits,
        volumes: &[PathBuf],
        outside: &[PathBuf],
    ) -> Result<Arc<Place>, DriverError> {
        let (disks, volumes) = (self.disks.clone(), volumes.to_vec());
        let owner = Owner {
            project: labels.project.clone(),
            server: labels.server.clone(),
        };
        let limit_bytes = limits.disk_bytes.unwrap_or(DISK_BYTES);
        let (known, outside) = (volumes.clone(), outside.to_vec());
        let preparing = tokio::task::spawn_blocking(move || {
            disks.prepare(&PlaceRequest {
                owner,
                limit_bytes,
                volumes: &volumes,
                outside: &outside,
            })
        });
        let prepared = preparing.await.map_err(DriverError::new)?;
        let place = prepared.map_err(DriverError::new)?;
        self.note_volumes(labels, &place, &known).await;
        Ok(place)
    }

    /// Records the volumes in the store. Errors are only logged: the disk is authoritative.
    async fn note_volumes(&self, labels: &Labels, place: &Place, volumes: &[PathBuf]) {
        let Some(store) = self.store.get() else {
            return;
        };
        for path in volumes {
            let row = VolumeRow {
                project: labels.project.clone(),
                server: labels.server.clone(),
                path: path.display().to_string(),
                folder: place.volume(path).display().to_string(),
                created_ms: crate::clock::unix_ms(),
            };
            if let Err(error) = store.put_volume(&row).await {
                let why = gantry_model::diagnose::chain(&error);
                tracing::warn!(server = %labels.server, why, "a volume is not in the store");
            }
        }
    }

    /// Spawns a command and assembles the hosted instance.
    pub(super) async fn start(
        &self,
        mut command: Command,
        start: HostedStart<'_>,
    ) -> Result<Instance, DriverError> {
        let bridge = start.hosting.bridge();
        let grant = start.hosting.network_in_force();
        let egress = match &grant {
            NetworkGrant::Egress(rules) => {
                let name = start.labels.server.to_string();
                Some(Egress::new(name, rules.clone()))
            }
            NetworkGrant::None | NetworkGrant::Full => None,
        };
        command.network = network(&grant, &bridge);
        for (name, value) in egress.iter().flat_map(|egress| egress.environment()) {
            if !command.env.iter().any(|(known, _)| *known == name) {
                command.env.push((name, value));
            }
        }
        // If a published port is in use, the start fails before anything runs.
        let published = match &bridge {
            Bridge::Http {
                published: Some(port),
                ..
            } => Some(forward::publish(*port).await?),
            Bridge::Http { .. } | Bridge::Stdio => None,
        };
        // Checked before the program runs, and again in the report.
        command.floor = Floor::Whole;
        // A start that takes long, such as a guest's with little CPU, holds up no other for long.
        let permit = timeout(LONGEST_TURN, self.starts.acquire()).await;
        let spawned = self.sandbox.spawn(&command).await;
        let spawned = spawned.map_err(|error| {
            let SpawnError::NotWhole { missing } = error else {
                return DriverError::new(error);
            };
            let provider = start.provider;
            DriverError::new(FloorError::NotWhole { provider, missing })
        })?;
        drop(permit);
        check_report(&spawned.report, start.provider, &grant).map_err(DriverError::new)?;
        let mut tasks = JoinSet::new();
        if let Some(egress) = egress {
            let inside = spawned.tree.inside();
            forward::open_egress(&mut tasks, &inside, &egress).await?;
        }
        let dialer = Dialer::new(&spawned.tree, command.network);
        let shown = published.as_ref().map(|(_, address)| address.clone());
        if let (Some((listener, _)), Bridge::Http { port, .. }) = (published, &bridge) {
            tasks.spawn(forward::published(listener, dialer.clone(), *port));
        }
        let isolation = isolation(&spawned.report, &start, &command, shown.as_deref());
        if let Some(limit) = watched_memory(&isolation, &start) {
            let place = Arc::downgrade(&start.place);
            tasks.spawn(memory::watch(spawned.tree.meter(), limit, place));
        }
        // A network of its own; the host's cannot be told apart by server.
        if command.network != Network::Full {
            let place = Arc::downgrade(&start.place);
            let memory = start.limits.memory_bytes;
            tasks.spawn(sockets::watch(spawned.tree.meter(), memory, place));
        }
        let limits = limit_reports(&isolation, &start);
        let hosting = HostingReport {
            image: start.image,
            limits,
            network: match grant {
                NetworkGrant::None => "none",
                NetworkGrant::Egress(_) => "egress",
                NetworkGrant::Full => "full",
            },
            egress: rules(&grant),
            published: shown,
            volumes: start
                .volumes
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
        };
        let unnamed = spawned.tree.meter();
        start
            .place
            .count_unnamed(Box::new(move |devices| unnamed.unnamed_files(devices)));
        // A reader of usage figures must not prevent the removal of the place.
        let (meter, place) = (spawned.tree.meter(), Arc::downgrade(&start.place));
        let mut held = start.held;
        let Spawned {
            tree,
            stdin,
            stdout,
            stderr,
            ..
        } = spawned;
        let io = match bridge {
            Bridge::Stdio => Io::Streams(Streams {
                stdin: Stdin::Pipe(stdin),
                stdout: Box::new(stdout),
                stderr: Some(Box::new(stderr)),
            }),
            Bridge::Http { port, path, .. } => {
                // Kept open while the server runs: many servers exit at the end of their input.
                held = Box::new((held, stdin));
                let socket = forward::open_socket(&mut tasks, dialer, port)?;
                let mut address = RemoteLaunch::new(format!("http://127.0.0.1:{port}{path}"));
                address.transport = start.hosting.transport;
                Io::Inside(Box::new(InsideServer {
                    address,
                    socket,
                    output: vec![Box::new(stdout), Box::new(stderr)],
                }))
            }
        };
        Ok(Instance {
            io,
            pid: Some(tree.pid()),
            control: Box::new(HostedControl::new(tree, start.place, tasks, held)),
            usage: Arc::new(move || {
                let disk = place.upgrade().and_then(|place| place.used_bytes());
                Some(usage(&meter, disk))
            }),
            isolation: Some(isolation),
            hosting: Some(hosting),
        })
    }
}

/// Returns what a tree uses, and its files.
pub(super) fn usage(meter: &Meter, disk_bytes: Option<u64>) -> Usage {
    let used = meter.read();
    Usage {
        cpu: used.cpu,
        memory_bytes: used.memory_bytes,
        pids: used.pids,
        pids_limit_hit: used.pids_limit_hit,
        disk_bytes,
    }
}

fn network(grant: &NetworkGrant, bridge: &Bridge) -> Network {
    match (grant, bridge) {
        (NetworkGrant::Full, _) => Network::Full,
        (NetworkGrant::Egress(_), _) | (NetworkGrant::None, Bridge::Http { .. }) => Network::Inside,
        (NetworkGrant::None, Bridge::Stdio) => Network::None,
    }
}

fn rules(grant: &NetworkGrant) -> Vec<String> {
    match grant {
        NetworkGrant::Egress(rules) => rules.iter().map(EgressRule::to_string).collect(),
        NetworkGrant::None | NetworkGrant::Full => Vec::new(),
    }
}

/// Converts the limits of a spec for the sandbox.
pub(super) fn sandbox_limits(limits: &ResourceLimits) -> Limits {
    Limits {
        cpu: limits.cpu,
        memory_bytes: limits.memory_bytes,
        pids: limits.pids,
        nofile: NOFILE,
    }
}

/// Returns the location of a server's scratch space: in its place on disk, or in memory.
pub(super) fn scratch(place: &Place, limits: &ResourceLimits) -> Scratch {
    let is_bounded = place.is_bounded();
    let memory = limits.memory_bytes.unwrap_or(MOST_SCRATCH * SCRATCH_SHARE);
    let bytes = (memory / SCRATCH_SHARE).clamp(LEAST_SCRATCH, MOST_SCRATCH);
    Scratch {
        folder: is_bounded.then(|| place.scratch()),
        bytes: bytes.min(place.limit()),
        inodes: Scratch::default().inodes,
    }
}

/// Returns the label that names a server's cgroup and determines its user; unique across projects.
pub(super) fn label(project: Option<&ProjectName>, name: &ServerName) -> String {
    match project {
        // The name of a server never contains a slash.
        Some(project) => format!("{project}/{name}"),
        None => name.to_string(),
    }
}

/// Probes what the host supports.
pub(super) fn probe(instance: String) -> Result<Sandbox, DriverError> {
    Sandbox::probe(SandboxOptions { instance }).map_err(DriverError::new)
}

/// Returns how a host supports an isolation feature, or why it does not.
fn fact(sandbox: &Sandbox, name: &str) -> Result<String, String> {
    match sandbox.host().fact(name) {
        Some(fact) if fact.available => Ok(fact.detail.clone()),
        Some(fact) => Err(fact.detail.clone()),
        None => Err(format!("this host says nothing of `{name}`")),
    }
}

/// Finds a program on a search path of the host; `None` if it is missing or given as a path.
pub(super) fn on_path(program: &str, path: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    if program.contains('/') {
        return None;
    }
    let found = path
        .split(':')
        .map(|folder| Path::new(folder).join(program));
    let mut found = found.filter(|candidate| candidate.is_absolute());
    found.find(|candidate| {
        std::fs::metadata(candidate)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}
