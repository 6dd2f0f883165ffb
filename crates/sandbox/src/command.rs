//! The command to run and its limits: plain values, validated when a command is spawned.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::root::{ImageUser, Mount, Root, RootBase};

/// System paths that any program may need to read.
pub(crate) const SYSTEM: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
];

/// A command to run as a supervised process tree.
#[derive(Clone)]
pub struct Command {
    /// The name of the server: names its cgroup and, if the gateway is root, determines its user.
    pub name: String,
    /// A path, or a name searched along the `PATH` of `env`.
    pub program: String,
    /// The arguments after the program's own name.
    pub args: Vec<String>,
    /// The whole environment; nothing else is inherited.
    pub env: Vec<(String, String)>,
    /// The working directory.
    pub cwd: PathBuf,
    /// How strictly the tree is confined.
    pub profile: Profile,
    /// Resource limits.
    pub limits: Limits,
    /// With [`Profile::Hosted`], the only writable paths; includes `cwd` only if listed.
    pub writable: Vec<PathBuf>,
    /// Access to the network.
    pub network: Network,
    /// The root file system: the host's, or a separate one.
    pub root: Root,
    /// With a separate root, the range of user ids.
    pub ids: Ids,
    /// With a separate root, the user to run as.
    pub user: Option<ImageUser>,
    /// The kernel that handles its system calls.
    pub runtime: Runtime,
    /// How its system calls are filtered.
    pub syscalls: Syscalls,
    /// The protections required before its program runs.
    pub floor: Floor,
}

/// The protections required before a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Whatever the host supports; the report lists what is missing.
    None,
    /// All protections of a hosted tree: namespaces, a separate root, ids, system call filters,
    /// Landlock, no privileges, and every limit that this host can enforce. Otherwise the program
    /// is not started.
    Whole,
}

/// How strictly a tree is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A user's own server: supervised tree, limits, no new privileges; files and home stay
    /// accessible.
    Local,
    /// An untrusted server: also a separate user where possible, Landlock and a stricter filter.
    Hosted,
}

/// Access of a tree to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// None: a private loopback if network namespaces are available, otherwise no sockets.
    None,
    /// A private loopback, on which the init can connect and listen for the gateway.
    Inside,
    /// The host's network.
    Full,
}

/// The host's user ids for a tree with a separate root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// One user: the gateway's own, or if the gateway is root, one derived from the server's name.
    Gateway,
    /// A separate range of 65,536 ids, whose first one is root inside. Requires a gateway that runs
    /// as root.
    Range {
        /// The first id.
        first: u32,
    },
}

/// The kernel that handles the system calls of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The host's kernel.
    Kernel,
    /// gVisor: a kernel in user space, separate for each tree.
    GVisor(GVisor),
}

/// A gVisor installed on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GVisor {
    /// The path of `runsc`.
    pub program: PathBuf,
}

/// How the system calls of a tree are filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscalls {
    /// All except a list are allowed, so that most programs run unchanged.
    DenyList,
    /// Only a list is allowed, as in container engines.
    AllowList,
}

/// Resource limits of a tree, for all its processes together; `nofile` is per process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// CPUs, as a fraction.
    pub cpu: Option<f64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Open descriptors of each process.
    pub nofile: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: None,
            memory_bytes: None,
            pids: None,
            nofile: 4096,
        }
    }
}

impl Default for Command {
    /// Returns an empty command with the strictest settings that work on the host's root.
    fn default() -> Self {
        Self {
            name: String::new(),
            program: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: PathBuf::from("/"),
            profile: Profile::Hosted,
            limits: Limits::default(),
            writable: Vec::new(),
            network: Network::None,
            root: Root::Host,
            ids: Ids::Gateway,
            user: None,
            runtime: Runtime::Kernel,
            syscalls: Syscalls::DenyList,
            floor: Floor::None,
        }
    }
}

impl Command {
    /// Returns the absolute paths among the program and its arguments that a [`Profile::Hosted`]
    /// tree cannot see: it sees system files, its working directory and its mounts. The program
    /// itself is always visible, but not the files next to it. Checks the text only, not the disk;
    /// the content of an image is not known here.
    pub fn outside_view(&self) -> Vec<PathBuf> {
        let mounts: &[Mount] = match &self.root {
            Root::Own(root) if root.base != RootBase::HostParts => return Vec::new(),
            Root::Own(root) => &root.mounts,
            Root::Host => &[],
        };
        if self.profile == Profile::Local {
            return Vec::new();
        }
        let words = std::iter::once(&self.program).chain(&self.args);
        // `--config=/x` also names a file.
        let paths = words.map(|word| match word.split_once('=') {
            Some((option, value)) if option.starts_with('-') => Path::new(value),
            Some(_) | None => Path::new(word.as_str()),
        });
        let is_seen = |path: &Path| {
            let mounts = mounts.iter().map(|mount| mount.target.as_path());
            let own = self.writable.iter().map(PathBuf::as_path).chain(mounts);
            let mut seen = SYSTEM.iter().map(Path::new).chain(own).chain([&*self.cwd]);
            // A server without its own folder runs in `/`, which makes nothing visible.
            seen.any(|seen| seen != Path::new("/") && path.starts_with(seen))
                || path.starts_with("/dev")
        };
        let is_plain = |path: &&Path| path.is_absolute() && path.components().nth(1).is_some();
        let outside = paths.filter(is_plain).filter(|path| !is_seen(path));
        outside.map(Path::to_owned).collect()
    }
}

impl fmt::Debug for Command {
    /// Shows only the names of variables: their values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Command")
            .field("name", &self.name)
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &names)
            .field("cwd", &self.cwd)
            .field("profile", &self.profile)
            .field("limits", &self.limits)
            .field("writable", &self.writable)
            .field("network", &self.network)
            .field("root", &self.root)
            .field("ids", &self.ids)
            .field("user", &self.user)
            .field("runtime", &self.runtime)
            .field("syscalls", &self.syscalls)
            .field("floor", &self.floor)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hosted_command_does_not_see_is_known() {
        let words = |profile, words: &[&str]| {
            let command = Command {
                name: "a".to_owned(),
                program: words[0].to_owned(),
                args: words[1..].iter().map(|word| (*word).to_owned()).collect(),
                cwd: PathBuf::from("/srv/a"),
                profile,
                writable: vec![PathBuf::from("/srv/a")],
                ..Command::default()
            };
            let outside = command.outside_view().into_iter();
            outside
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        let hosted = |line: &[&str]| words(Profile::Hosted, line);
        assert_eq!(hosted(&["python3", "/home/me/x.py"]), ["/home/me/x.py"]);
        assert_eq!(
            hosted(&["node", "--import=/tmp/x.mjs", "-v"]),
            ["/tmp/x.mjs"]
        );
        assert_eq!(
            hosted(&["/opt/x/bin", "/srv/a/x", "x.py", "/dev/stdin", "/"]),
            [""; 0]
        );
        assert_eq!(hosted(&["/srv/ab"]), ["/srv/ab"]);
        assert_eq!(words(Profile::Local, &["/home/me/x"]), [""; 0]);
    }

    #[test]
    fn debug_shows_no_secret() {
        // fault K4: a value of the environment never reaches a log line.
        let command = Command {
            name: "a".to_owned(),
            program: "b".to_owned(),
            env: vec![("TOKEN".to_owned(), "canary".to_owned())],
            ..Command::default()
        };
        let shown = format!("{command:?}");
        assert!(
            shown.contains("TOKEN") && !shown.contains("canary"),
            "{shown}"
        );
    }
}
