//! Which packages a command downloads and runs: `npx`, `uvx` and their like. A flag that is not known
//! may change the answer, so that with one the answer is unclear. Entry point: [`packages`].

/// What a command runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packages<'a> {
    /// It is not known to run packages.
    NoRunner,
    /// These packages, as they are written.
    Named(Vec<&'a str>),
    /// It runs packages, and which cannot be told.
    Unclear,
}

/// A command that runs packages.
struct Runner {
    /// What stands before the flags.
    words: &'static [&'static str],
    /// Flags without a value that change nothing here.
    plain: &'static [&'static str],
    /// Flags whose value is a package.
    package: &'static [&'static str],
    /// Flags with any other value.
    valued: &'static [&'static str],
    /// Of `package`, those that replace the first argument: what follows is a command of the package.
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
    valued: &[],
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
        valued: &["--python"],
        instead: &["--spec"],
    },
];

const UVX: Runner = Runner {
    words: &[],
    plain: &["-q", "--quiet", "--isolated", "--offline", "--native-tls"],
    package: &["--from", "--with"],
    valued: &["-p", "--python"],
    instead: &["--from"],
};

/// Returns the packages that a command runs.
pub(super) fn packages<'a>(command: &str, args: &'a [String]) -> Packages<'a> {
    let program = command.rsplit('/').next().unwrap_or_default();
    let program = program.split('.').next().unwrap_or_default();
    let runner = RUNNERS.iter().find(|runner| {
        let words = runner.words.iter().skip(1);
        runner.words.first() == Some(&program)
            && words.clone().count() <= args.len()
            && words.zip(args).all(|(word, given)| word == given)
    });
    match runner {
        Some(runner) => runner.named(&args[runner.words.len() - 1..]),
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
            if !is_package && !self.valued.contains(&flag) {
                return Packages::Unclear;
            }
            let Some(value) = value.or_else(|| args.next()) else {
                return Packages::Unclear;
            };
            if is_package {
                found.push(value);
                is_named |= self.instead.contains(&flag);
            }
        }
        match is_named {
            true => Packages::Named(found),
            false => Packages::Unclear,
        }
    }
}
