//! Resources that a server named to a caller and that are in no list, or in another server's.

use gantry_model::grant::{MethodClass, NormalUri};
use gantry_model::id::ServerName;

use super::{Resolution, View, is_in};

impl View {
    /// Finds a resource at the server that named it to the caller, if that server is in scope; else
    /// as any other. Grants apply either way.
    pub(crate) fn resolve_linked(&self, named_by: Option<&ServerName>, uri: &str) -> Resolution {
        let servers = &self.snapshot.servers;
        let position = |named_by: &ServerName| {
            let mut entries = servers.iter();
            entries.position(|entry| entry.handle.name == *named_by && is_in(&self.scope, named_by))
        };
        let Some(server) = named_by.and_then(position) else {
            return self.resolve_resource(uri);
        };
        if self.allows(MethodClass::Resource, server, Some(uri)) {
            let is_listed = self.resources.get(uri) == Some(&server);
            let name = &servers[server].handle.name;
            // As the server itself writes it, unless the grants are narrower.
            let as_written = is_listed || self.grants.has_all(MethodClass::Resource, name);
            let direct = NormalUri::of(uri).filter(|_| !as_written);
            let direct = direct.map(|normal| normal.forwarded(uri).to_string());
            return Resolution::Named {
                server: self.handle(server),
                item: direct.unwrap_or_else(|| uri.to_owned()),
            };
        }
        // Another server may have the same URI and be granted; the owner is not guessed.
        if self.resources.contains_key(uri) {
            return self.resolve_resource(uri);
        }
        Resolution::NotGranted {
            server: servers[server].handle.name.clone(),
            item: uri.to_owned(),
        }
    }
}
