//! Whether a command runs a script that is among its arguments: a shell with `-c` in any of its
//! spellings, the same after `env`, `uv run` and other wrappers, or a program that passes a string
//! to a shell. fault G3
//!
//! Pure and conservative: after a wrapper or launcher every word is checked for a shell, so that no
//! option, known or not, hides it. Programs with common names (`watch`, `cmd`, `script`) are
//! checked only where a program is expected. Entry point: [`script_shell`].

mod wrappers;

use self::wrappers::{Before, Launcher, runs_elsewhere, wrapper};

/// Shells that take their script as the argument of `-c`.
const SHELLS: [&str; 24] = [
    "sh", "bash", "rbash", "dash", "ash", "hush", "zsh", "ksh", "rksh", "mksh", "lksh", "oksh",
    "loksh", "pdksh", "yash", "posh", "osh", "ysh", "fish", "csh", "tcsh", "nu", "elvish", "xonsh",
];

/// Long options of shells without a value; any other may be followed by its value.
const ALONE: [&str; 16] = [
    "login",
    "norc",
    "noprofile",
    "noediting",
    "posix",
    "restricted",
    "verbose",
    "debugger",
    "interactive",
    "private",
    "no-config",
    "no-execute",
    "no-rc",
    "stdin",
    "emacs",
    "vi",
];

/// Returns the program that would run a script given among the arguments, if there is one.
pub(super) fn script_shell<'w>(command: &'w str, args: &'w [String]) -> Option<&'w str> {
    let words: Vec<&str> = std::iter::once(command)
        .chain(args.iter().map(String::as_str))
        .collect();
    scan(&words).map(|index| words[index])
}

/// Returns the index of the program that runs a script.
fn scan(words: &[&str]) -> Option<usize> {
    // After a wrapper every word is checked for a shell, whatever the wrapper's options are.
    let mut is_wrapped = false;
    // Where a wrapper's program is expected; there programs other than shells are checked, too.
    let mut slot = Some(Before::default());
    let mut launcher: Option<Launcher> = None;
    // Whether this is after `uv run` and the like, where a name may be a script of the project.
    let mut is_launched = false;
    let mut is_env = false;
    let mut is_value = false;
    for (index, word) in words.iter().enumerate() {
        let rest = &words[index + 1..];
        let was_value = std::mem::take(&mut is_value);
        if let Some(found) = launcher.filter(|found| found.behind.contains(word)) {
            is_wrapped = true;
            is_launched = found.behind == ["run"];
            slot = found.before;
            launcher = found.behind_dashes().filter(|_| *word != "--");
            continue;
        }
        if index > 0 && (word.starts_with('-') || is_assignment(word)) {
            if is_env && splits_into_script(word, rest) {
                return Some(0);
            }
            // `find` has its program after one of these.
            if is_wrapped && matches!(*word, "-exec" | "-execdir" | "-ok" | "-okdir") {
                slot = Some(Before::default());
            }
            is_value = slot.is_some_and(|before| before.takes_next(word));
            continue;
        }
        let name = name(word);
        // A package such as `@a/sh` is not a shell.
        let is_looked_at = index == 0 || (is_wrapped && !word.starts_with('@'));
        if is_looked_at && is_shell_with_script(&name, rest) {
            return Some(index);
        }
        if was_value {
            continue;
        }
        is_env = is_looked_at && name == "env";
        let Some(before) = slot else {
            continue;
        };
        if before.operands > 0 {
            let operands = before.operands - 1;
            slot = Some(Before { operands, ..before });
            continue;
        }
        // `uv run watch src` runs the project's own `watch`, if there is one; if not, a shell gets
        // only `src`, which is not a script.
        let is_harmless = is_launched && name == "watch" && !is_script_line(rest);
        if !is_harmless && hands_to_shell(&name, rest) {
            return Some(index);
        }
        is_launched = false;
        slot = wrapper(&name);
        launcher = wrappers::launcher(&name).or(launcher);
        is_wrapped |= slot.is_some() || runs_elsewhere(&name);
    }
    None
}

/// Returns whether the text that `env -S` splits makes it run a script.
fn splits_into_script(word: &str, rest: &[&str]) -> bool {
    let attached = match long(word) {
        Some("split-string") => word.split_once('=').map_or("", |(_, text)| text),
        Some(_) => return false,
        // `-S` may end a cluster and have its text attached.
        None => match word.split_once('S') {
            Some((_, text)) => text,
            None => return false,
        },
    };
    let (text, rest) = match rest.split_first() {
        Some((next, rest)) if attached.is_empty() => (*next, rest),
        Some(_) | None => (attached, rest),
    };
    let mut text = text.replace(['"', '\''], "");
    for blank in ["\\_", "\\t", "\\n", "\\r", "\\f", "\\v"] {
        text = text.replace(blank, " ");
    }
    let parts = text.split_whitespace();
    let words: Vec<&str> = std::iter::once("env")
        .chain(parts)
        .chain(rest.iter().copied())
        .collect();
    scan(&words).is_some()
}

/// Returns whether a word sets a variable: `NAME=value`.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let mut letters = name.bytes();
        let starts = letters
            .next()
            .is_some_and(|first| first == b'_' || first.is_ascii_alphabetic());
        starts && letters.all(|letter| letter == b'_' || letter.is_ascii_alphanumeric())
    })
}

/// Returns whether this is a shell whose script is among its arguments.
fn is_shell_with_script(name: &str, rest: &[&str]) -> bool {
    match name {
        "pwsh" | "powershell" => power_shell(rest),
        _ => SHELLS.contains(&name) && shell(name, rest),
    }
}

/// Returns whether a program other than a shell passes one of its arguments to a shell.
fn hands_to_shell(name: &str, rest: &[&str]) -> bool {
    match name {
        "cmd" => rest
            .iter()
            .take_while(|word| word.starts_with('/'))
            .any(|word| matches!(word.get(1..2), Some("c" | "C" | "k" | "K" | "r" | "R"))),
        // They pass the argument of `-c` to a shell, wherever the option is.
        "su" | "script" | "sg" => rest.iter().any(|word| takes_script(word)),
        // With `-u` it runs a program without a shell.
        "runuser" => {
            let is_user = |word: &&str| long(word) == Some("user") || has_letter(word, &['u']);
            !leading(rest, "ugGsw").iter().any(is_user)
                && rest.iter().any(|word| takes_script(word))
        }
        // Its own `-c` follows the file.
        "flock" => {
            let mut words = rest.iter().enumerate();
            let is_plain = |index: usize| {
                let valued = Before::valued("wE");
                !rest[index].starts_with('-') && (index == 0 || !valued.takes_next(rest[index - 1]))
            };
            let file = words.position(|(index, _)| is_plain(index));
            let next = file.and_then(|index| rest.get(index + 1));
            matches!(next, Some(&("-c" | "--command")))
        }
        "nix-shell" => rest
            .iter()
            .any(|word| matches!(long(word), Some("run" | "command"))),
        // It passes all its words to a shell, unless an option forbids it.
        "watch" => {
            let is_told = |word: &&str| long(word) == Some("exec") || has_letter(word, &['x']);
            let mut options = rest.iter().take_while(|word| word.starts_with('-'));
            !rest.is_empty() && !options.any(is_told)
        }
        // It passes each line that it builds from its words, or reads, to a shell.
        "parallel" => !matches!(rest, ["--version" | "--help"]),
        // The words after `--` are the arguments of a shell.
        "capsh" => {
            let mut words = rest.iter().skip_while(|word| **word != "--").skip(1);
            words.any(|word| has_letter(word, &['c']))
        }
        "sudo" | "doas" => leading(rest, "CDghpRrTtUu").iter().any(|word| {
            matches!(long(word), Some("shell" | "login")) || has_letter(word, &['s', 'i'])
        }),
        "doppler" | "infisical" => rest
            .iter()
            .take_while(|word| **word != "--")
            .any(|word| long(word) == Some("command")),
        "ssh" | "autossh" => secure_shell(rest),
        "npx" | "pnpx" | "bunx" => calls(rest),
        "npm" | "pnpm" => match rest.iter().position(|word| is_npm_command(word)) {
            Some(index) if matches!(rest[index], "exec" | "x" | "dlx") => {
                rest[..index].iter().any(|word| is_call(word)) || calls(&rest[index + 1..])
            }
            Some(_) | None => false,
        },
        // `bun exec` takes a script instead of a program.
        "bun" => rest.iter().find(|word| !word.starts_with('-')) == Some(&"exec"),
        _ => false,
    }
}

/// Returns whether words that a shell gets as one line are more than a program and its arguments.
fn is_script_line(words: &[&str]) -> bool {
    const SYNTAX: &[char] = &[
        ';', '&', '|', '<', '>', '(', ')', '{', '}', '[', ']', '$', '`', '\\', '"', '\'', '*', '?',
        '~', '#', '!', '\n', '\r',
    ];
    let line = words.join(" ");
    let parts: Vec<&str> = line.split_whitespace().collect();
    line.contains(SYNTAX)
        || parts.iter().any(|part| is_assignment(part))
        || (0..parts.len())
            .any(|index| is_shell_with_script(&name(parts[index]), &parts[index + 1..]))
}

/// Returns whether this is the option whose value `su` and the like pass to a shell.
fn takes_script(word: &str) -> bool {
    matches!(long(word), Some("command" | "session-command")) || has_letter(word, &['c'])
}

/// Returns whether `ssh` runs a script: with a shell of the remote machine, which gets all its
/// words, or with a local one, by an option that names a command.
fn secure_shell(words: &[&str]) -> bool {
    let is_command = |word: &&str| {
        let word = word.strip_prefix("-o").unwrap_or(word).trim_start();
        let end = word.find([' ', '=', '\t']).unwrap_or(word.len());
        let (key, value) = word.split_at(end);
        let value = value.trim_matches([' ', '=', '\t', '"']);
        let is_key = ["proxycommand", "localcommand", "knownhostscommand"]
            .contains(&key.to_ascii_lowercase().as_str());
        is_key && !value.is_empty() && !value.eq_ignore_ascii_case("none")
    };
    if words.iter().any(is_command) {
        return true;
    }
    let line = words.join(" ").replace(['"', '\''], "");
    let parts: Vec<&str> = line.split_whitespace().collect();
    (0..parts.len()).any(|index| is_shell_with_script(&name(parts[index]), &parts[index + 1..]))
}

/// Returns whether this subcommand determines the meaning of the options of `npm` and `pnpm`.
fn is_npm_command(word: &str) -> bool {
    matches!(
        word,
        "exec" | "x" | "dlx" | "run" | "run-script" | "start" | "test" | "create" | "init"
    )
}

/// Returns whether the options of a shell name a script; after the first plain word, everything
/// belongs to the script file.
fn shell(name: &str, words: &[&str]) -> bool {
    let letters: &[char] = match name {
        "fish" => &['c', 'C'],
        _ => &['c'],
    };
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        if let Some(option) = long(word) {
            match option {
                "" => return false,
                "command" | "commands" | "init-command" => return true,
                _ if word.contains('=') || ALONE.contains(&option) => {}
                _ => {
                    words.next_if(|value| !is_option(value));
                }
            }
            continue;
        }
        if !is_option(word) {
            return false;
        }
        // `+c` is a script as well: shells check the letter only.
        if word[1..].contains(letters) {
            return true;
        }
        // Each `o` takes a word of its own: `-eo pipefail`.
        for _ in word[1..]
            .chars()
            .filter(|letter| matches!(letter, 'o' | 'O'))
        {
            words.next_if(|value| !is_option(value));
        }
    }
    false
}

/// The same for PowerShell, whose options may be abbreviated and are case-insensitive.
fn power_shell(words: &[&str]) -> bool {
    for (index, word) in words.iter().enumerate() {
        let Some(option) = word.strip_prefix(['-', '/']) else {
            // A word without a preceding option is a file.
            if index == 0 {
                return false;
            }
            continue;
        };
        let option = option.trim_start_matches('-').to_ascii_lowercase();
        let cuts = |full: &str| !option.is_empty() && full.starts_with(&option);
        if cuts("command") || cuts("commandwithargs") || cuts("encodedcommand") {
            return true;
        }
        if matches!(option.as_str(), "cwa" | "ec") {
            return true;
        }
        if cuts("file") {
            return false;
        }
    }
    false
}

/// Returns whether a package runner gets a line for a shell: `npx -c`.
fn calls(words: &[&str]) -> bool {
    leading(words, "pw").iter().any(|word| is_call(word))
}

fn is_call(word: &str) -> bool {
    matches!(long(word), Some("call" | "shell-mode")) || has_letter(word, &['c'])
}

/// Returns the options before the first plain word; a letter of `valued` takes the next word.
fn leading<'w>(words: &[&'w str], valued: &str) -> Vec<&'w str> {
    let mut options = Vec::new();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        if word.contains('=') && !word.starts_with('-') {
            continue;
        }
        if !word.starts_with('-') || word == "--" {
            break;
        }
        options.push(word);
        let takes_next = match long(word) {
            Some(_) => !word.contains('=') && word != "--yes" && word != "--no",
            None => word.ends_with(|letter| valued.contains(letter)),
        };
        if takes_next {
            words.next_if(|value| !value.starts_with('-'));
        }
    }
    options
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with(['-', '+'])
}

/// Returns the name of a long option, without its value.
fn long(word: &str) -> Option<&str> {
    let option = word.strip_prefix("--")?;
    Some(option.split('=').next().unwrap_or(option))
}

/// Returns whether a cluster of short options contains one of these letters.
fn has_letter(word: &str, letters: &[char]) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word[1..].contains(letters)
}

/// Returns a program's plain name: no folder, no `.exe`, no version, in lower case.
fn name(path: &str) -> String {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let small = file.to_ascii_lowercase();
    let small = small.strip_suffix(".exe").unwrap_or(&small);
    let small = small.strip_suffix("-preview").unwrap_or(small);
    // `-bash` is the name of a login shell.
    let small = small.strip_prefix('-').unwrap_or(small);
    let plain = small.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let plain = plain.strip_suffix('-').unwrap_or(plain);
    match plain {
        "" => small.to_owned(),
        "busybox.static" | "busybox-static" => "busybox".to_owned(),
        plain => plain.strip_suffix("-static").unwrap_or(plain).to_owned(),
    }
}

#[cfg(test)]
mod tests;
