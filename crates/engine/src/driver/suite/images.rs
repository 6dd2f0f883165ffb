//! The image driver under the suite: a small image of the host's own shell, imported as an archive.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gantry_model::id::ProjectName;
use gantry_model::spec::{ImageLaunch, Launch, Provider, Pull, ServerSpec};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{Act, World, conforms, script};
use crate::driver::hosted::{Hosted, HostedOptions};
use crate::driver::image::ImageDriver;
use crate::driver::{Control, Driver, Io, StartRequest};
use crate::image_store::Images;

/// The name of the image.
const IMAGE: &str = "example.com/shell:1";

/// A host with the image in its store.
pub(super) struct ImageWorld {
    folder: tempfile::TempDir,
    images: Images,
    provider: Provider,
}

impl ImageWorld {
    pub(super) async fn new(provider: Provider) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = Images::new(folder.path().join("images"), ProjectName::local(), None);
        let archive = folder.path().join("shell.tar");
        save(&archive);
        let stop = CancellationToken::new();
        let project = ProjectName::local();
        let importing = images.import(&project, &archive, |_| {}, &stop);
        let imported = importing.await.unwrap();
        assert_eq!(imported[0].reference.to_string(), IMAGE);
        Self {
            folder,
            images,
            provider,
        }
    }

    fn hosted(&self) -> Arc<Hosted> {
        let hosted = Hosted::open(HostedOptions {
            project: ProjectName::local(),
            gateway: format!("images-{}", std::process::id()),
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            data_folder: self.folder.path().to_owned(),
            hidden: Vec::new(),
        });
        Arc::new(hosted.unwrap())
    }
}

impl World for ImageWorld {
    fn driver(&self) -> Box<dyn Driver> {
        Box::new(ImageDriver::new(self.hosted(), self.images.clone()))
    }

    fn spec(&self, act: Act) -> ServerSpec {
        let mut launch = ImageLaunch::new(IMAGE);
        launch.pull = Pull::Never;
        launch.hosting.provider = self.provider;
        match act {
            Act::Missing => launch.entrypoint = vec!["missing".to_owned()],
            Act::Echo | Act::Exit | Act::Stderr | Act::Stubborn => {
                launch.args = vec![script(act).to_owned()];
            }
        }
        ServerSpec::image("fake".parse().unwrap(), launch)
    }

    fn looks_first(&self) -> bool {
        self.provider != Provider::Gvisor
    }

    /// The kernel closes the descriptors of a killed gateway, which is what dropping does.
    fn lose(&self, control: Box<dyn Control>) {
        drop(control);
    }
}

/// Writes an archive as `docker save` does: one layer with a shell, `cat` and `sleep`.
fn save(archive: &Path) {
    let mut layer = tar::Builder::new(Vec::new());
    for file in files(&["/bin/sh", "/bin/cat", "/bin/sleep"]) {
        let content = std::fs::read(&file).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        let name = file.strip_prefix("/").unwrap();
        layer.append_data(&mut header, name, &*content).unwrap();
    }
    let layer = layer.into_inner().unwrap();
    let digest = gantry_model::hex::hex(&Sha256::digest(&layer));
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let config = serde_json::json!({
        "os": "linux",
        "architecture": architecture,
        "config": { "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["exit 9"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    });
    let manifest = serde_json::json!([{
        "Config": "config.json",
        "RepoTags": [IMAGE],
        "Layers": ["layer.tar"],
    }]);
    let mut saved = tar::Builder::new(std::fs::File::create(archive).unwrap());
    let (config, manifest) = (config.to_string(), manifest.to_string());
    for (name, content) in [
        ("manifest.json", manifest.as_bytes()),
        ("config.json", config.as_bytes()),
        ("layer.tar", &layer),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        saved.append_data(&mut header, name, content).unwrap();
    }
    saved.finish().unwrap();
}

/// Returns programs and the libraries that they need.
fn files(programs: &[&str]) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for program in programs {
        files.insert(PathBuf::from(program));
        let needed = Command::new("ldd").arg(program).output().unwrap();
        let needed = String::from_utf8(needed.stdout).unwrap();
        let words = needed.split_whitespace();
        files.extend(
            words
                .filter(|word| word.starts_with('/'))
                .map(PathBuf::from),
        );
    }
    files
}

/// Starts the image, which must exit successfully, and returns its output.
async fn printed(world: ImageWorld, launch: impl FnOnce(&mut ImageLaunch)) -> String {
    let mut spec = world.spec(Act::Echo);
    if let Launch::Image(image) = &mut spec.launch {
        launch(image);
    }
    let (driver, stop) = (world.driver(), CancellationToken::new());
    let started = driver.start(StartRequest {
        spec: &spec,
        labels: super::labels(),
        progress: &|_| {},
        stop: &stop,
    });
    let instance = started.await.unwrap();
    let Io::Streams(streams) = instance.io else {
        panic!("it speaks over stdin and stdout");
    };
    let mut control = instance.control;
    drop(streams.stdin);
    let said = super::rest_of(streams.stdout).await;
    let complained = super::rest_of(streams.stderr.unwrap()).await;
    let exit = super::exit_of(&mut control).await;
    assert_eq!(exit.code, Some(0), "{exit:?}: {complained}");
    said
}

// row 1.1
#[tokio::test]
async fn an_image_sees_its_own_root_and_nothing_of_the_host() {
    for provider in providers().await {
        sees_its_own_root(ImageWorld::new(provider).await).await;
    }
}

/// Returns the isolation levels for images on this host.
async fn providers() -> Vec<Provider> {
    let hosted = ImageWorld::new(Provider::Gvisor).await.hosted();
    let gvisor = hosted.gvisor.prove(&hosted.sandbox).await;
    let gvisor = gvisor.is_ok().then_some(Provider::Gvisor);
    std::iter::once(Provider::Namespaces)
        .chain(gvisor)
        .collect()
}

async fn sees_its_own_root(world: ImageWorld) {
    let said = printed(world, |image| {
        let script = "for f in /* /etc/shadow /usr/share /root/.ssh; do [ -e $f ] && echo $f; done; \
                      echo x > /new; echo x > /tmp/y && cat /tmp/y; echo $A";
        image.args = vec![script.to_owned()];
        image.env.insert("A".to_owned(), "given".to_owned());
    })
    .await;
    let mut lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.split_off(lines.len() - 2), ["x", "given"], "{said}");
    let allowed = [
        "/bin", "/lib", "/lib64", "/dev", "/proc", "/tmp", "/etc", "/sys", "/run", "/usr", "/var",
    ];
    assert!(lines.iter().all(|line| allowed.contains(line)), "{lines:?}");
    assert!(!said.contains("/new"), "the root can only be read: {said}");
}

// row 1.18
#[tokio::test]
async fn the_image_driver_conforms_in_namespaces() {
    conforms(ImageWorld::new(Provider::Namespaces).await).await;
}

// row 1.18
#[tokio::test]
async fn the_image_driver_conforms_in_gvisor_or_says_that_it_is_unavailable() {
    let world = ImageWorld::new(Provider::Gvisor).await;
    let hosted = world.hosted();
    match hosted.gvisor.prove(&hosted.sandbox).await {
        Ok(_) => conforms(world).await,
        Err(why) => {
            let suite = super::Suite {
                driver: world.driver(),
                world,
            };
            let error = suite.try_start(Act::Echo).await.err().unwrap().to_string();
            let expected = format!("provider_unavailable: `gvisor`: {why}");
            assert_eq!(error, expected);
        }
    }
}
