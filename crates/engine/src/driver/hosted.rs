//! What hosted servers have in common, be they commands or images: the sandbox, a bounded place on
//! disk, users of their own, the network they were granted, and a floor below which nothing starts.
//!
//! Only this module, `process` and `image` name the sandbox's types. Entry points: [`Hosted::open`]
//! and [`Hosted::start`].

mod control;
mod floor;
mod forward;
mod gvisor;
mod shown;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::{Bridge, EgressRule, Hosting, NetworkGrant, RemoteLaunch, ResourceLimits};
use gantry_sandbox::{
    Command, Floor, Hidden, Ids, Limits, Network, Sandbox, SandboxOptions, Scratch, SpawnError,
    Spawned,
};
use gantry_store::{Store, VolumeRow};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::control::HostedControl;
use self::floor::{FloorError, check_report};
pub(super) use self::floor::{Rungs, choose};
use self::forward::Way;
pub(super) use self::gvisor::Gvisor;
pub(super) use self::shown::{host_report, promises};
use self::shown::{isolation, limit_reports};
use super::{
    DriverError, HostFact, HostReport, HostingReport, ImageReport, InsideServer, Instance, Io,
    Labels, Stdin, Streams, Usage,
};
use crate::disk::{Disks, Owner, Place, PlaceRequest};
use crate::egress::Egress;

/// The search path of hosted servers: the gateway's own says where its owner has programs.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How much of a server's memory limit its scratch may take where it is memory.
const SCRATCH_SHARE: u64 = 4;
/// The most that such a scratch is given.
const MOST_SCRATCH: u64 = 256 << 20;
/// The least.
const LEAST_SCRATCH: u64 = 8 << 20;
/// Open descriptors of each process.
const NOFILE: u64 = 1024;
/// What the disk limit is for servers whose spec says nothing.
const DISK_BYTES: u64 = 1 << 30;

/// What the drivers of hosted servers share. One per gateway.
pub(crate) struct Hosted {
    pub(super) sandbox: Sandbox,
    pub(super) disks: Disks,
    pub(super) gvisor: Gvisor,
    pub(super) options: HostedOptions,
    /// Allocates users, once the store is open.
    store: OnceLock<Store>,
    /// How many servers start at a time.
    starts: Semaphore,
}

/// What the drivers of processes and images are given.
pub(crate) struct HostedOptions {
    /// The project of the data folder itself.
    pub(crate) project: ProjectName,
    /// Names the gateway, the same over its restarts.
    pub(crate) gateway: String,
    /// The variables that every process of a person's own gets.
    pub(crate) environment: Vec<(String, String)>,
    /// Hidden from servers, except each server's own folder in it.
    pub(crate) data_folder: PathBuf,
    /// Further folders that are hidden from servers.
    pub(crate) hidden: Vec<PathBuf>,
}

/// A hosted server that is about to start: what the driver asks for beside the command itself.
pub(super) struct HostedStart<'a> {
    pub(super) labels: &'a Labels,
    pub(super) hosting: &'a Hosting,
    pub(super) limits: ResourceLimits,
    pub(super) place: Arc<Place>,
    pub(super) volumes: Vec<PathBuf>,
    pub(super) provider: &'static str,
    pub(super) reason: String,
    pub(super) image: Option<ImageReport>,
    /// Kept until the instance has ended, such as the lock on an image's layers.
    pub(super) held: Box<dyn Send>,
}

impl Hosted {
    /// Tries what the host offers, and cleans up what an earlier process of this gateway left. Blocks.
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

    /// Has users allocated in this store from now on.
    pub(crate) fn use_store(&self, store: Store) {
        // Only the first is used.
        drop(self.store.set(store));
    }

    /// Returns what the servers keep on disk.
    pub(crate) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Returns what the host offers.
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

    /// Returns how the host offers a means of isolation, or why it does not.
    pub(super) fn has(&self, name: &str) -> Result<String, String> {
        match self.sandbox.host().fact(name) {
            Some(fact) if fact.available => Ok(fact.detail.clone()),
            Some(fact) => Err(fact.detail.clone()),
            None => Err(format!("this host says nothing of `{name}`")),
        }
    }

    /// Returns the users of a server: a range of its own where the gateway is root. One whose server
    /// writes outside of its place stays its own for good.
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

    /// Returns the digest of the image with which a registered server was ready last.
    pub(super) async fn known_digest(&self, labels: &Labels, image: &str) -> Option<String> {
        let rows = self.store.get()?.workspaces(&labels.project).await.ok()?;
        let mut rows = rows.into_iter();
        let row = rows.find(|row| row.name == labels.server)?;
        row.image_digest
            .filter(|_| row.image.as_deref() == Some(image))
    }

    /// Makes the place of a server on disk ready for a start.
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

    /// Has the store know the volumes; what the disk has counts, whatever the store does.
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

    /// Spawns a command and joins everything that belongs to a hosted instance.
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
        // A port of this machine that is taken fails the start before anything runs.
        let published = match &bridge {
            Bridge::Http {
                published: Some(port),
                ..
            } => Some(forward::publish(*port).await?),
            Bridge::Http { .. } | Bridge::Stdio => None,
        };
        // Judged before the program's first instruction, and again by what was done.
        command.floor = Floor::Whole;
        let permit = self.starts.acquire().await.map_err(DriverError::new)?;
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
        let way = Way::new(&spawned.tree, command.network);
        let shown = published.as_ref().map(|(_, address)| address.clone());
        if let (Some((listener, _)), Bridge::Http { port, .. }) = (published, &bridge) {
            tasks.spawn(forward::published(listener, way.clone(), *port));
        }
        let isolation = isolation(&spawned.report, &start, &command, shown.as_deref());
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
        // Whoever shows the usage does not keep the place from being removed.
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
                // Open for as long as it runs: many servers take its end for theirs.
                held = Box::new((held, stdin));
                let socket = forward::open_socket(&mut tasks, way, port)?;
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
                let usage = meter.read();
                Some(Usage {
                    cpu: usage.cpu,
                    memory_bytes: usage.memory_bytes,
                    pids: usage.pids,
                    pids_limit_hit: usage.pids_limit_hit,
                    disk_bytes: place.upgrade().and_then(|place| place.used_bytes()),
                })
            }),
            isolation: Some(isolation),
            hosting: Some(hosting),
        })
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

/// Returns the limits of the sandbox for those of a spec.
pub(super) fn sandbox_limits(limits: &ResourceLimits) -> Limits {
    Limits {
        cpu: limits.cpu,
        memory_bytes: limits.memory_bytes,
        pids: limits.pids,
        nofile: NOFILE,
    }
}

/// Returns where a server's scratch lies: on its bounded place, or in memory that counts as its own.
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

/// Returns what names a server's cgroup and picks its user: another in each project.
pub(super) fn label(project: Option<&ProjectName>, name: &ServerName) -> String {
    match project {
        // No name of a server has a slash in it.
        Some(project) => format!("{project}/{name}"),
        None => name.to_string(),
    }
}

/// Tries what the host offers.
pub(super) fn probe(instance: String) -> Result<Sandbox, DriverError> {
    Sandbox::probe(SandboxOptions { instance }).map_err(DriverError::new)
}

/// Finds a program along a search path of the host; nothing if it is not there or is a path itself.
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
