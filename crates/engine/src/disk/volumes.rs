//! The volumes of a project: list, measure, back up, remove. A volume belongs to a project, a
//! server name and a path, and outlives the server.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::volume_path;

use super::{Disks, FILES, IMAGE, MOUNT, Owner, VOLUMES, tree, volume_folder};
use super::{loop_image, make_private};

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeView {
    /// The name of its server, which may have been removed.
    pub server: ServerName,
    /// Its path inside the server.
    pub path: PathBuf,
    /// The size of its files.
    pub bytes: u64,
    /// How many files it has.
    pub files: u64,
    /// Whether an instance uses it now.
    pub in_use: bool,
}

/// The result of a prune.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrunedVolumes {
    /// How many volumes were removed.
    pub volumes: usize,
    /// Their size.
    pub bytes: u64,
}

/// Why an operation on a volume failed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The volume does not exist.
    #[error("server `{server}` has no volume `{}`", path.display())]
    Unknown {
        /// The server.
        server: ServerName,
        /// Its path.
        path: PathBuf,
    },
    /// An instance uses it.
    #[error("volume `{}` of server `{server}` is in use", path.display())]
    InUse {
        /// The server.
        server: ServerName,
        /// Its path.
        path: PathBuf,
    },
    /// Its files cannot be read or removed.
    #[error("cannot read or write the volumes of server `{server}`")]
    Files {
        /// The server.
        server: ServerName,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Diagnose for VolumeError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "volume.unknown",
            Self::InUse { .. } => "volume.in_use",
            Self::Files { .. } => "volume.files",
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Unknown { .. } | Self::InUse { .. } => Fault::Client,
            Self::Files { .. } => Fault::Gateway,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::InUse { .. }).then(|| "stop or remove the server first".to_owned())
    }
}

impl Disks {
    /// Returns the volumes of a project, by server and path. Blocks.
    pub(crate) fn volumes(&self, project: &ProjectName) -> Result<Vec<VolumeView>, VolumeError> {
        let mut volumes = Vec::new();
        for server in self.servers(project) {
            let owner = Owner {
                project: project.clone(),
                server,
            };
            let turn = self.inner.turns.take(&owner);
            let root = self.reach(&owner)?;
            drop(turn);
            let in_use = self.is_used(&owner);
            for path in paths(&root) {
                let found = tree::measure(&volume_folder(&root, &path));
                volumes.push(VolumeView {
                    server: owner.server.clone(),
                    path,
                    bytes: found.bytes,
                    files: found.files,
                    in_use,
                });
            }
        }
        volumes.sort_by(|one, other| (&one.server, &one.path).cmp(&(&other.server, &other.path)));
        Ok(volumes)
    }

    /// Writes a volume as a tar archive. Blocks; files that change meanwhile may be in either
    /// state.
    pub(crate) fn back_up(
        &self,
        owner: &Owner,
        path: &Path,
        to: impl Write,
    ) -> Result<(), VolumeError> {
        let turn = self.inner.turns.take(owner);
        let folder = self.find(owner, path)?;
        let _used = self.hold(owner);
        drop(turn);
        tree::archive(&folder, to).map_err(|source| files_error(owner, source))
    }

    /// Removes a volume that no instance uses. Blocks.
    pub(crate) fn remove_volume(&self, owner: &Owner, path: &Path) -> Result<(), VolumeError> {
        let _turn = self.inner.turns.take(owner);
        let folder = self.find(owner, path)?;
        if self.is_used(owner) {
            return Err(VolumeError::InUse {
                server: owner.server.clone(),
                path: path.to_owned(),
            });
        }
        tree::remove(&folder).map_err(|source| files_error(owner, source))?;
        if paths(&self.root_of(owner)).is_empty() {
            self.remove_place(owner)?;
        }
        Ok(())
    }

    /// Removes the files of a removed server, optionally with its volumes. Blocks.
    pub(crate) fn forget(&self, owner: &Owner, with_volumes: bool) -> Result<(), VolumeError> {
        let _turn = self.inner.turns.take(owner);
        if !self.home(owner).is_dir() {
            return Ok(());
        }
        if self.is_used(owner) {
            return Err(VolumeError::InUse {
                server: owner.server.clone(),
                path: PathBuf::from("/"),
            });
        }
        let root = self.reach(owner)?;
        let failed = |source| files_error(owner, source);
        if with_volumes || paths(&root).is_empty() {
            return self.remove_place(owner);
        }
        for folder in [super::SCRATCH, super::WORK] {
            tree::remove(&root.join(folder)).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns whether a server has neither files nor a place in use. Blocks.
    pub(crate) fn has_nothing_of(&self, owner: &Owner) -> bool {
        let _turn = self.inner.turns.take(owner);
        !self.is_used(owner) && std::fs::symlink_metadata(self.home(owner)).is_err()
    }

    /// Removes the volumes of servers that are not in this list. Blocks.
    pub(crate) fn prune(
        &self,
        project: &ProjectName,
        kept: &[ServerName],
    ) -> Result<PrunedVolumes, VolumeError> {
        let volumes = self.volumes(project)?;
        let gone = |view: &&VolumeView| !kept.contains(&view.server) && !view.in_use;
        let mut pruned = PrunedVolumes::default();
        for view in volumes.iter().filter(gone) {
            let owner = Owner {
                project: project.clone(),
                server: view.server.clone(),
            };
            self.remove_volume(&owner, &view.path)?;
            pruned.volumes += 1;
            pruned.bytes += view.bytes;
        }
        for server in self.servers(project) {
            if !kept.contains(&server) {
                let owner = Owner {
                    project: project.clone(),
                    server,
                };
                self.forget(&owner, false)?;
            }
        }
        Ok(pruned)
    }

    /// Removes all files of a project's servers. Blocks.
    pub(crate) fn forget_project(&self, project: &ProjectName) -> Result<(), VolumeError> {
        for server in self.servers(project) {
            let owner = Owner {
                project: project.clone(),
                server,
            };
            self.forget(&owner, true)?;
        }
        Ok(())
    }

    fn remove_place(&self, owner: &Owner) -> Result<(), VolumeError> {
        if let Some(root) = self.inner.mounted.lock().remove(owner) {
            loop_image::unmount(&root);
        }
        tree::remove(&self.home(owner)).map_err(|source| files_error(owner, source))
    }

    /// Marks the place as in use by a backup, whether or not an instance uses it.
    fn hold(&self, owner: &Owner) -> Arc<()> {
        let mut reading = self.inner.reading.lock();
        Arc::clone(reading.entry(owner.clone()).or_default())
    }

    fn is_used(&self, owner: &Owner) -> bool {
        let is_read = self
            .inner
            .reading
            .lock()
            .get(owner)
            .map_or(0, Arc::strong_count)
            > 1;
        // A reader of usage figures holds a place without using it.
        let mut places = self.places_of(owner);
        is_read || places.any(|place| Arc::strong_count(&place.uses) > 1)
    }

    fn find(&self, owner: &Owner, path: &Path) -> Result<PathBuf, VolumeError> {
        let unknown = || VolumeError::Unknown {
            server: owner.server.clone(),
            path: path.to_owned(),
        };
        if !self.home(owner).is_dir() {
            return Err(unknown());
        }
        let folder = volume_folder(&self.reach(owner)?, path);
        let is_there = std::fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
        is_there.then_some(folder).ok_or_else(unknown)
    }

    /// Returns the servers of a project that have a place.
    fn servers(&self, project: &ProjectName) -> Vec<ServerName> {
        let folder = self.inner.folder.join(project.as_str());
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter_map(|name| name.parse().ok()).collect()
    }

    fn root_of(&self, owner: &Owner) -> PathBuf {
        let home = self.home(owner);
        match home.join(IMAGE).is_file() {
            true => home.join(MOUNT),
            false => home.join(FILES),
        }
    }

    /// Returns the folder of a place, and mounts it if necessary.
    fn reach(&self, owner: &Owner) -> Result<PathBuf, VolumeError> {
        let root = self.root_of(owner);
        let image = self.home(owner).join(IMAGE);
        if !image.is_file() {
            return Ok(root);
        }
        let is_mounted = self.inner.mounted.lock().contains_key(owner);
        if !is_mounted {
            make_private(&root).map_err(|error| files_error(owner, io::Error::other(error)))?;
            let size = std::fs::metadata(&image).map(|found| found.len());
            size.and_then(|size| loop_image::provide(&image, &root, size, false).map(drop))
                .map_err(|source| files_error(owner, source))?;
            let mut mounted = self.inner.mounted.lock();
            mounted.insert(owner.clone(), root.clone());
        }
        Ok(root)
    }
}

fn files_error(owner: &Owner, source: io::Error) -> VolumeError {
    VolumeError::Files {
        server: owner.server.clone(),
        source,
    }
}

/// Returns the paths of the volumes in a place.
fn paths(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join(VOLUMES));
    let entries = entries.into_iter().flatten().flatten();
    let paths = entries.filter_map(|entry| volume_path(entry.file_name().to_str()?));
    paths.collect()
}
