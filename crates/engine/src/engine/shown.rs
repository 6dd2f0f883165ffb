//! What is shown of servers, to administrators and to clients. Entry points: `Engine::servers` and
//! `Engine::instructions`.

use gantry_model::caller::Caller;

use super::Engine;
use crate::request::Scope;
use crate::view::ServerView;

impl Engine {
    /// Returns all servers, in configuration order.
    pub fn servers(&self) -> Vec<ServerView> {
        let catalog = &self.inner.catalog;
        let (nameless, collisions) = (catalog.nameless(), catalog.collisions());
        let servers = self.inner.supervisor.all();
        let views = servers.iter().map(|handle| ServerView::of(handle));
        views
            .map(|view| view.without(&nameless).beside(&collisions))
            .collect()
    }

    /// Returns a server by name or id.
    pub fn server(&self, server: &str) -> Option<ServerView> {
        let handle = self.inner.supervisor.find(server)?;
        let catalog = &self.inner.catalog;
        let (nameless, collisions) = (catalog.nameless(), catalog.collisions());
        let view = ServerView::of(&handle).without(&nameless);
        Some(view.beside(&collisions))
    }

    /// Returns what the servers that a caller may use want models to know, each under its name.
    pub fn instructions(&self, caller: &Caller) -> Option<String> {
        let view = self.inner.catalog.view(caller, &Scope::All);
        view.instructions()
    }
}
