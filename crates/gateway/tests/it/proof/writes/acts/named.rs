//! Servers, grants, secrets and products.

use serde_json::{Map, Value, json};

use super::{Act, acknowledged, ask, assert_on_record, given, peer, shown};
use crate::harness::Gantry;

const SERVERS: &str = "/api/v1/mcp/servers";
const PRODUCTS: &str = "/api/v1/products";
const SECRET: &str = "/api/v1/secrets/TOKEN_OF_PROOF";

/// Registers one server after the other; one that is there is removed again.
#[derive(Default)]
pub(super) struct Register {
    number: usize,
}

impl Register {
    fn server(&self) -> String {
        format!("registered-{}", self.number)
    }
}

impl Act for Register {
    fn name(&self) -> &'static str {
        "register"
    }

    fn run(&mut self, gantry: &Gantry) -> bool {
        self.number += 1;
        let mut body = peer(&self.server(), &format!("given-{}", self.number));
        body["description"] = format!("number {}", self.number).into();
        acknowledged(ask(gantry, "POST", SERVERS, &body).as_ref(), 201)
    }

    fn check(&mut self, gantry: &Gantry, is_acknowledged: bool) -> bool {
        let name = self.server();
        let path = format!("{SERVERS}/{name}");
        let Some(server) = shown(gantry, &path) else {
            assert!(!is_acknowledged, "{name} is lost");
            return false;
        };
        assert_eq!(server["description"], format!("number {}", self.number));
        assert_eq!(given(gantry, &name), format!("given-{}", self.number));
        assert_on_record(gantry, "server.register", &name);
        let removed = gantry.rest("DELETE", &path, None);
        assert_eq!(removed.status, 204, "{}", removed.text());
        true
    }
}

/// Gives an agent other grants.
pub(super) struct Bind {
    number: usize,
    old: Value,
}

impl Bind {
    pub(super) fn prepare(gantry: &Gantry) -> Self {
        gantry.agent_with("worker", &["a:echo"]);
        let old = json!(["a:echo"]);
        Self { number: 0, old }
    }

    fn new_grants(&self) -> Value {
        let number = self.number;
        json!([
            "a:echo",
            format!("a:one-{number}"),
            format!("a:two-{number}")
        ])
    }
}

impl Act for Bind {
    fn name(&self) -> &'static str {
        "bind"
    }

    fn run(&mut self, gantry: &Gantry) -> bool {
        self.number += 1;
        let body = json!({"grant": self.new_grants()});
        let answer = ask(gantry, "PATCH", "/api/v1/agents/worker", &body);
        acknowledged(answer.as_ref(), 200)
    }

    fn check(&mut self, gantry: &Gantry, is_acknowledged: bool) -> bool {
        let agent = shown(gantry, "/api/v1/agents/worker").unwrap();
        let grants = &agent["grants"];
        let is_new = *grants == self.new_grants();
        assert!(is_new || *grants == self.old, "a mix: {grants}");
        assert!(is_new || !is_acknowledged, "grants are lost: {grants}");
        self.old = grants.clone();
        is_new
    }
}

/// Sets one value of a secret after the other.
pub(super) struct Secret {
    number: u64,
    /// The version that is there, and its value.
    old: (u64, String),
}

impl Secret {
    pub(super) fn prepare(gantry: &Gantry) -> Self {
        let server = peer("holder", "${TOKEN_OF_PROOF}");
        let made = gantry.rest("POST", SERVERS, Some(&server));
        assert_eq!(made.status, 201, "{}", made.text());
        let body = json!({"value": "value-of-proof-0", "servers": ["holder"]});
        let set = gantry.rest("PUT", SECRET, Some(&body));
        assert_eq!(set.status, 201, "{}", set.text());
        let old = (1, "value-of-proof-0".to_owned());
        Self { number: 0, old }
    }

    fn new_version(&self) -> (u64, String) {
        (self.old.0 + 1, format!("value-of-proof-{}", self.number))
    }
}

impl Act for Secret {
    fn name(&self) -> &'static str {
        "secret"
    }

    fn run(&mut self, gantry: &Gantry) -> bool {
        self.number += 1;
        let body = json!({"value": self.new_version().1, "servers": ["holder"]});
        acknowledged(ask(gantry, "PUT", SECRET, &body).as_ref(), 200)
    }

    fn check(&mut self, gantry: &Gantry, is_acknowledged: bool) -> bool {
        let secret = shown(gantry, SECRET).expect("a secret is never lost");
        let version = secret["version"].as_u64().unwrap();
        let known = [self.old.clone(), self.new_version()];
        let now = known.into_iter().find(|(known, _)| *known == version);
        let now = now.unwrap_or_else(|| panic!("neither the old nor the new one: {secret:#}"));
        let is_new = now.0 != self.old.0;
        assert!(is_new || !is_acknowledged, "a value is lost: {secret:#}");
        let bindings = json!([{"server": "holder", "in_force": true}]);
        assert_eq!(secret["bindings"], bindings);
        assert_eq!(given(gantry, "holder"), now.1, "version {version}");
        self.old = now;
        is_new
    }
}

/// Installs a product, upgrades it, and uninstalls it, in turn.
#[derive(Default)]
pub(super) struct Product {
    /// The version that is installed; none at 0.
    old: u64,
}

impl Product {
    fn next(&self) -> u64 {
        (self.old + 1) % 3
    }

    /// Returns the servers of a version; one is in both.
    fn servers(version: u64) -> Vec<&'static str> {
        match version {
            0 => vec![],
            1 => vec!["suite-one", "suite-two"],
            _ => vec!["suite-three", "suite-two"],
        }
    }

    fn manifest(version: u64) -> Value {
        let servers = Self::servers(version).into_iter().map(|name| {
            let mut server = peer(name, &format!("of-version-{version}"));
            server.as_object_mut().unwrap().shift_remove("name");
            server["start"] = "lazy".into();
            server["description"] = format!("of version {version}").into();
            (name.to_owned(), server)
        });
        let servers: Map<String, Value> = servers.collect();
        json!({"name": "suite", "version": version.to_string(), "mcp": {"servers": servers}})
    }

    fn install(&self, gantry: &Gantry) -> bool {
        let manifest = Self::manifest(self.next()).to_string();
        let preview = format!("{PRODUCTS}/preview");
        let plan = ask(gantry, "POST", &preview, &json!({"manifest": manifest}));
        let Some(plan) = plan.filter(|plan| acknowledged(Some(plan), 200)) else {
            return false;
        };
        let plan = plan.json();
        let mut body = json!({"manifest": manifest, "sha256": plan["sha256"]});
        if let Some(installed) = plan.get("installed_sha256") {
            body["installed_sha256"] = installed.clone();
        }
        acknowledged(ask(gantry, "POST", PRODUCTS, &body).as_ref(), 200)
    }
}

impl Act for Product {
    fn name(&self) -> &'static str {
        "product"
    }

    fn run(&mut self, gantry: &Gantry) -> bool {
        match self.next() {
            0 => {
                let path = format!("{PRODUCTS}/suite");
                let gone = ask(gantry, "DELETE", &path, &Value::Null);
                gone.is_some_and(|answer| answer.status < 300)
            }
            _ => self.install(gantry),
        }
    }

    fn check(&mut self, gantry: &Gantry, is_acknowledged: bool) -> bool {
        let product = shown(gantry, &format!("{PRODUCTS}/suite"));
        let version = product.map_or(0, |product| {
            let version = product["version"].as_str().unwrap();
            version.parse().unwrap()
        });
        let is_new = version == self.next();
        assert!(is_new || version == self.old, "version {version}");
        assert!(
            is_new || !is_acknowledged,
            "version {version} is still there"
        );
        let listed = shown(gantry, &format!("{SERVERS}?limit=1000")).unwrap();
        let listed = listed["items"].as_array().unwrap().iter();
        let name = |server: &Value| server["name"].as_str().unwrap().to_owned();
        let mut names: Vec<String> = listed.map(name).collect();
        names.retain(|name| name.starts_with("suite-"));
        names.sort();
        assert_eq!(names, Self::servers(version), "of version {version}");
        for name in names {
            let server = shown(gantry, &format!("{SERVERS}/{name}")).unwrap();
            assert_eq!(server["description"], format!("of version {version}"));
        }
        self.old = version;
        is_new
    }
}
