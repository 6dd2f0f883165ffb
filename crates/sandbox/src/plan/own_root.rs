//! The plan of a tree with a separate root: its users, its root, its program.

use std::io;

use super::{FIRST_UID, Plan, UIDS, hash, limits};
use crate::cgroup::Group;
use crate::command::{Command, Ids, Network, Runtime};
use crate::error::SpawnError;
use crate::floor;
use crate::gvisor;
use crate::hidden::Hidden;
use crate::host::{Host, Mode, NEW_MOUNT, NEW_NETWORK, NEW_PID, NEW_UTS};
use crate::host_parts::{SERVER_HOME, SERVER_ID};
use crate::job::Job;
use crate::landlock;
use crate::own::{Layout, Owner, RootUse, layout};
use crate::protocol::{
    FLAG_CGROUP_NAMESPACE, FLAG_HOME, FLAG_LOOPBACK, FLAG_MANY_IDS, FLAG_OWN_ROOT, Record,
    STAGE_LOOKUP, STAGE_PIVOT, STAGE_RANGE, STAGE_ROOT, STAGE_STEP,
};
use crate::root::{OwnRoot, RootBase};
use crate::search::{candidates, search_path};
use crate::seccomp::Sockets;

/// The ids of a range.
const RANGE: u32 = 65_536;

/// The properties of a separate root that the report needs.
#[derive(Clone, Debug)]
pub(crate) struct OwnPlan {
    /// The writable paths, as the tree sees them.
    pub(crate) writable: Vec<std::path::PathBuf>,
    /// Its user ids on the host: the first and their number; one, the gateway's own, for an
    /// ordinary user.
    pub(crate) ids: (u32, u32),
    pub(crate) runtime: Runtime,
    /// The names of its variables.
    pub(crate) variables: Vec<String>,
}

impl Plan {
    /// Plans a command with a separate root.
    pub(super) fn own(
        host: &Host,
        mut mode: Mode,
        command: &Command,
        root: &OwnRoot,
        hidden: &Hidden,
        group: &Group,
    ) -> Result<Self, SpawnError> {
        let missing = |why: &str| SpawnError::NoOwnRoot {
            why: why.to_owned(),
        };
        host.own_root.as_ref().map_err(|why| missing(why))?;
        if !mode.has(NEW_PID) || !mode.has(NEW_MOUNT) {
            return Err(missing("it has no PID and mount namespaces"));
        }
        if command.network == Network::Full {
            mode.namespaces &= !NEW_NETWORK;
        }
        let mut job = Job {
            flags: FLAG_OWN_ROOT | FLAG_CGROUP_NAMESPACE | floor::flags(command),
            unshare: mode.unshare() | NEW_UTS,
            host_name: root.hostname.clone(),
            ..Job::default()
        };
        if mode.has(NEW_NETWORK) {
            job.flags |= FLAG_LOOPBACK;
        }
        let hosted_parts = root.base == RootBase::HostParts;
        if hosted_parts && command.user.is_none() {
            (job.uid, job.gid) = (SERVER_ID, SERVER_ID);
        }
        let ids = ids(host, mode, command, &mut job).map_err(|why| missing(&why))?;
        let owner = match (mode.user, &command.user) {
            (true, _) => Owner::Same,
            (false, Some(_)) => Owner::LookedUp,
            (false, None) if job.flags & FLAG_MANY_IDS != 0 => Owner::Known(ids.0 + job.uid),
            (false, None) => Owner::Known(ids.0),
        };
        let (mut refused_calls, mut allowed_calls) = (0, None);
        let layout = match &command.runtime {
            Runtime::Kernel => {
                let layout = layout(command, root, hidden, RootUse::Entered, owner)?;
                (refused_calls, allowed_calls) = enter(host, mode, command, &layout, &mut job)?;
                if hosted_parts {
                    default(&mut job, "HOME", SERVER_HOME);
                    default(&mut job, "TMPDIR", "/tmp");
                } else if !has(&job, "HOME") {
                    job.flags |= FLAG_HOME;
                }
                default(&mut job, "PATH", search_path(command));
                job.steps = layout.steps.clone();
                layout
            }
            Runtime::GVisor(runtime) => {
                let layout = layout(command, root, hidden, RootUse::Guest, owner)?;
                gvisor::fill(&mut job, command, root, runtime, &layout);
                layout
            }
        };
        let variables = variables(command, &job);
        let (data_limit, process_limit) = match command.runtime {
            Runtime::Kernel => limits(command, mode, group, &mut job),
            Runtime::GVisor(_) => {
                job.limits = gvisor::limits();
                (None, None)
            }
        };
        Ok(Self {
            job,
            mode,
            refused_calls,
            allowed_calls,
            unwritable: layout.unwritable,
            data_limit,
            process_limit,
            own: Some(OwnPlan {
                writable: layout.writable,
                ids,
                runtime: command.runtime.clone(),
                variables,
            }),
        })
    }

    /// Converts a failed step of building the root into an error.
    pub(crate) fn root_failure(&self, command: &Command, record: Record) -> Option<SpawnError> {
        let source = io::Error::from_raw_os_error(record.value);
        let index = usize::try_from(record.data).unwrap_or(usize::MAX);
        match record.stage {
            STAGE_STEP => Some(SpawnError::Root {
                step: self.job.steps.get(index)?.to_string(),
                source,
            }),
            STAGE_LOOKUP => Some(SpawnError::UserUnknown {
                user: command.user.as_ref()?.to_string(),
            }),
            STAGE_ROOT | STAGE_PIVOT | STAGE_RANGE => Some(SpawnError::NoOwnRoot {
                why: format!("{}: {source}", super::step(record.stage)),
            }),
            _ => None,
        }
    }
}

/// Sets up the user namespace of a tree; returns its first id on the host and the number of ids.
fn ids(host: &Host, mode: Mode, command: &Command, job: &mut Job) -> Result<(u32, u32), String> {
    let identity = host.identity;
    match command.ids {
        Ids::Range { .. } if mode.user || identity.uid != 0 => {
            Err("a range of ids requires a gateway that runs as root".to_owned())
        }
        Ids::Range { first } => {
            host.id_range.clone()?;
            if first == 0 || first.checked_add(RANGE).is_none() {
                return Err(format!("ids from {first} on are not a valid range"));
            }
            job.flags |= FLAG_MANY_IDS;
            job.range_map = format!("0 {first} {RANGE}");
            job.first_id = first;
            Ok((first, RANGE))
        }
        Ids::Gateway if mode.user => {
            job.uid_map = format!("0 {} 1", identity.uid);
            job.gid_map = format!("0 {} 1", identity.gid);
            Ok((identity.uid, 1))
        }
        // Never the host's root.
        Ids::Gateway => {
            host.own_user.clone()?;
            let uid = FIRST_UID + hash(&command.name) % UIDS;
            job.range_map = format!("0 {uid} 1");
            job.first_id = uid;
            Ok((uid, 1))
        }
    }
}

/// Sets up the program in a root on the host's kernel; returns how many system calls are refused
/// and, with an allow list, how many are allowed.
fn enter(
    host: &Host,
    mode: Mode,
    command: &Command,
    layout: &Layout,
    job: &mut Job,
) -> Result<(usize, Option<usize>), SpawnError> {
    let ruleset = landlock::own_root(host.landlock_abi, &layout.writable);
    job.landlock_handled = ruleset.handled;
    job.landlock_rules = ruleset.rules;
    let offline = command.network != Network::Full;
    let sockets = if offline && !mode.has(NEW_NETWORK) {
        Sockets::LocalOnly
    } else {
        Sockets::Profile
    };
    let filters = super::filters(host, command, sockets)?;
    job.filters = filters.programs;
    job.cwd.clone_from(&command.cwd);
    job.candidates = candidates(command);
    let words = std::iter::once(&command.program).chain(&command.args);
    job.arguments = words.cloned().collect();
    job.environment.clone_from(&command.env);
    Ok((filters.refused, filters.allowed))
}

/// Returns the names of the program's variables.
fn variables(command: &Command, job: &Job) -> Vec<String> {
    let names = |pairs: &[(String, String)]| -> Vec<String> {
        pairs.iter().map(|(name, _)| name.clone()).collect()
    };
    let (mut found, always): (_, &[&str]) = match command.runtime {
        Runtime::Kernel if job.flags & FLAG_HOME != 0 => (names(&job.environment), &["HOME"]),
        Runtime::Kernel => (names(&job.environment), &[]),
        // gVisor adds `HOME` itself.
        Runtime::GVisor(_) => (names(&command.env), &["PATH", "HOME"]),
    };
    for name in always {
        if !found.iter().any(|known| known == name) {
            found.push((*name).to_owned());
        }
    }
    found
}

fn has(job: &Job, name: &str) -> bool {
    job.environment.iter().any(|(variable, _)| variable == name)
}

/// Sets a variable unless it is set.
fn default(job: &mut Job, name: &str, value: &str) {
    if !has(job, name) {
        job.environment.push((name.to_owned(), value.to_owned()));
    }
}
