//! The `topics` parameter of the event stream, such as
//! `servers,log:files,calls:status=error;agent=ci-bot`. Entry point: [`Topics::parse`].

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_engine::CallRow;
use gantry_engine::Project;
use gantry_model::caller::Permission;
use gantry_model::id::ServerName;
use gantry_model::trace;

use crate::api::query::bad;
use crate::api::servers::unknown;
use crate::http::error::Problem;

/// Topics of one stream.
const TOPICS: usize = 32;
/// Maximum number of logs per stream.
const LOGS: usize = 8;

/// The default topics.
const DEFAULT: &str = "overview,servers";

/// The requested topics.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Topics {
    /// Counters every second, and project-wide events.
    pub(super) overview: bool,
    /// Every server.
    pub(super) servers: bool,
    /// Single servers, with their usage.
    pub(super) server: BTreeSet<ServerName>,
    /// The output of these servers.
    pub(super) logs: BTreeSet<ServerName>,
    /// Calls that match any of these filters.
    pub(super) calls: Vec<CallsWanted>,
    /// Changes of what is offered.
    pub(super) catalog: bool,
    /// Changes of keys, agents and grants.
    pub(super) access: bool,
}

/// A filter over calls: every given field must match.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CallsWanted(Vec<(CallField, String)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallField {
    Agent,
    Server,
    Tool,
    Status,
    Code,
    Run,
    Session,
    Trace,
}

const FIELDS: [(&str, CallField); 8] = [
    ("agent", CallField::Agent),
    ("server", CallField::Server),
    ("tool", CallField::Tool),
    ("status", CallField::Status),
    ("code", CallField::Code),
    ("run", CallField::Run),
    ("session", CallField::Session),
    ("trace", CallField::Trace),
];

impl Topics {
    /// Parses the topics; unknown servers are refused.
    pub(super) fn parse(text: Option<&str>, project: &Arc<Project>) -> Result<Self, Problem> {
        let mut topics = Self::default();
        let names = text.unwrap_or(DEFAULT).split(',').map(str::trim);
        for (count, topic) in names.enumerate() {
            let named = |name: &str| {
                let known = project.server(name);
                let known = known.map(|server| server.spec.name.clone());
                known.ok_or_else(|| unknown(project, name))
            };
            let (kind, of) = topic.split_once(':').unwrap_or((topic, ""));
            match (kind, of) {
                _ if count >= TOPICS => {
                    return Err(refused(topic, "a stream has at most 32 topics"));
                }
                ("overview", "") => topics.overview = true,
                ("servers", "") => topics.servers = true,
                ("catalog", "") => topics.catalog = true,
                ("access", "") => topics.access = true,
                ("server", name) if !name.is_empty() => {
                    topics.server.insert(named(name)?);
                }
                ("log", name) if !name.is_empty() => {
                    topics.logs.insert(named(name)?);
                }
                ("calls", filter) => topics.calls.push(CallsWanted::parse(filter)?),
                _ => {
                    let known = "overview, servers, catalog, access, calls, calls:FIELD=TEXT;…, \
                                 server:NAME, log:NAME";
                    return Err(refused(topic, &format!("topics are {known}")));
                }
            }
        }
        match topics.logs.len() > LOGS {
            true => Err(refused("log", "a stream follows at most 8 logs")),
            false => Ok(topics),
        }
    }

    /// Returns the permissions that these topics need besides reading: the same as the routes that
    /// show logs and calls. fault U4
    pub(super) fn needed(&self) -> impl Iterator<Item = Permission> {
        let logs = (!self.logs.is_empty()).then_some(Permission::Operate);
        let calls = (!self.calls.is_empty()).then_some(Permission::Audit);
        logs.into_iter().chain(calls)
    }

    /// Returns whether events of a server are wanted.
    pub(super) fn wants_server(&self, server: &ServerName) -> bool {
        self.servers || self.server.contains(server)
    }

    /// Returns whether a call is wanted.
    pub(super) fn wants_call(&self, call: &CallRow) -> bool {
        self.calls.iter().any(|wanted| wanted.takes(call))
    }
}

impl CallsWanted {
    fn parse(filter: &str) -> Result<Self, Problem> {
        let mut fields = Vec::new();
        for pair in filter.split(';').filter(|pair| !pair.is_empty()) {
            let mut read = form_urlencoded::parse(pair.as_bytes());
            let (name, text) = read.next().unwrap_or_default();
            let known = FIELDS.iter().find(|(known, _)| *known == name);
            let names = FIELDS.map(|(known, _)| known).join(", ");
            let unknown = || refused(pair, &format!("a call is filtered by {names}"));
            let (_, field) = known.ok_or_else(unknown)?;
            let wanted = match matches!(field, CallField::Trace) {
                true => trace::asked_for(&text).into_owned(),
                false => text.into_owned(),
            };
            fields.push((*field, wanted));
        }
        Ok(Self(fields))
    }

    fn takes(&self, call: &CallRow) -> bool {
        self.0.iter().all(|(field, wanted)| {
            let own = match field {
                CallField::Agent => Some(call.agent.as_str()),
                CallField::Server => Some(call.server.as_str()),
                CallField::Tool => Some(call.tool.as_str()),
                CallField::Status => Some(call.status.as_str()),
                CallField::Code => call.code.as_deref(),
                CallField::Run => call.run.as_deref(),
                CallField::Session => call.session.as_deref(),
                CallField::Trace => call.trace.as_deref(),
            };
            own == Some(wanted)
        })
    }
}

fn refused(topic: &str, hint: &str) -> Problem {
    bad("topics", topic).with_hint(hint)
}
