//! Servers whose images come from a real registry, Debian's `docker-registry`: pulled on every rung, kept
//! when their tag moves, and pulled with the credentials of a login.
//!
//! Entry point: [`Pulled`].

mod logins;
mod projects;
mod tags;

use std::time::Duration;

use gantry_testkit::image::Archive;
use gantry_testkit::registry::{ImageRegistry, RegistryAccess};
use serde_json::{Value, json};

use crate::harness::{Gantry, Programs, needs_root};

const SECOND: Duration = Duration::from_secs(1);

/// A gateway beside a registry that has `peer:1`.
struct Pulled {
    gantry: Gantry,
    registry: ImageRegistry,
    /// The whole name of the image.
    image: String,
    _programs: Programs,
}

impl Pulled {
    fn new(access: RegistryAccess) -> Self {
        needs_root();
        let registry = ImageRegistry::start(access);
        let image = registry.push("team/peer:1", &version(1));
        let programs = Programs::copied();
        Self {
            gantry: Gantry::builder().program(&programs.gantry()).start(),
            registry,
            image,
            _programs: programs,
        }
    }

    /// Registers the image under a name; returns the answer.
    fn register(&self, name: &str, rung: &str) -> Value {
        let body = json!({"name": name, "image": self.image, "provider": rung});
        let answer = self.gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    /// Returns which version of the image a server runs, as it finds itself.
    fn version(&self, server: &str) -> String {
        let body = json!({
            "method": "tools/call",
            "params": {"name": "shell", "arguments": {"script": "cat /version"}},
        });
        let path = format!("/api/v1/mcp/servers/{server}/call");
        let answer = self.gantry.rest("POST", &path, Some(&body)).json();
        let text = answer.pointer("/content/0/text");
        let text = text.or_else(|| answer.pointer("/result/content/0/text"));
        text.and_then(Value::as_str)
            .unwrap_or_else(|| panic!("{answer:#}"))
            .trim()
            .to_owned()
    }
}

/// Returns an image that says which version it is.
fn version(number: u32) -> Archive {
    Archive::peer("peer").file("version", number.to_string().as_bytes(), 0o644)
}
