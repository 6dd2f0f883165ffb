//! The first content of volumes: what the image has at their paths. Entry point: [`fill`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_images::{AtPath, ImageError, ImageRecord, ImageStore, LayerError};
use gantry_sandbox::Ids;
use tokio_util::sync::CancellationToken;

use crate::disk::Place;

/// How often the limit of a place may be copied into it: later layers replace files of earlier ones.
const REPLACED: u64 = 2;

/// Why a volume cannot be filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    /// The image has more there than the server may use.
    #[error(
        "what the image has in volume `{}` does not fit into the server's {} MiB; raise `limits.disk`",
        volume.display(), limit >> 20
    )]
    Full { volume: PathBuf, limit: u64 },
    /// The path of a volume is that of a file of the image, or below one.
    #[error(
        "the image has a file at `{}`: volume `{}` needs a folder; name another path",
        file.display(), volume.display()
    )]
    File { file: PathBuf, volume: PathBuf },
    /// The layers cannot be read, or their files not written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The folder of a volume cannot be used.
    #[error("cannot fill a volume with what the image has there")]
    Volume(#[from] io::Error),
}

/// Copies what an image has at the paths of volumes into those that are empty. Blocks.
pub(super) fn fill(
    store: &ImageStore,
    record: &ImageRecord,
    volumes: &[PathBuf],
    place: &Arc<Place>,
    ids: Ids,
    stop: &CancellationToken,
) -> Result<(), FillError> {
    let first_id = match ids {
        Ids::Range { first } => Some(first),
        Ids::Gateway => None,
    };
    let most = place.limit().saturating_mul(REPLACED);
    let layers = store.root(record)?;
    for volume in volumes {
        match layers.at_path(volume)? {
            AtPath::Nothing => continue,
            AtPath::Folder => {}
            AtPath::File(file) => {
                let volume = volume.clone();
                return Err(FillError::File { file, volume });
            }
        }
        place.fill(volume, first_id, |folder| {
            let copied = layers.copy_folder(volume, folder, first_id, most, stop);
            copied.map_err(|error| told(error, volume, place.limit()))
        })?;
    }
    Ok(())
}

fn told(error: ImageError, volume: &Path, limit: u64) -> FillError {
    let has_no_room = |why: &LayerError| {
        let is_full = |source: &io::Error| source.kind() == io::ErrorKind::StorageFull;
        matches!(why, LayerError::TooLarge { .. })
            || matches!(why, LayerError::Store { source, .. } if is_full(source))
    };
    match matches!(&error, ImageError::Layers(why) if has_no_room(why)) {
        true => FillError::Full {
            volume: volume.to_owned(),
            limit,
        },
        false => FillError::Image(error),
    }
}
