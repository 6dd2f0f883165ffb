//! What is shown of servers to administrators. Entry point: `Project::servers`.

use super::Project;
use crate::view::ServerView;

impl Project {
    /// Returns all servers, in configuration order.
    pub fn servers(&self) -> Vec<ServerView> {
        let catalog = &self.catalog;
        let (nameless, collisions) = (catalog.nameless(), catalog.collisions());
        let servers = self.supervisor.all();
        let views = servers.iter().map(|handle| ServerView::of(handle));
        views
            .map(|view| view.without(&nameless).beside(&collisions))
            .collect()
    }

    /// Returns a server by name or id.
    pub fn server(&self, server: &str) -> Option<ServerView> {
        let handle = self.supervisor.find(server)?;
        let catalog = &self.catalog;
        let (nameless, collisions) = (catalog.nameless(), catalog.collisions());
        let view = ServerView::of(&handle).without(&nameless);
        Some(view.beside(&collisions))
    }
}
