//! Servers of other makers in images: the reference servers of npm and PyPI on a Debian root made of this
//! machine's own packages, pushed to and pulled from a real registry, in gVisor and in namespaces of their
//! own. Rows 1.1, 1.2, 1.19 and 1.20.

mod debian;

use std::time::Duration;

use gantry_testkit::image::configuration;
use gantry_testkit::registry::{ImageRegistry, RegistryAccess};
use serde_json::{Value, json};

use self::debian::{Layer, layer};
use crate::harness::{Gantry, Programs, needs_root};
use crate::servers::page::Page;

/// A hundred megabytes are pulled and unpacked first, on a busy machine.
const FIRST_START: Duration = Duration::from_secs(180);
const START: Duration = Duration::from_secs(60);

/// A gateway with the images in its reach.
struct World {
    gantry: Gantry,
    npm: String,
    pypi: String,
    _registry: ImageRegistry,
    _programs: Programs,
}

impl World {
    fn new() -> Self {
        needs_root();
        let registry = ImageRegistry::start(RegistryAccess::Open);
        // Both images have the same base, which is pushed and unpacked once.
        let push = |name: &str, layers: &[Layer], env: &[&str]| {
            let layers: Vec<Vec<u8>> = layers.iter().map(|one| layer(*one)).collect();
            let parts: Vec<&[u8]> = layers.iter().map(Vec::as_slice).collect();
            let config = json!({"Env": env, "WorkingDir": "/", "User": "1000:1000"});
            registry.push_parts(name, &configuration(&config, &parts), &layers)
        };
        let path = "PATH=/usr/bin:/bin";
        let npm = push(
            "reference/npm:1",
            &[Layer::Base, Layer::Node, Layer::Npm],
            &[path],
        );
        let python = [path, "PYTHONPATH=/opt/python", "PYTHONDONTWRITEBYTECODE=1"];
        let pypi = push("reference/pypi:1", &[Layer::Base, Layer::PyPi], &python);
        let programs = Programs::copied();
        Self {
            gantry: Gantry::builder().program(&programs.gantry()).start(),
            npm,
            pypi,
            _registry: registry,
            _programs: programs,
        }
    }

    /// Registers a server of npm.
    fn node(&self, name: &str, rung: &str, package: &str, members: Value) {
        let script =
            format!("/opt/servers/node_modules/@modelcontextprotocol/{package}/dist/index.js");
        let members = json!({"image": self.npm, "entrypoint": ["node", script]}).merged(members);
        self.register(name, rung, members);
    }

    /// Registers a server of PyPI.
    fn python(&self, name: &str, rung: &str, module: &str, members: Value) {
        let entrypoint = json!({"image": self.pypi, "entrypoint": ["python3", "-m", module]});
        self.register(name, rung, entrypoint.merged(members));
    }

    fn register(&self, name: &str, rung: &str, members: Value) {
        let body = json!({"name": name, "provider": rung, "limits": {"memory": "1G", "cpu": "2"}});
        let body = body.merged(members);
        let answer = self.gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    fn restart(&self, name: &str) {
        let path = format!("/api/v1/mcp/servers/{name}/restart");
        assert_eq!(self.gantry.rest("POST", &path, None).status, 200);
        self.gantry.wait_state(name, "ready", START);
    }

    /// Calls a tool through the MCP endpoint; returns its result.
    fn call(&self, tool: &str, arguments: Value) -> String {
        let answer = self.gantry.call(tool, arguments);
        let result = &answer["result"];
        assert!(result["content"].is_array(), "{tool}: {answer:#}");
        assert_ne!(result["isError"], true, "{tool}: {answer:#}");
        result.to_string()
    }
}

/// Puts the members of one object into another.
trait Merged {
    fn merged(self, more: Value) -> Value;
}

impl Merged for Value {
    fn merged(mut self, more: Value) -> Value {
        for (name, value) in more.as_object().unwrap() {
            self[name] = value.clone();
        }
        self
    }
}

// rows 1.1, 1.2, 1.12, 1.18, 1.19 and 1.20
#[test]
fn reference_servers_run_in_images_of_a_real_registry() {
    let world = World::new();
    let page = Page::serve();
    let port = page.url.rsplit(':').next().unwrap();
    let port: u16 = port.split('/').next().unwrap().parse().unwrap();
    for rung in ["namespaces", "gvisor"] {
        let name = |short: &str| format!("{short}-{rung}");
        let kept = json!({"volumes": ["/data"], "env": {"MEMORY_FILE_PATH": "/data/memory.jsonl"}});
        world.node(&name("memory"), rung, "server-memory", kept);
        let files = json!({"volumes": ["/files"], "args": ["/files"]});
        world.node(&name("files"), rung, "server-filesystem", files);
        // Over HTTP, at a port inside.
        let web = json!({"args": ["streamableHttp"], "env": {"PORT": "3001"}, "stdio_bridge": false,
            "port": 3001, "http_path": "/mcp"});
        world.node(&name("everything"), rung, "server-everything", web);
        world.python(&name("time"), rung, "mcp_server_time", json!({}));
        // One that needs a host of this machine, by its name.
        let egress = json!({"args": ["--allow-private-ips", "--ignore-robots-txt"],
            "network": [format!("localhost:{port}")],
            // Inside, `localhost` is the server itself; here it is meant as the host that was granted.
            "env": {"NO_PROXY": "", "no_proxy": ""}});
        world.python(&name("fetch"), rung, "mcp_server_fetch", egress);
        let all = ["memory", "files", "everything", "time", "fetch"].map(name);
        for name in &all {
            let status = world.gantry.wait_state(name, "ready", FIRST_START);
            assert_eq!(status["provider"]["name"], rung, "{status:#}");
            assert!(
                status["image_digest"]
                    .as_str()
                    .unwrap()
                    .starts_with("sha256:")
            );
            assert!(status["tools"].as_u64().unwrap() > 0, "{status:#}");
        }

        let tool = |server: &str, tool: &str| format!("{server}-{rung}__{tool}");
        let entity = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]});
        world.call(&tool("memory", "create_entities"), entity);
        let file = json!({"path": "/files/a.txt", "content": "kept"});
        world.call(&tool("files", "write_file"), file);
        let said = world.call(&tool("everything", "echo"), json!({"message": "over http"}));
        assert!(said.contains("Echo: over http"), "{said}");
        let now = world.call(
            &tool("time", "get_current_time"),
            json!({"timezone": "Europe/Berlin"}),
        );
        assert!(now.contains("Europe/Berlin"), "{now}");
        let url = format!("http://localhost:{port}/page");
        let read = world.call(&tool("fetch", "fetch"), json!({"url": url, "raw": true}));
        assert!(read.contains("A page of our own"), "{read}");
        // Nothing but what was granted.
        let other = json!({"url": format!("http://localhost:{}/page", port ^ 1), "raw": true});
        let refused = world.gantry.call(&tool("fetch", "fetch"), other);
        assert!(
            refused["error"].is_object() || refused["result"]["isError"] == true,
            "{refused:#}"
        );

        for name in ["memory", "files"] {
            world.restart(&format!("{name}-{rung}"));
        }
        let graph = world.call(&tool("memory", "read_graph"), json!({}));
        assert!(graph.contains("Ada") && graph.contains("counts"), "{graph}");
        let file = world.call(
            &tool("files", "read_text_file"),
            json!({"path": "/files/a.txt"}),
        );
        assert!(file.contains("kept"), "{file}");
        for name in &all {
            let path = format!("/api/v1/mcp/servers/{name}");
            assert!(world.gantry.rest("DELETE", &path, None).status < 300);
        }
    }
    // Both images share the layers of the base.
    let images = world.gantry.rest("GET", "/api/v1/images", None).json();
    let base = |at: usize| images["items"][at]["layers"][0]["digest"].clone();
    assert_eq!(base(0), base(1), "{images:#}");
}
