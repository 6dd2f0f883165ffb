//! Rows 1.1–1.20 on servers that are images, through REST: in gVisor and in namespaces of their own, with
//! a gateway that is root and with one of an ordinary user; and on sandboxed commands where a row applies.
//!
//! The image is made by the test kit from its own scripted server, and pulled from a real registry, or
//! imported as an archive. Entry point: [`Rig`].

mod attacked;
mod calls;
mod counters;
mod crashes;
mod faults;
mod limits;
mod network;
mod rows;
mod survivors;
mod volumes;
mod workspaces;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::image::Archive;
use gantry_testkit::registry::{ImageRegistry, RegistryAccess};
use serde_json::{Value, json};

use crate::harness::{Builder, Gantry, NOBODY, Programs, needs_root};

/// The name of the image where it is imported.
pub(super) const IMAGE: &str = "registry.example/peer:1";
const SECOND: Duration = Duration::from_secs(1);
/// The rungs that an image can run on here.
pub(super) const RUNGS: [&str; 2] = ["gvisor", "namespaces"];
/// The rungs, and that of a command.
pub(super) const HOSTED: [&str; 3] = ["gvisor", "namespaces", "process"];
/// Who runs the gateway.
pub(super) const USERS: [Option<u32>; 2] = [None, Some(NOBODY)];

/// A gateway that has the image, or can pull it.
pub(super) struct Rig {
    pub(super) gantry: Gantry,
    /// Root, or an ordinary user.
    pub(super) is_root: bool,
    /// The image that is registered where no other is named.
    pub(super) image: String,
    _registry: Option<ImageRegistry>,
    programs: Programs,
    folder: tempfile::TempDir,
}

impl Rig {
    /// Starts a gateway, as another user if one is named, beside a registry that has the image.
    pub(super) fn new(user: Option<u32>) -> Self {
        let registry = ImageRegistry::start(RegistryAccess::Open);
        let image = registry.push("team/peer:1", &Archive::peer("team/peer"));
        Self {
            image,
            _registry: Some(registry),
            ..Self::of(user)
        }
    }

    /// Starts a gateway, as another user if one is named, and imports an image.
    pub(super) fn with(user: Option<u32>, image: &Archive) -> Self {
        let rig = Self::of(user);
        rig.import(image);
        rig
    }

    fn of(user: Option<u32>) -> Self {
        Self::started(user, |builder| match user {
            Some(user) => builder.user(user),
            None => builder,
        })
    }

    /// Starts a gateway as it is described; it has no image yet.
    fn started(user: Option<u32>, described: impl FnOnce(Builder) -> Builder) -> Self {
        needs_root();
        let programs = Programs::copied();
        let builder = Gantry::builder().program(&programs.gantry());
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            gantry: described(builder).start(),
            is_root: user.is_none(),
            image: IMAGE.to_owned(),
            _registry: None,
            programs,
            folder,
        }
    }

    /// Starts the gateway again, which has ended.
    pub(super) fn again(self) -> Self {
        let gantry = self.gantry.again();
        Self { gantry, ..self }
    }

    /// Imports an image.
    pub(super) fn import(&self, image: &Archive) {
        let archive: PathBuf = self.folder.path().join("image.tar");
        image.save(&archive).unwrap();
        let body = json!({"archive": archive});
        let answer = self.gantry.rest("POST", "/api/v1/images", Some(&body));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Registers the image under a name, on a rung, with further members; waits until it is ready.
    pub(super) fn server(&self, name: &str, rung: &str, members: &Value) -> Value {
        let answer = self.register(name, rung, members);
        assert_eq!(answer.0, 201, "{}", answer.1);
        self.gantry.wait_state(name, "ready", 30 * SECOND)
    }

    /// Registers the image; returns the status of the answer, and the answer.
    pub(super) fn register(&self, name: &str, rung: &str, members: &Value) -> (u16, Value) {
        let mut body = match rung {
            "process" => self.command(),
            _ => json!({"image": self.image, "stdio_bridge": true, "provider": rung}),
        };
        body["name"] = json!(name);
        body["restart_policy"] = json!("always");
        for (key, value) in members.as_object().unwrap() {
            match (rung, key.as_str()) {
                // Where an image has an entry point, a command is itself one.
                ("process", "entrypoint") => {
                    let argv = value.as_array().unwrap();
                    if argv[0] != "/bin/evilpeer" {
                        body["command"] = argv[0].clone();
                    }
                    body["args"] = json!(argv[1..]);
                    body["allow_shell"] = json!(true);
                }
                _ => body[key] = value.clone(),
            }
        }
        let answer = self.gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        (answer.status, answer.json())
    }

    /// Returns the members of the scripted server as a sandboxed command.
    fn command(&self) -> Value {
        let peer = self.programs.entry(&Evilpeer::new());
        json!({"command": peer["command"], "args": ["--inside"], "profile": "hosted"})
    }

    /// Calls a tool of a server, over REST as row 1.4 has it, and returns the text of its result.
    pub(super) fn tool(&self, server: &str, tool: &str, arguments: Value) -> String {
        let answer = self.call(server, tool, arguments);
        let text = &answer["content"][0]["text"];
        let text = text.as_str().or_else(|| {
            let nested = answer.pointer("/result/content/0/text");
            nested.and_then(Value::as_str)
        });
        text.unwrap_or_else(|| panic!("{answer:#}")).to_owned()
    }

    pub(super) fn call(&self, server: &str, tool: &str, arguments: Value) -> Value {
        let body = json!({
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        });
        let path = format!("/api/v1/mcp/servers/{server}/call");
        self.gantry.rest("POST", &path, Some(&body)).json()
    }

    /// Runs a script inside a server.
    pub(super) fn shell(&self, server: &str, script: &str) -> String {
        self.tool(server, "shell", json!({"script": script}))
            .trim_end()
            .to_owned()
    }
}
