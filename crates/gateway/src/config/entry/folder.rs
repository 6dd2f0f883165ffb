//! Decides whether a path in an entry points into the folder whose configuration is read.
//!
//! A relative path does, and so does one that a variable makes a path below the folder. An absolute
//! path names one specific folder on purpose. Entry points: [`note`] for a path that is entered or
//! run, [`note_arguments`] for arguments.

use std::path::{Component, Path, PathBuf};

use super::fields::Fields;

/// Records a path that points into the folder.
pub(super) fn note(fields: &mut Fields<'_, '_>, field: &str, filled: &str) {
    let is_literal = !fields.diagnostics.written.contains_key(field);
    let path = Path::new(filled);
    let leads = path.is_relative() || (!is_literal && is_below(fields.fill.folder(), path));
    if leads && fields.diagnostics.leads_into_folder.is_none() {
        fields.diagnostics.leads_into_folder = Some(field.to_owned());
    }
}

/// Options that set a program's working folder, or load code from a file or folder.
const ENTERING: [&str; 24] = [
    "--directory",
    "--project",
    "--project-dir",
    "--project-directory",
    "--cwd",
    "--chdir",
    "--workdir",
    "--work-dir",
    "--working-dir",
    "--working-directory",
    "--prefix",
    "--with-editable",
    "--manifest-path",
    "--import",
    "--require",
    "--loader",
    "--experimental-loader",
    "--module-path",
    "--config",
    "--config-file",
    "--env-file",
    "-C",
    "-I",
    "-cp",
];

/// The same, for [`RUNNERS`] only; in other programs they mean data.
const INSTALLING: [&str; 6] = ["--dir", "--from", "--with", "--package", "-p", "-r"];

/// Programs that run their first plain argument.
const RUNNERS: [&str; 18] = [
    "node", "nodejs", "tsx", "ts-node", "deno", "bun", "bunx", "npm", "npx", "pnpm", "pnpx",
    "yarn", "python", "pypy", "uv", "uvx", "pipx", "go",
];

/// Records arguments that a variable makes a path in the folder, if the program may run it: a file,
/// a value after `=`, or the value of an option that enters or loads it. The folder itself as a
/// plain argument is data.
pub(super) fn note_arguments(fields: &mut Fields<'_, '_>, command: &str, args: &[String]) {
    for (index, argument) in args.iter().enumerate() {
        let field = format!("args[{index}]");
        if fields.diagnostics.written.contains_key(&field)
            && let Some(path) = code_path(command, &args[..index], argument)
        {
            note(fields, &field, path);
        }
    }
}

/// Returns the absolute path of an argument, if a program may run it.
fn code_path<'a>(command: &str, before: &[String], argument: &'a str) -> Option<&'a str> {
    let is_entered = before.last().is_some_and(|option| {
        let option = option.as_str();
        ENTERING.contains(&option) || (INSTALLING.contains(&option) && is_runner(command))
    });
    let plain = absolute(argument);
    if let Some(path) = plain {
        let is_run = is_entered || runs_first(command, before) || !Path::new(path).is_dir();
        return is_run.then_some(path);
    }
    let mut behind = argument.match_indices('=').map(|(at, _)| at + 1);
    if let Some(path) = behind.find_map(|at| absolute(&argument[at..])) {
        return Some(path);
    }
    // A short option may have an attached value: `-C/path`.
    let is_short = argument.starts_with('-') && !argument.starts_with("--");
    let attached = argument.find('/').filter(|_| is_short);
    attached.map(|at| &argument[at..])
}

/// Returns the absolute path in a text, which may be a URL.
fn absolute(text: &str) -> Option<&str> {
    let path = text.strip_prefix("file:").unwrap_or(text);
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.strip_prefix("localhost").unwrap_or(path);
    let path = path.trim_matches(['"', '\'']);
    Path::new(path).is_absolute().then_some(path)
}

/// Returns whether the next plain argument is what the program runs: `node PATH`, `uv run PATH`.
fn runs_first(command: &str, before: &[String]) -> bool {
    let is_passed = |word: &String| {
        word.starts_with('-')
            || matches!(
                word.as_str(),
                "run" | "exec" | "x" | "dlx" | "tool" | "serve"
            )
    };
    is_runner(command) && before.iter().all(is_passed)
}

fn is_runner(command: &str) -> bool {
    let name = command.rsplit('/').next().unwrap_or(command);
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    RUNNERS.contains(&name)
}

/// Returns whether a path is inside a folder, without resolving links.
fn is_below(folder: &Path, path: &Path) -> bool {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    let real = path.canonicalize();
    plain.starts_with(folder) || real.is_ok_and(|real| real.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault G5
    #[test]
    fn paths_that_may_be_run_are_found_in_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display().to_string();
        for (line, is_code) in [
            ("node F/x.js", true),
            ("node --import=F/x.js", true),
            ("node --import=file://F/x.js", true),
            ("node --import F", true),
            ("node file://F/x.js", true),
            ("node F", true),
            ("node --inspect F", true),
            ("python3.12 F", true),
            ("npx -y F", true),
            ("uv run F", true),
            ("uvx --from F", true),
            ("uv --directory F", true),
            ("uv --directory=F", true),
            ("uv --project F", true),
            ("npm --prefix F", true),
            ("bun --cwd F", true),
            ("git -C F", true),
            ("git -CF", true),
            ("ruby -IF/lib", true),
            ("server --set a=b=F", true),
            ("server F", false),
            ("server --repository F", false),
            ("server -r F", false),
            ("npx -y server F", false),
            // A mount is something to work on.
            ("docker run -v F:/work", false),
            ("docker run --volume=F:/work", false),
        ] {
            let line = line.replace('F', &at);
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (last, before) = words[1..].split_last().unwrap();
            let found = code_path(&words[0], before, last);
            let found = found.is_some_and(|path| is_below(folder.path(), Path::new(path)));
            assert_eq!(found, is_code, "{line}");
        }
    }

    #[test]
    fn dots_do_not_lead_astray() {
        let folder = Path::new("/srv/shop");
        for (path, below) in [
            ("/srv/shop", true),
            ("/srv/shop/x", true),
            ("/srv/other/../shop/x", true),
            ("/srv/shop/../other", false),
            ("/srv/shopping", false),
        ] {
            assert_eq!(is_below(folder, Path::new(path)), below, "{path}");
        }
    }
}
