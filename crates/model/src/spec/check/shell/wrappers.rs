//! Programs that run another program given in their arguments, and what precedes it there.
//!
//! Two kinds: wrappers such as `env`, whose program follows their options, and launchers such as
//! `uv run`, whose program follows a subcommand. Entry points: [`wrapper`] and [`launcher`].

/// What is between a wrapper and its program, besides options and assignments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    /// The short options that take the next word.
    pub(super) valued: &'static str,
    /// How many words of its own follow the options.
    pub(super) operands: usize,
}

impl Before {
    pub(super) const fn valued(valued: &'static str) -> Self {
        Self {
            valued,
            operands: 0,
        }
    }

    /// Returns whether an option takes the next word as its value.
    pub(super) fn takes_next(self, option: &str) -> bool {
        match option.strip_prefix("--") {
            Some(long) => VALUED.contains(&long),
            None => option.len() > 1 && option.ends_with(|letter| self.valued.contains(letter)),
        }
    }
}

/// Long options of wrappers that take the next word.
const VALUED: [&str; 16] = [
    "unset",
    "chdir",
    "argv0",
    "adjustment",
    "signal",
    "kill-after",
    "input",
    "output",
    "error",
    "user",
    "group",
    "max-args",
    "max-procs",
    "library-path",
    "preload",
    "property",
];

/// A program with subcommands, one of which runs another program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launcher {
    /// The words that precede the program.
    pub(super) behind: &'static [&'static str],
    /// What precedes the program; `None` if the program is the name of a package or of a script of
    /// the project.
    pub(super) before: Option<Before>,
}

impl Launcher {
    /// Returns the variant in which the program follows `--`, if that is possible.
    pub(super) fn behind_dashes(self) -> Option<Self> {
        let behind: &'static [&'static str] = &["--"];
        self.behind
            .contains(&"--")
            .then_some(Self { behind, ..self })
    }
}

/// Returns what precedes the program of a wrapper.
pub(super) fn wrapper(name: &str) -> Option<Before> {
    let (valued, operands) = match name {
        "env" => ("uCSa", 0),
        "nice" | "choom" => ("n", 0),
        "ionice" => ("cnpPu", 0),
        "chrt" => ("TPD", 1),
        "taskset" | "setarch" | "chroot" | "gosu" | "su-exec" | "setuidgid" | "s6-setuidgid" => {
            ("", 1)
        }
        "timeout" | "gtimeout" => ("ks", 1),
        "flock" => ("wE", 1),
        "faketime" => ("f", 1),
        "stdbuf" => ("ioe", 0),
        "time" => ("fo", 0),
        "exec" => ("a", 0),
        "xargs" => ("aEILnPsd", 0),
        "sudo" => ("CDghpRrTtUu", 0),
        "doas" => ("Cu", 0),
        "runuser" => ("ugGsw", 0),
        "numactl" => ("CmNpi", 0),
        "unshare" | "nsenter" => ("SGRwt", 0),
        "strace" | "ltrace" => ("abeEIoOpPsSuUXlnxDF", 0),
        "proot" => ("rbmwqki", 0),
        "xvfb-run" => ("nefsp", 0),
        "chpst" => ("uUbe/nlLmdoqsfct", 0),
        "tini" => ("p", 0),
        "dumb-init" => ("r", 0),
        "nohup" | "setsid" | "unbuffer" | "command" | "find" | "fd" | "fdfind" | "pkexec"
        | "su" | "setpriv" | "capsh" | "prlimit" | "fakeroot" | "fakechroot" | "bwrap"
        | "nsjail" | "firejail" | "linux" | "script" | "perf" | "valgrind" | "systemd-run"
        | "systemd-inhibit" | "systemd-nspawn" | "catchsegv" | "catatonit" | "dbus-run-session"
        | "dbus-launch" | "ssh-agent" | "dotenv" | "dotenvx" | "env-cmd" | "cross-env"
        | "with-contenv" | "envdir" | "proxychains" | "torsocks" | "eatmydata" | "nocache"
        | "cpulimit" | "cgexec" | "runcon" | "rlwrap" | "sandbox-exec" | "caffeinate"
        | "rootlesskit" | "flatpak-spawn" | "busybox" | "toybox" | "arch" | "chronic" | "entr"
        | "ifne" | "screen" | "tmux" => ("", 0),
        _ if is_loader(name) => ("", 0),
        _ => return None,
    };
    Some(Before { valued, operands })
}

/// Returns how a launcher runs another program.
pub(super) fn launcher(name: &str) -> Option<Launcher> {
    // Programs of the host, found on the search path.
    const PROGRAM: Option<Before> = Some(Before::valued(""));
    const BEHIND_ONE: Option<Before> = Some(Before {
        valued: "",
        operands: 1,
    });
    let (behind, before): (&'static [&'static str], _) = match name {
        "uv" | "poetry" | "pipenv" | "hatch" | "pdm" | "rye" | "pixi" | "conda" | "mamba"
        | "micromamba" | "volta" | "foreman" | "honcho" | "devbox" => (&["run"], PROGRAM),
        "bundle" | "bundler" | "rbenv" | "pyenv" | "nodenv" | "asdf" => (&["exec"], PROGRAM),
        "mise" | "rtx" => (&["exec", "x", "--"], PROGRAM),
        "fnm" => (&["exec", "--"], PROGRAM),
        "op" | "doppler" | "infisical" | "teller" => (&["run", "--"], PROGRAM),
        "direnv" | "aws-vault" | "chamber" => (&["exec", "--"], BEHIND_ONE),
        "nix" | "guix" => (&["-c", "--command", "--"], PROGRAM),
        "bwrap" | "nsjail" | "firejail" | "systemd-run" | "proot" | "unshare" | "nsenter" => {
            (&["--"], PROGRAM)
        }
        "npm" => (&["exec", "x"], None),
        "pnpm" => (&["exec", "dlx", "x"], None),
        "yarn" => (&["exec", "dlx", "run"], None),
        "bun" => (&["x", "run"], None),
        "pipx" => (&["run"], None),
        _ => return None,
    };
    Some(Launcher { behind, before })
}

/// Returns whether the first plain word is a package or another machine; its arguments may name a
/// shell.
pub(super) fn runs_elsewhere(name: &str) -> bool {
    matches!(
        name,
        "npx" | "pnpx" | "bunx" | "uvx" | "ssh" | "autossh" | "parallel"
    )
}

/// Returns whether this is a dynamic loader, which runs the given program: `ld-linux-x86-64.so.2`,
/// `ld-musl-x86_64.so.1`, `ld.so`. The version is already removed.
fn is_loader(name: &str) -> bool {
    let is_named = |rest: &str| rest.starts_with(['-', '.']) || rest.starts_with("64");
    let loader = name.strip_prefix("ld").is_some_and(is_named) || name.starts_with("libc.");
    loader && name.ends_with(".so")
}
