//! Registries that lie, flood, stall and lead astray. Of each: the pull ends within its deadline and
//! 64 MiB, the error names the image, the registry and what to do, and the store is whole. fault C4

mod blobs;
mod manifests;
mod redirects;
mod sign_in;

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use gantry_images::{Credentials, ImageReference};
use gantry_model::diagnose::{Diagnose, chain};
use tokio::time::Instant;

use crate::memory::Peak;
use crate::puller::{Puller, limits, tagged};
use crate::sample::{Sample, Script, serve, serve_well};
use crate::scripted::Request;

/// How long any pull of these may take.
const DEADLINE: Duration = Duration::from_secs(20);
/// How much memory it may take. The server is in the same process.
const MEMORY: u64 = 64 << 20;

/// A registry that is up to something.
pub(crate) struct Case {
    name: &'static str,
    image: Sample,
    script: Script,
    code: &'static str,
    /// What the error says.
    says: &'static str,
    is_pinned: bool,
    patience: Duration,
    credentials: Option<Credentials>,
}

impl Case {
    fn new(
        name: &'static str,
        code: &'static str,
        says: &'static str,
        script: impl Fn(&Request, &mut TcpStream) -> Option<io::Result<()>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            image: Sample::small(),
            script: Arc::new(script),
            code,
            says,
            is_pinned: false,
            patience: Duration::from_secs(10),
            credentials: None,
        }
    }

    /// A registry that behaves, with an image that does not.
    fn of_image(name: &'static str, code: &'static str, says: &'static str, image: Sample) -> Self {
        Self::new(name, code, says, |_, _| None).image(image)
    }

    fn image(mut self, image: Sample) -> Self {
        self.image = image;
        self
    }

    fn pinned(mut self) -> Self {
        self.is_pinned = true;
        self
    }

    /// What waits for the registry waits this long only.
    fn impatient(mut self) -> Self {
        self.patience = Duration::from_millis(400);
        self
    }

    fn with_credentials(mut self) -> Self {
        self.credentials = Some(Credentials::Basic {
            user: "ann".to_owned(),
            password: "hunter2".to_owned(),
        });
        self
    }

    #[expect(clippy::print_stdout, reason = "the table of what was tried")]
    async fn check(self) {
        let name = self.name;
        let mut puller = Puller::with(self.patience, limits());
        let good = serve_well(&Sample::small());
        let kept = tagged(good.address);
        puller.pull(&kept).await.unwrap();
        let server = serve(&self.image, self.script);
        let mut image: ImageReference = tagged(server.address);
        if self.is_pinned {
            image = image.pinned(self.image.digest());
        }
        puller.credentials = self.credentials;

        let (began, peak) = (Instant::now(), Peak::begin());
        let ended = tokio::time::timeout(DEADLINE, puller.pull(&image)).await;
        let (took, used) = (began.elapsed(), peak.above());
        let error = ended.unwrap_or_else(|_| panic!("{name}: not within {DEADLINE:?}"));
        let error = error
            .err()
            .unwrap_or_else(|| panic!("{name}: it was pulled"));
        let told = chain(&error);
        println!("{name}: {told} ({took:?}, {} KiB)", used >> 10);
        assert_eq!(error.code(), self.code, "{name}: {told}");
        assert!(told.contains(self.says), "{name}: {told}");
        assert!(told.contains(&image.to_string()), "{name}: {told}");
        assert!(told.contains(&server.address.to_string()), "{name}: {told}");
        assert!(!told.contains("hunter2"), "{name}: {told}");
        assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{name}");
        assert!(used <= MEMORY, "{name}: {used} bytes above idle");
        puller.assert_whole(&[&kept]);
    }
}

async fn check(cases: Vec<Case>) {
    for case in cases {
        case.check().await;
    }
}

fn is_manifest(request: &Request) -> bool {
    request.path.contains("/manifests/")
}

/// Tells whether a request is for the only layer of a small or long image.
fn is_layer(request: &Request, image: &Sample) -> bool {
    let digest = gantry_images::Digest::of(&image.layers[0].bytes);
    request.path.ends_with(&format!("/blobs/{digest}"))
}

fn is_config(request: &Request, image: &Sample) -> bool {
    let digest = gantry_images::Digest::of(&image.config);
    request.path.ends_with(&format!("/blobs/{digest}"))
}
