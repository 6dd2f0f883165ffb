//! What is withheld from a caller who may use it: a suspended tool, and a tool or prompt that nobody
//! approved.

use gantry_model::caller::Caller;
use gantry_model::grant::MethodClass;
use gantry_model::suspension::Suspendable;

use super::Router;
use crate::error::CallError;
use crate::pins::{PinKind, quarantined};
use crate::request::Scope;

impl Router {
    /// Returns the error for a tool that is hidden because it is suspended, if the caller may use
    /// it.
    pub(super) fn suspended_tool(&self, caller: &Caller, name: &str) -> Option<CallError> {
        let now = self.suspended.now();
        let mut tools = now.tools();
        let (server, tool) = tools.find(|(server, tool)| {
            let is_meant = |mark: &str| name == format!("{server}{mark}{tool}");
            is_meant(":") || is_meant("__")
        })?;
        let may = caller.grants.shows(MethodClass::Tool, server, Some(tool));
        may.then(|| CallError::Suspended {
            what: Suspendable::Tool(server.clone(), tool.into()),
        })
    }

    /// Says of a tool or prompt that is not listed because nobody approved it that it is held back,
    /// to those who may use it.
    pub(super) fn unapproved(
        &self,
        caller: &Caller,
        scope: &Scope,
        kind: PinKind,
        name: &str,
    ) -> Option<CallError> {
        let class = match kind {
            PinKind::Tool => MethodClass::Tool,
            PinKind::Prompt => MethodClass::Prompt,
            PinKind::Template => return None,
        };
        if self.pins.is_open() {
            return None;
        }
        self.supervisor.all().iter().find_map(|handle| {
            let server = &handle.name;
            let rest = name.strip_prefix(server.as_str());
            let qualified =
                rest.and_then(|rest| rest.strip_prefix(':').or_else(|| rest.strip_prefix("__")));
            let bare = match scope {
                Scope::All => None,
                Scope::Server(only) if only == server => Some(name),
                Scope::Server(_) => return None,
            };
            let offered = handle.catalog.load();
            let mut items = [qualified, bare].into_iter().flatten();
            items.find_map(|item| {
                let version = offered.version_of(kind, item)?;
                let why = self.pins.reason(handle.id, kind, item, version)?;
                let may = caller.grants.shows(class, server, Some(item));
                may.then(|| quarantined(server, item, why))
            })
        })
    }
}
