//! Which packages a command downloads and runs: `npx`, `uvx` and similar. The result is unclear for
//! an unknown flag, which may change it, and for every other use of a package manager. Entry
//! points: [`packages`], [`Package::of`], [`runs_engine`].

/// The packages that a command runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packages<'a> {
    /// It is not a known package runner.
    NoRunner,
    /// These packages, as they are written.
    Named(Vec<&'a str>),
    /// It runs packages, but which ones is unclear.
    Unclear,
}

/// A package by its name, with a version or without.
pub(super) struct Package<'a> {
    pub(super) name: &'a str,
}

impl<'a> Package<'a> {
    /// Parses a package that is fetched from its registry by name. `None` for URLs, files,
    /// repositories and aliases, whose source does not depend on the name.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let (scope, rest) = match text.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .map(|(scope, rest)| (Some(scope), rest))?,
            None => (None, text),
        };
        let end = rest.find(|letter: char| !is_in_name(letter));
        let (name, version) = rest.split_at(end.unwrap_or(rest.len()));
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && !is_file(name);
        let is_version = |letter: char| is_in_name(letter) || "@[]=<>~!^*+,| ".contains(letter);
        let is_whole = is_name(name)
            && scope.is_none_or(|scope| is_name(scope) && scope.chars().all(is_in_name))
            && version.chars().all(is_version);
        let name = &text[..text.len() - version.len()];
        is_whole.then_some(Self { name })
    }
}

fn is_in_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

/// Returns whether a package manager takes a name for a file.
fn is_file(name: &str) -> bool {
    const ENDS: [&str; 7] = [".tgz", ".gz", ".tar", ".zip", ".whl", ".py", ".js"];
    let name = name.to_ascii_lowercase();
    ENDS.iter().any(|end| name.ends_with(end))
}

/// Package managers, which can run packages in more ways than their arguments show.
const MANAGERS: &[&str] = &[
    "npm",
    "npx",
    "pnpm",
    "pnpx",
    "yarn",
    "yarnpkg",
    "corepack",
    "bun",
    "bunx",
    "deno",
    "uv",
    "uvx",
    "pip",
    "pip3",
    "pipx",
    "poetry",
    "pdm",
    "hatch",
    "rye",
    "conda",
    "mamba",
    "micromamba",
    "pixi",
    "go",
    "cargo",
    "gem",
    "bundle",
    "dotnet",
    "dnx",
    "jbang",
    "nix",
    "nix-shell",
    "brew",
];

/// Programs that run images.
const ENGINES: &[&str] = &[
    "docker",
    "docker-compose",
    "podman",
    "podman-compose",
    "podman-remote",
    "nerdctl",
    "finch",
    "ctr",
    "crictl",
    "buildah",
    "runc",
    "crun",
    "runsc",
    "apptainer",
    "singularity",
    "lima",
    "kubectl",
];

/// Programs that run the program in their arguments.
const WRAPPERS: &[&str] = &[
    "env",
    "nice",
    "ionice",
    "chrt",
    "taskset",
    "nohup",
    "setsid",
    "timeout",
    "time",
    "stdbuf",
    "unbuffer",
    "script",
    "sudo",
    "doas",
    "su",
    "runuser",
    "setpriv",
    "chroot",
    "unshare",
    "nsenter",
    "xargs",
    "find",
    "strace",
    "ltrace",
    "busybox",
    "toybox",
    "flock",
    "systemd-run",
    "firejail",
    "bwrap",
    "dumb-init",
    "tini",
    "watch",
    "parallel",
    "mise",
    "asdf",
    "volta",
    "fnm",
];

/// Programs that run what their arguments say. A runner that is told a package and a command looks
/// for the command on the `PATH` as well.
const INTERPRETERS: &[&str] = &[
    "sh",
    "bash",
    "rbash",
    "dash",
    "ash",
    "zsh",
    "ksh",
    "mksh",
    "fish",
    "csh",
    "tcsh",
    "nu",
    "pwsh",
    "powershell",
    "cmd",
    "python",
    "pythonw",
    "pypy",
    "node",
    "nodejs",
    "ruby",
    "perl",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "awk",
    "gawk",
    "mawk",
    "java",
    "make",
];

/// Returns whether a command, looked for in a package, rather runs what its arguments say.
fn runs_anything(command: &str) -> bool {
    let program = program_of(command);
    let program = program.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let lists = [INTERPRETERS, WRAPPERS, MANAGERS, ENGINES];
    command.contains('/') || lists.iter().any(|list| list.contains(&program))
}

/// Returns whether this is the version of an interpreter, and neither a file nor a program.
fn is_version(text: &str) -> bool {
    let kinds = ["cpython", "pypy", "python"];
    let version = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    let version = version.unwrap_or(text).trim_start_matches(['@', '-']);
    let is_part = |letter: char| letter.is_ascii_digit() || ".,<>=!~*+t".contains(letter);
    version.chars().all(is_part)
}

/// Returns a program's name without its folder and extension.
fn program_of(command: &str) -> &str {
    let program = command.rsplit('/').next().unwrap_or_default();
    program.split('.').next().unwrap_or_default()
}

/// Returns whether one of these programs is run, directly or by a wrapper.
fn runs(programs: &[&str], command: &str, args: &[String]) -> bool {
    let program = program_of(command);
    let is_one = |word: &str| programs.contains(&program_of(word));
    let mut words = args.iter().flat_map(|arg| arg.split([' ', '\t', '=']));
    match program {
        _ if programs.contains(&program) => true,
        wrapper if WRAPPERS.contains(&wrapper) => words.any(is_one),
        // `python -m uv`, `node …/npx-cli.js`.
        host if host.starts_with("python") || matches!(host, "node" | "nodejs") => {
            let is_cli = |word: &str| {
                let name = program_of(word).trim_end_matches("-cli");
                programs.contains(&name)
            };
            words
                .next()
                .is_some_and(|first| is_cli(first) || first == "-m")
                && args.iter().take(2).any(|word| is_cli(word))
        }
        _ => false,
    }
}

/// Returns whether a container engine is run, which could run any image.
pub(super) fn runs_engine(command: &str, args: &[String]) -> bool {
    runs(ENGINES, command, args)
}

/// A command that runs packages.
struct Runner {
    /// The words before the flags.
    words: &'static [&'static str],
    /// Flags without a value that do not matter here.
    plain: &'static [&'static str],
    /// Flags whose value is a package.
    package: &'static [&'static str],
    /// Flags whose value is the version of an interpreter.
    versions: &'static [&'static str],
    /// Flags of `package` after which the first argument is a command of the package, not a package.
    instead: &'static [&'static str],
}

const NPX: Runner = Runner {
    words: &["npx"],
    plain: &[
        "-y",
        "--yes",
        "-q",
        "--quiet",
        "--no-install",
        "--prefer-offline",
    ],
    package: &["-p", "--package"],
    versions: &[],
    instead: &["-p", "--package"],
};

const RUNNERS: &[Runner] = &[
    NPX,
    Runner {
        words: &["npm", "exec"],
        ..NPX
    },
    Runner {
        words: &["bunx"],
        ..NPX
    },
    Runner {
        words: &["pnpm", "dlx"],
        ..NPX
    },
    Runner {
        words: &["yarn", "dlx"],
        ..NPX
    },
    Runner {
        words: &["uvx"],
        ..UVX
    },
    Runner {
        words: &["uv", "tool", "run"],
        ..UVX
    },
    Runner {
        words: &["pipx", "run"],
        plain: &["-q", "--quiet"],
        package: &["--spec"],
        versions: &["--python"],
        instead: &["--spec"],
    },
];

const UVX: Runner = Runner {
    words: &[],
    plain: &["-q", "--quiet", "--isolated", "--offline", "--native-tls"],
    package: &["--from", "--with"],
    versions: &["-p", "--python"],
    instead: &["--from"],
};

/// Returns the packages that a command runs.
pub(super) fn packages<'a>(command: &str, args: &'a [String]) -> Packages<'a> {
    let program = program_of(command);
    let runner = RUNNERS.iter().find(|runner| {
        let words = runner.words.iter().skip(1);
        runner.words.first() == Some(&program)
            && words.clone().count() <= args.len()
            && words.zip(args).all(|(word, given)| word == given)
    });
    match runner {
        Some(runner) => runner.named(&args[runner.words.len() - 1..]),
        None if runs(MANAGERS, command, args) => Packages::Unclear,
        None => Packages::NoRunner,
    }
}

impl Runner {
    fn named<'a>(&self, args: &'a [String]) -> Packages<'a> {
        let (mut found, mut is_named) = (Vec::new(), false);
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            if arg == "--" {
                continue;
            }
            if !arg.starts_with('-') {
                if !is_named {
                    found.push(arg);
                } else if runs_anything(arg) {
                    return Packages::Unclear;
                }
                return Packages::Named(found);
            }
            if self.plain.contains(&arg) {
                continue;
            }
            let (flag, value) = match arg.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (arg, None),
            };
            let is_package = self.package.contains(&flag);
            if !is_package && !self.versions.contains(&flag) {
                return Packages::Unclear;
            }
            let Some(value) = value.or_else(|| args.next()) else {
                return Packages::Unclear;
            };
            if is_package {
                found.push(value);
                is_named |= self.instead.contains(&flag);
            } else if !is_version(value) {
                return Packages::Unclear;
            }
        }
        match is_named {
            true => Packages::Named(found),
            false => Packages::Unclear,
        }
    }
}
