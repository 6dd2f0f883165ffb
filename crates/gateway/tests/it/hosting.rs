//! Rows 1.1–1.20 on servers that are images, through REST: in gVisor and in namespaces of their own, with
//! a gateway that is root and with one of an ordinary user.
//!
//! The image is made by the test kit from its own scripted server, and imported as an archive. Entry
//! point: [`Rig`].

mod calls;
mod crashes;
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

use gantry_testkit::image::Archive;
use serde_json::{Value, json};

use crate::harness::{Gantry, NOBODY, Programs, needs_root};

/// The name of the image.
pub(super) const IMAGE: &str = "registry.example/peer:1";
const SECOND: Duration = Duration::from_secs(1);
/// The rungs that an image can run on here.
pub(super) const RUNGS: [&str; 2] = ["gvisor", "namespaces"];
/// Who runs the gateway.
pub(super) const USERS: [Option<u32>; 2] = [None, Some(NOBODY)];

/// A gateway that has the image.
pub(super) struct Rig {
    pub(super) gantry: Gantry,
    /// Root, or an ordinary user.
    pub(super) is_root: bool,
    _programs: Programs,
    folder: tempfile::TempDir,
}

impl Rig {
    /// Starts a gateway, as another user if one is named, and imports the image.
    pub(super) fn new(user: Option<u32>) -> Self {
        Self::with(user, &Archive::peer(IMAGE))
    }

    pub(super) fn with(user: Option<u32>, image: &Archive) -> Self {
        needs_root();
        let programs = Programs::copied();
        let mut builder = Gantry::builder().program(&programs.gantry());
        if let Some(user) = user {
            builder = builder.user(user);
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let rig = Self {
            gantry: builder.start(),
            is_root: user.is_none(),
            _programs: programs,
            folder,
        };
        rig.import(image);
        rig
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
        let mut body = json!({
            "name": name,
            "image": IMAGE,
            "stdio_bridge": true,
            "restart_policy": "always",
            "provider": rung,
        });
        for (key, value) in members.as_object().unwrap() {
            body[key] = value.clone();
        }
        let answer = self.gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        (answer.status, answer.json())
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
