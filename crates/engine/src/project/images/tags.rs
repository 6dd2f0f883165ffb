//! Images that changed under their tag: checks the current state of the tags of the project's
//! servers, which changes nothing; on request, the new image is pulled and the server restarted
//! with it. fault C6. Entry points: [`Project::check_tags`] and [`Project::restart_with_newest`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use gantry_images::{ImageReference, Progress};
use gantry_model::event::EventKind;
use gantry_model::id::ServerName;
use gantry_model::spec::Pull;
use gantry_store::WorkspaceInstance;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::acts::{Actor, Draft};
use crate::error::EngineError;
use crate::project::Project;
use crate::view::ServerView;

/// How many registries are checked at a time.
const AT_ONCE: usize = 4;
/// Time limit of one check.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state of the tag of one server's image.
#[derive(Debug, Clone)]
pub struct TagCheck {
    /// The server.
    pub server: ServerName,
    /// The image, as registered.
    pub image: String,
    /// The digest that the server runs, or would run.
    pub digest: String,
    /// The tag's current digest, or why it is unknown.
    pub tag: Result<String, String>,
}

impl TagCheck {
    /// Returns whether the tag points to another image.
    pub fn is_changed(&self) -> bool {
        self.tag.as_ref().is_ok_and(|tag| *tag != self.digest)
    }
}

/// A server whose image has a tag.
struct Tagged {
    server: ServerName,
    image: String,
    reference: ImageReference,
    digest: String,
}

impl Project {
    /// Checks the tags of the servers' images at their registries. Skips images that are named by
    /// their digest, were imported, or are never pulled.
    pub async fn check_tags(&self, stop: &CancellationToken) -> Vec<TagCheck> {
        let tagged = self.tagged().await;
        let named: HashSet<_> = tagged.iter().map(|one| one.reference.clone()).collect();
        self.machine.images.keep_tags(self.name(), &named);
        // Each image is checked once for all servers that use it.
        let asking = named
            .into_iter()
            .map(|reference| Box::pin(self.ask(reference, stop)));
        let answers: HashMap<_, _> = stream::iter(asking).buffered(AT_ONCE).collect().await;
        let checked = tagged.into_iter().filter_map(|one| {
            let answer = answers.get(&one.reference)?;
            Some(self.checked(one, answer))
        });
        checked.collect()
    }

    async fn tagged(&self) -> Vec<Tagged> {
        let mut tagged = Vec::new();
        for view in self.servers() {
            let Some(launch) = view.spec.launch.image() else {
                continue;
            };
            let Ok(reference) = launch.image.parse::<ImageReference>() else {
                continue;
            };
            if launch.pull == Pull::Never || reference.digest().is_some() {
                continue;
            }
            let record = self.machine.images.find(self.name(), &reference).await;
            let Ok(Some(record)) = record else {
                continue;
            };
            if record.imported {
                continue;
            }
            let running = view.status.hosting.as_deref();
            let running = running.and_then(|hosting| hosting.image.as_ref());
            let digest = running.map(|image| image.digest.clone());
            tagged.push(Tagged {
                server: view.spec.name.clone(),
                image: launch.image.clone(),
                reference,
                digest: digest.unwrap_or_else(|| record.digest.to_string()),
            });
        }
        tagged
    }

    /// Checks an image's tag, and whether the result is new.
    async fn ask(
        &self,
        reference: ImageReference,
        stop: &CancellationToken,
    ) -> (ImageReference, Result<(String, bool), String>) {
        let images = &self.machine.images;
        let credentials = self.registry_credentials(&reference).await;
        let asking = images.resolve(self.name(), &reference, credentials, stop);
        let tag = match timeout(PATIENCE, asking).await {
            Ok(Ok(digest)) => {
                let is_news = images.note_tag(self.name(), &reference, &digest);
                Ok((digest.to_string(), is_news))
            }
            Ok(Err(error)) => Err(gantry_model::diagnose::chain(&error)),
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        (reference, tag)
    }

    /// Compares the image of a server with the state of its tag.
    fn checked(&self, tagged: Tagged, answer: &Result<(String, bool), String>) -> TagCheck {
        if let Ok((tag, true)) = answer
            && *tag != tagged.digest
        {
            self.tell_changed(&tagged, tag);
        }
        let tag = answer.as_ref().map(|(tag, _)| tag.clone());
        TagCheck {
            server: tagged.server,
            image: tagged.image,
            digest: tagged.digest,
            tag: tag.map_err(String::clone),
        }
    }

    fn tell_changed(&self, tagged: &Tagged, tag: &str) {
        let Tagged {
            server,
            image,
            digest,
            ..
        } = tagged;
        let detail = format!(
            "`{image}` is another image in its registry now, {tag}; the server keeps {digest} until it is \
             restarted with `gantry restart {server} --pull`"
        );
        let events = &self.router.events;
        events.report(server, EventKind::ImageChanged, detail);
    }

    /// Pulls the image of a server, and restarts the server with the current image of its tag. The
    /// server keeps running during the pull; if that fails, nothing changes.
    pub async fn restart_with_newest(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        server: &str,
        progress: impl Fn(Progress) + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<ServerView, EngineError> {
        let by = by.into();
        self.admit()?;
        let view = self.server(server);
        let view = view.ok_or_else(|| EngineError::UnknownServer {
            name: server.to_owned(),
        })?;
        let name = view.spec.name.clone();
        let image = view.spec.launch.image().map(|launch| launch.image.clone());
        let Some(image) = image else {
            return Err(EngineError::NoImage { server: name });
        };
        let image: ImageReference = image.parse()?;
        let (project, actor) = (Arc::clone(self), by.clone());
        let target = name.clone();
        self.complete(async move {
            let draft = Draft::new("image.pull", image.to_string());
            let draft = draft.detail(format!("for a restart of `{target}`"));
            let pull = project.fetch(&image, None, &progress, &stop);
            let pulled = project.acts.run(&actor, draft, pull).await?;
            project.pin(&target, &pulled.digest.to_string()).await
        })
        .await?;
        self.restart(by, name.as_str()).await
    }

    /// Makes a registered server use this image from its next start on.
    async fn pin(&self, server: &ServerName, digest: &str) -> Result<(), EngineError> {
        let store = &self.machine.store;
        let rows = store.workspaces(self.name()).await?;
        let Some(row) = rows.into_iter().find(|row| row.name == *server) else {
            // A server of a file uses the last pulled image of the name.
            return Ok(());
        };
        let instance = WorkspaceInstance {
            provider: row.provider.unwrap_or_default(),
            instance: row.instance.unwrap_or_default(),
            image_digest: Some(digest.to_owned()),
        };
        let pinned = store.set_workspace_instance(self.name(), server, &instance);
        Ok(pinned.await?)
    }
}
