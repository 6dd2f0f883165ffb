//! Which levels of isolation this host has, each tried. Starts no server. Entry point: [`probe_host`].

use gantry_model::spec::Rung;
use gantry_sandbox::Sandbox;

use super::{Gvisor, Rungs, fact, host_report, probe};
use crate::driver::{DriverError, HostFact, HostReport};

/// What images need for namespaces of their own, besides a root.
const NEEDED: [&str; 3] = ["seccomp", "landlock", "ipc namespace"];

/// Probes what this host supports for sandboxed processes, and each level of isolation. `search` is
/// the gateway's `PATH`.
pub async fn probe_host(search: &str) -> Result<HostReport, DriverError> {
    let instance = format!("probe-{}", std::process::id());
    let sandbox = probe(instance)?;
    let environment = [("PATH".to_owned(), search.to_owned())];
    let gvisor = Gvisor::find(&environment).prove(&sandbox).await;
    let rungs = Rungs {
        gvisor: gvisor.map(|(_, how)| how),
        namespaces: namespaces(&sandbox),
    };
    let mut report = host_report(&sandbox);
    let images = Rung::LADDER.map(|rung| (rung, rungs.of(rung)));
    let commands = rungs.of(Rung::Namespaces);
    for (rung, found) in images.into_iter().chain([(Rung::Process, commands)]) {
        let (available, detail) = match found {
            Ok(how) => (true, how),
            Err(why) => (false, why),
        };
        report.facts.push(HostFact {
            name: name(rung),
            available,
            detail: detail.to_owned(),
        });
    }
    Ok(report)
}

fn name(rung: Rung) -> &'static str {
    match rung {
        Rung::Gvisor => "rung gvisor",
        Rung::Firecracker => "rung firecracker",
        Rung::E2b => "rung e2b",
        Rung::Namespaces => "rung namespaces",
        Rung::Process => "rung process",
    }
}

/// Returns how images run in namespaces here, or why they do not.
pub(in crate::driver) fn namespaces(sandbox: &Sandbox) -> Result<String, String> {
    let root = fact(sandbox, "own root")?;
    for part in NEEDED {
        fact(sandbox, part).map_err(|why| format!("no {part}: {why}"))?;
    }
    Ok(format!(
        "namespaces and a root of its own, tried at the start ({root})"
    ))
}
