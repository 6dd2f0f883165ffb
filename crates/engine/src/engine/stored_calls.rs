//! What happens to calls once they are stored: listeners of their project hear of them, metrics count them,
//! and their spans are exported. Entry points: [`Engine::feed_stored_calls`] and [`Engine::export_traces`].

use std::collections::HashMap;
use std::sync::Arc;

use gantry_model::id::ProjectName;
use gantry_model::settings::TraceExport;
use gantry_store::CallRow;

use super::Engine;
use crate::project::Project;

impl Engine {
    /// Broadcasts every call that is stored from now on to the listeners of its project, and exports it;
    /// returns those that were stored before.
    pub(super) async fn feed_stored_calls(&self) -> Vec<CallRow> {
        // Weak: the engine holds the audit.
        let inner = Arc::downgrade(&self.inner);
        let traces = self.inner.machine.traces.clone();
        let siem = self.inner.machine.siem.clone();
        let hook = move |rows: &[CallRow<&str>]| {
            let projects = inner.upgrade().map(|inner| inner.projects.load_full());
            for project in projects.iter().flat_map(|projects| projects.values()) {
                project.router.events.calls_stored(rows);
                project.count_stored(rows);
            }
            if let (Some(traces), Some(projects)) = (&traces, &projects) {
                traces.take(rows, |name| trace_export(projects, name));
            }
            if let Some(siem) = &siem {
                siem.stored();
            }
        };
        self.inner.machine.audit.on_saved(Box::new(hook)).await
    }

    /// Sends spans to their endpoint, if there is one; first those of calls that a former gateway left.
    pub(super) fn export_traces(&self, left: &[CallRow]) {
        let machine = &self.inner.machine;
        if let Some(traces) = &machine.traces {
            let projects = self.inner.projects.load();
            let left: Vec<_> = left.iter().map(CallRow::borrowed).collect();
            traces.take(&left, |name| trace_export(&projects, name));
            let running = Arc::clone(traces).run(machine.stop_tasks.clone());
            machine.tracker.spawn(running);
        }
    }

    /// Pushes calls and administrative acts to a SIEM, if there is one.
    pub(super) fn push_audit(&self) {
        let machine = &self.inner.machine;
        if let Some(siem) = &machine.siem {
            let running = Arc::clone(siem).run(machine.stop_tasks.clone());
            machine.tracker.spawn(running);
        }
    }
}

/// Returns what a project that is open exports of its calls.
fn trace_export(projects: &HashMap<ProjectName, Arc<Project>>, name: &str) -> Option<TraceExport> {
    let project = projects
        .values()
        .find(|project| project.name().as_str() == name)?;
    Some(project.settings().traces)
}
