//! Gets the image of a start: from the store, or pulled, with its progress told. A tag keeps the digest
//! that it had first, unless the spec asks otherwise. fault C6

use gantry_images::{ImageError, ImageRecord, ImageReference, Progress};
use gantry_model::spec::{ImageLaunch, Pull};
use tracing::warn;

use crate::driver::{DriverError, StartRequest};
use crate::image_store::Images;

/// Returns the record of the image that a start needs. `own`: the server is of the person's own
/// project, whose registry credentials it may use.
pub(super) async fn record(
    images: &Images,
    own: bool,
    request: &StartRequest<'_>,
    launch: &ImageLaunch,
) -> Result<ImageRecord, DriverError> {
    let reference: ImageReference = launch.image.parse().map_err(DriverError::new)?;
    let known = images.find(&reference).await.map_err(DriverError::new)?;
    match (launch.pull, known) {
        (Pull::Missing | Pull::Never, Some(record)) => Ok(record),
        (Pull::Never, None) => {
            let image = launch.image.clone();
            Err(DriverError::new(ImageError::Absent { image }))
        }
        (Pull::Missing | Pull::Always, None) => pull(images, own, request, &reference).await,
        (Pull::Always, Some(record)) => match pull(images, own, request, &reference).await {
            Ok(record) => Ok(record),
            // A registry that is away does not keep a server down that can run.
            Err(error) if !request.stop.is_cancelled() => {
                let why = gantry_model::diagnose::chain(&error);
                warn!(image = %reference, why, "the image that is there is used");
                Ok(record)
            }
            Err(error) => Err(error),
        },
    }
}

async fn pull(
    images: &Images,
    own: bool,
    request: &StartRequest<'_>,
    reference: &ImageReference,
) -> Result<ImageRecord, DriverError> {
    (request.progress)(format!("pulling `{reference}`"));
    let credentials = match own {
        true => images.own_credentials(reference).await,
        false => Ok(None),
    };
    let credentials = credentials.map_err(DriverError::new)?;
    let progress = |progress: Progress| (request.progress)(progress.to_string());
    let pulled = images.pull(reference, credentials, &progress, request.stop);
    pulled.await.map_err(DriverError::new)
}
