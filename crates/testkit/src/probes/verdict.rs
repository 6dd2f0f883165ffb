//! The output of probes, and which of it means an effect outside that is not visible there.

/// One probe and its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The probe's name.
    pub name: String,
    /// `done: …`, `refused: …` or `ended: …`.
    pub said: String,
}

/// Which kernel executes the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The host's: a successful call has an effect there.
    Hosts,
    /// The server's own, such as gVisor's: its changes stay inside.
    Own,
}

/// Probes that may be `done` on the host's kernel, since they only affect the server itself.
const HARMLESS: [&str; 18] = [
    // A port of the tree's own loopback.
    "take_gateway_port",
    // Its own memory and pages, within its limits.
    "lock_memory",
    "huge_pages",
    // Files and folders of its own; the secret is looked for in what they show.
    "read_secret_by_link",
    "environment_of_init",
    // Sent to the process with that number inside the tree: none, or one of its own.
    "signal_everybody",
    "signal_foreign",
    "priority_of_foreign",
    "limits_of_foreign",
    "trace_foreign",
    // Its own init, which belongs to the tree; that it lives on is seen by what follows.
    "signal_init_by_descriptor",
    "processors_of_init",
    "limits_of_init",
    // A program of its own, with the same restrictions.
    "program_from_memory",
    // The routes of its own network.
    "netlink_interface",
    // Datagrams on its own loopback: the judge's socket would have received them.
    "udp_broadcast",
    "host_udp",
    "dns_resolver",
];

impl Seen {
    /// Returns whether it reports an effect that would not be visible outside.
    pub fn is_breach(&self, kernel: Kernel) -> bool {
        kernel == Kernel::Hosts
            && self.said.starts_with("done")
            && !HARMLESS.contains(&self.name.as_str())
    }
}

/// Parses the program's output; `None` if it is incomplete.
pub fn read(output: &str) -> Option<Vec<Seen>> {
    let (lines, _) = output.rsplit_once("end\n")?;
    let lines = lines.lines().map(|line| {
        let (name, said) = line.split_once('\t')?;
        Some(Seen {
            name: name.to_owned(),
            said: said.to_owned(),
        })
    });
    lines.collect()
}

/// Puts runs side by side, as the table of `docs/isolation.md`.
pub fn table(runs: &[(&str, Vec<Seen>)]) -> String {
    let mut text = "| probe |".to_owned();
    for (name, _) in runs {
        text.push_str(&format!(" {name} |"));
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(runs.len()));
    let first = runs.first().map(|(_, seen)| seen.as_slice());
    for (index, probe) in first.unwrap_or_default().iter().enumerate() {
        text.push_str(&format!("\n| `{}` |", probe.name));
        for (_, seen) in runs {
            let said = seen.get(index).map_or("", |seen| seen.said.as_str());
            text.push_str(&format!(" {} |", said.trim_start_matches("refused: ")));
        }
    }
    text.push('\n');
    text
}
