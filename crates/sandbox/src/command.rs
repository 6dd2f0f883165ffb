//! What to run and within which bounds: plain values, checked when a command is spawned.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::root::{ImageUser, Mount, Root, RootBase};

/// What any program may need to read to run at all.
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

/// A command to run as an owned tree.
#[derive(Clone)]
pub struct Command {
    /// The name of the server: names its cgroup and, as root, picks its user.
    pub name: String,
    /// A path, or a name searched along the `PATH` of `env`.
    pub program: String,
    /// The arguments after the program's own name.
    pub args: Vec<String>,
    /// The whole environment; nothing else is inherited.
    pub env: Vec<(String, String)>,
    /// The working directory.
    pub cwd: PathBuf,
    /// How strictly the tree is held.
    pub profile: Profile,
    /// What the tree may use.
    pub limits: Limits,
    /// With [`Profile::Hosted`] the only paths the tree may write to, `cwd` included only if listed.
    pub writable: Vec<PathBuf>,
    /// What of the network the tree reaches.
    pub network: Network,
    /// Which files it sees: the host's, or a root of its own.
    pub root: Root,
    /// With a root of its own, which users it has.
    pub ids: Ids,
    /// With a root of its own, whom it runs as.
    pub user: Option<ImageUser>,
    /// What answers its system calls.
    pub runtime: Runtime,
    /// How its system calls are filtered.
    pub syscalls: Syscalls,
    /// What must hold before its program runs.
    pub floor: Floor,
}

/// What must hold before a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Whatever the host gives; the report says what is missing.
    None,
    /// Everything that holds a hosted tree: namespaces, a root of its own, ids, filters of system calls,
    /// Landlock, no privileges, and every limit that this host can enforce. Else not one instruction of the
    /// program runs.
    Whole,
}

/// How strictly a tree is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A person's own server: owned tree, limits, no new privileges; files and home stay open.
    Local,
    /// Someone else's server: also an own user where possible, Landlock and a stricter filter.
    Hosted,
}

/// What of the network a tree reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Not at all: an own loopback where there are network namespaces, nothing elsewhere.
    None,
    /// An own loopback on which the init can dial and listen for the gateway.
    Inside,
    /// As the gateway itself.
    Full,
}

/// The users of a tree with a root of its own, as the host numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// One user: the gateway's, or as root one that the server's name picks.
    Gateway,
    /// An own range of 65,536, of which `first` is its root. Needs a gateway that is root.
    Range {
        /// The first of them.
        first: u32,
    },
}

/// What answers the system calls of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The host's kernel.
    Kernel,
    /// gVisor: a kernel of the tree's own, in user space.
    GVisor(GVisor),
}

/// A gVisor on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GVisor {
    /// The path of `runsc`.
    pub program: PathBuf,
}

/// How the system calls of a tree are filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscalls {
    /// All but a list are let through, so that everything runs as it is.
    DenyList,
    /// Only a list is let through, as container engines do.
    AllowList,
}

/// What a tree may use, all its processes together; `nofile` is per process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Processors, as a fraction.
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
    /// Nothing to run, held as strictly as the host's own root allows.
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
    /// Returns the absolute paths among the program and its arguments that lie outside of what a
    /// [`Profile::Hosted`] tree sees: the system's files, its working directory and what is mounted for it.
    /// The program itself is always shown, but nothing beside it. Looks at the words only, not at the
    /// disk; what an image holds is not known here.
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
        // `--config=/x` names a file, too.
        let paths = words.map(|word| match word.split_once('=') {
            Some((option, value)) if option.starts_with('-') => Path::new(value),
            Some(_) | None => Path::new(word.as_str()),
        });
        let is_seen = |path: &Path| {
            let mounts = mounts.iter().map(|mount| mount.target.as_path());
            let own = self.writable.iter().map(PathBuf::as_path).chain(mounts);
            let mut seen = SYSTEM.iter().map(Path::new).chain(own).chain([&*self.cwd]);
            // A server without a place of its own runs in `/`, which opens nothing.
            seen.any(|seen| seen != Path::new("/") && path.starts_with(seen))
                || path.starts_with("/dev")
        };
        let is_plain = |path: &&Path| path.is_absolute() && path.components().nth(1).is_some();
        let outside = paths.filter(is_plain).filter(|path| !is_seen(path));
        outside.map(Path::to_owned).collect()
    }
}

impl fmt::Debug for Command {
    /// Shows the names of the variables only: their values may be secrets.
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
