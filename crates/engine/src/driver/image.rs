//! The driver of servers that are images: `gantry-images` pulls and unpacks them, Gantry's own init
//! runs them on a root made of their layers, in gVisor or in namespaces. No container engine.
//!
//! No instance outlives the gateway, so there is nothing to recover. Entry point:
//! [`ImageDriver::new`].

mod fill;
mod plan;
mod pull;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use futures_util::future::BoxFuture;
use gantry_images::{ImageRecord, RootLayers};
use gantry_model::id::ProjectName;
use gantry_model::spec::{ImageLaunch, Provider, Rung, ServerSpec};
use gantry_sandbox::{
    Command, GVisor, Ids, Mount, MountKind, OwnRoot, Root, RootBase, Runtime, Syscalls,
};
use tracing::debug;

use self::plan::Plan;
use super::hosted::{self, Hosted, HostedStart, Rungs, choose, label, namespaces};
use super::{
    Driver, DriverError, HostFact, HostReport, ImageReport, Instance, Labels, LayerReport,
    StartRequest,
};
use crate::disk::Place;
use crate::image_store::Images;

/// The parent folder of merged image roots, in the data folder, on hosts without overlay.
const FLAT: &str = "flat";

/// Starts the images of all servers of an engine.
pub(crate) struct ImageDriver {
    hosted: Arc<Hosted>,
    images: Images,
}

impl ImageDriver {
    pub(crate) fn new(hosted: Arc<Hosted>, images: Images) -> Self {
        Self { hosted, images }
    }

    /// Returns the isolation levels of this host, each proved by a test run. gVisor is tested only
    /// if it may be used: that takes longer than the rest of a start.
    async fn rungs(&self, provider: Provider) -> (Rungs, Option<GVisor>) {
        let gvisor = match provider.rung() {
            None | Some(Rung::Gvisor) => self.hosted.gvisor.prove(&self.hosted.sandbox).await,
            Some(Rung::Firecracker | Rung::E2b | Rung::Namespaces | Rung::Process) => {
                Err("not tried, since another is asked for".to_owned())
            }
        };
        let namespaces = namespaces(&self.hosted.sandbox);
        let (gvisor, program) = match gvisor {
            Ok((program, how)) => (Ok(how), Some(program)),
            Err(why) => (Err(why), None),
        };
        let rungs = Rungs { gvisor, namespaces };
        (rungs, program)
    }

    async fn run(
        &self,
        request: StartRequest<'_>,
        launch: &ImageLaunch,
    ) -> Result<Instance, DriverError> {
        let (rungs, gvisor) = self.rungs(launch.hosting.provider).await;
        let chosen = choose(
            launch.hosting.provider,
            launch.hosting.isolation_floor,
            &rungs,
        );
        let (rung, reason) = chosen.map_err(DriverError::new)?;
        let labels = &request.labels;
        let wanted = pull::Wanted {
            is_own: labels.project == self.hosted.options.project,
            pinned: self.hosted.known_digest(labels, &launch.image).await,
            launch,
        };
        let record = pull::record(&self.images, &request, wanted).await?;
        let plan = Plan::new(launch, &record.config).map_err(DriverError::new)?;
        let limits = launch.limits_in_force();
        let place = self
            .hosted
            .place(labels, &limits, &plan.volumes, &[])
            .await?;
        let ids = self.hosted.ids(labels, false).await?;
        self.fill(&request, &record, &plan.volumes, &place, ids)
            .await?;
        let layers = self.layers(&labels.project, &record).await?;
        let base = self.base(&record, &layers, &request).await?;
        let mounts = plan.volumes.iter().map(|path| Mount {
            target: path.clone(),
            kind: MountKind::Bind(place.volume(path)),
            read_only: false,
        });
        let project = (labels.project != self.hosted.options.project).then_some(&labels.project);
        let mut command = Command {
            name: label(project, &labels.server),
            program: plan.program,
            args: plan.args,
            env: plan.env,
            cwd: plan.cwd,
            profile: gantry_sandbox::Profile::Hosted,
            limits: hosted::sandbox_limits(&limits),
            root: Root::Own(OwnRoot {
                base,
                mounts: mounts.collect(),
                hostname: labels.server.to_string(),
                scratch: hosted::scratch(&place, &limits),
                writable: false,
            }),
            ids,
            user: plan.user,
            syscalls: Syscalls::AllowList,
            ..Command::default()
        };
        if let Some(program) = gvisor.filter(|_| rung == Rung::Gvisor) {
            command.runtime = Runtime::GVisor(program);
        }
        let start = HostedStart {
            labels,
            hosting: &launch.hosting,
            limits,
            place,
            volumes: plan.volumes,
            provider: rung.as_str(),
            reason,
            image: Some(shown(launch, &record)),
            held: Box::new(layers),
        };
        let instance = self.hosted.start(command, start).await?;
        let Labels {
            project,
            server,
            generation,
        } = &request.labels;
        debug!(%project, %server, generation, pid = instance.pid, "image started");
        Ok(instance)
    }

    /// Copies what the image has at the paths of volumes into those that are empty.
    async fn fill(
        &self,
        request: &StartRequest<'_>,
        record: &ImageRecord,
        volumes: &[PathBuf],
        place: &Arc<Place>,
        ids: Ids,
    ) -> Result<(), DriverError> {
        let (record, volumes, place) = (record.clone(), volumes.to_vec(), Arc::clone(place));
        let stop = request.stop.clone();
        let filling = self.images.on_store(&request.labels.project, move |store| {
            Ok(fill::fill(store, &record, &volumes, &place, ids, &stop))
        });
        let filled = filling.await.map_err(DriverError::new)?;
        filled.map_err(DriverError::new)
    }

    /// Returns the layers of an image, held in the store.
    async fn layers(
        &self,
        project: &ProjectName,
        record: &ImageRecord,
    ) -> Result<RootLayers, DriverError> {
        let record = record.clone();
        let held = self
            .images
            .on_store(project, move |store| store.root(&record));
        held.await.map_err(DriverError::new)
    }

    /// Returns the base of the root: the layers, or one merged folder if the host has no overlay.
    async fn base(
        &self,
        record: &ImageRecord,
        layers: &RootLayers,
        request: &StartRequest<'_>,
    ) -> Result<RootBase, DriverError> {
        if self.hosted.has("overlay").is_ok() {
            return Ok(RootBase::Layers {
                base: layers.base.clone(),
                lower: layers.lower.clone(),
            });
        }
        (request.progress)("unpacking the image into one folder".to_owned());
        let folder = self.flat_folder(record);
        if let Some(parent) = folder.parent() {
            std::fs::create_dir_all(parent).map_err(DriverError::new)?;
        }
        let record = record.clone();
        let (target, stop) = (folder.clone(), request.stop.clone());
        let project = &request.labels.project;
        let unpacking = self.images.on_store(project, move |store| {
            let layers = store.root(&record)?;
            layers.flat(&target, &stop)
        });
        unpacking.await.map_err(DriverError::new)?;
        Ok(RootBase::Folder(folder))
    }

    fn flat_folder(&self, record: &ImageRecord) -> PathBuf {
        let name = record.digest.to_string().replace(':', "-");
        self.images.folder().join(FLAT).join(name)
    }
}

impl Driver for ImageDriver {
    fn probe(&self) -> HostReport {
        let (available, detail) = match namespaces(&self.hosted.sandbox) {
            Ok(how) => (true, how),
            Err(why) => (false, why),
        };
        HostReport {
            facts: vec![HostFact {
                name: "image_roots",
                available,
                detail,
            }],
        }
    }

    fn start<'a>(
        &'a self,
        request: StartRequest<'a>,
    ) -> BoxFuture<'a, Result<Instance, DriverError>> {
        Box::pin(async move {
            match request.spec.launch.image() {
                Some(launch) => self.run(request, launch).await,
                None => Err(DriverError::new("the server has no image")),
            }
        })
    }

    fn explain<'a>(
        &'a self,
        _project: &'a ProjectName,
        spec: &'a ServerSpec,
    ) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let launch = spec.launch.image()?;
            let network = launch.hosting.network.is_none().then_some("no network, ");
            Some(format!(
                "it runs with {}a read-only root, `/tmp` and its volumes to write to",
                network.unwrap_or_default()
            ))
        })
    }
}

fn shown(launch: &ImageLaunch, record: &ImageRecord) -> ImageReport {
    let pulled = record.pulled_at.duration_since(UNIX_EPOCH);
    let layers = record.layers.iter().map(|layer| LayerReport {
        digest: layer.diff_id.to_string(),
        bytes: layer.bytes,
    });
    let user = launch.user.clone();
    let own = (!record.config.user.is_empty()).then(|| record.config.user.clone());
    ImageReport {
        reference: launch.image.clone(),
        digest: record.digest.to_string(),
        platform: record.platform.to_string(),
        layers: layers.collect(),
        pulled_ms: pulled.map_or(0, |since| since.as_millis().try_into().unwrap_or(u64::MAX)),
        user: user.or(own),
    }
}
