//! Keys, made and revoked, and projects, made and deleted.

use serde_json::{Value, json};

use super::{Act, acknowledged, ask, assert_on_record, shown};
use crate::harness::Gantry;

const KEYS: &str = "/api/v1/keys";

/// Makes a key of an agent, then revokes it.
pub(super) struct Key {
    /// The ids of all other keys.
    others: Vec<String>,
    /// The id and the text of ours.
    own: Option<(String, String)>,
    /// Ours is to be revoked.
    is_revoking: bool,
}

/// Returns the ids of all keys.
fn listed(gantry: &Gantry) -> Vec<String> {
    let page = shown(gantry, &format!("{KEYS}?limit=1000")).unwrap();
    let keys = page["items"].as_array().unwrap().iter();
    keys.map(|key| key["id"].as_str().unwrap().to_owned())
        .collect()
}

impl Key {
    pub(super) fn prepare(gantry: &Gantry) -> Self {
        Self {
            others: listed(gantry),
            own: None,
            is_revoking: false,
        }
    }
}

impl Act for Key {
    fn name(&self) -> &'static str {
        "key"
    }

    fn run(&mut self, gantry: &Gantry) -> bool {
        self.is_revoking = self.own.is_some();
        if let Some((id, _)) = &self.own {
            let path = format!("{KEYS}/{id}");
            return acknowledged(ask(gantry, "DELETE", &path, &Value::Null).as_ref(), 204);
        }
        let body = json!({"kind": "agent", "agent": "worker"});
        let made = ask(gantry, "POST", KEYS, &body);
        let is_acknowledged = acknowledged(made.as_ref(), 201);
        if let Some(made) = made.filter(|_| is_acknowledged) {
            let made = made.json();
            let text = |name: &str| made[name].as_str().unwrap().to_owned();
            self.own = Some((text("id"), text("key")));
        }
        is_acknowledged
    }

    fn check(&mut self, gantry: &Gantry, is_acknowledged: bool) -> bool {
        let mut ours = listed(gantry);
        ours.retain(|id| !self.others.contains(id));
        assert!(ours.len() <= 1, "{ours:?}");
        let is_there = !ours.is_empty();
        if let Some((id, key)) = &self.own {
            assert!(ours.iter().all(|own| own == id), "{ours:?}");
            let status = gantry.rest_as(key, "GET", "/api/v1/tools", None).status;
            assert_eq!(status, if is_there { 200 } else { 401 });
        }
        let is_new = is_there != self.is_revoking;
        assert!(is_new || !is_acknowledged, "a key is lost, or lives on");
        if self.own.is_none() {
            // Nobody was told its text: it can only be revoked.
            for id in ours {
                let path = format!("{KEYS}/{id}");
                assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
            }
        }
        if !is_there {
            self.own = None;
        }
        is_new
    }
}

/// Makes one project after the other, and deletes each.
#[derive(Default)]
pub(super) struct Project {
    number: usize,
    is_there: bool,
    is_deleting: bool,
}

impl Project {
    fn path(&self) -> String {
        format!("/api/v1/projects/proof-{}", self.number)
    }
}

impl Act for Project {
    fn name(&self) -> &'static str {
        "project"
    }

    fn run(&mut self, gantry: &Gantry) -> bool {
        self.is_deleting = self.is_there;
        if self.is_deleting {
            let gone = ask(gantry, "DELETE", &self.path(), &Value::Null);
            return gone.is_some_and(|answer| answer.status < 300);
        }
        self.number += 1;
        let body = json!({"name": format!("proof-{}", self.number), "description": "of a proof"});
        acknowledged(ask(gantry, "POST", "/api/v1/projects", &body).as_ref(), 201)
    }

    fn check(&mut self, gantry: &Gantry, is_acknowledged: bool) -> bool {
        let project = shown(gantry, &self.path());
        self.is_there = project.is_some();
        let is_new = self.is_there != self.is_deleting;
        assert!(is_new || !is_acknowledged, "{}: {project:?}", self.path());
        let Some(project) = project else {
            return is_new;
        };
        assert_eq!(project["description"], "of a proof");
        assert_eq!(project["loaded"], true, "{project:#}");
        assert_on_record(gantry, "project.create", &format!("proof-{}", self.number));
        // It can be used: it has agents of its own.
        let agent = json!({"name": "worker", "grant": ["*"]});
        let path = format!("{}/agents", self.path());
        let made = gantry.rest("POST", &path, Some(&agent));
        assert!([201, 409].contains(&made.status), "{}", made.text());
        is_new
    }
}
