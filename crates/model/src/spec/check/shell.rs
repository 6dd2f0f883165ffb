//! Whether a command runs a script that stands among its arguments: a shell with `-c` in any of its
//! spellings, the same behind `env`, `timeout` and other wrappers, or a program that hands a string to a
//! shell. fault G3
//!
//! Pure and conservative: behind a wrapper every word is looked at, so that no option of a wrapper, known
//! or not, hides the shell. Entry point: [`script_shell`].

/// Shells that take their script as the argument of `-c`.
const SHELLS: [&str; 24] = [
    "sh", "bash", "rbash", "dash", "ash", "hush", "zsh", "ksh", "rksh", "mksh", "lksh", "oksh",
    "loksh", "pdksh", "yash", "posh", "osh", "ysh", "fish", "csh", "tcsh", "nu", "elvish", "xonsh",
];

/// Programs that run another program given among their arguments.
const WRAPPERS: [&str; 46] = [
    "env",
    "nohup",
    "nice",
    "ionice",
    "chrt",
    "taskset",
    "numactl",
    "timeout",
    "gtimeout",
    "setsid",
    "stdbuf",
    "unbuffer",
    "time",
    "exec",
    "command",
    "xargs",
    "parallel",
    "find",
    "sudo",
    "doas",
    "pkexec",
    "su",
    "runuser",
    "gosu",
    "su-exec",
    "setpriv",
    "capsh",
    "prlimit",
    "choom",
    "chroot",
    "fakeroot",
    "unshare",
    "nsenter",
    "bwrap",
    "firejail",
    "setarch",
    "linux32",
    "linux64",
    "script",
    "flock",
    "strace",
    "ltrace",
    "tini",
    "dumb-init",
    "systemd-run",
    "xvfb-run",
];

/// Long options of shells that stand alone; any other may be followed by its value.
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
    if runs_script(&words) {
        return Some(command);
    }
    let mut is_wrapped = false;
    let mut splits = false;
    for (index, word) in words.iter().enumerate() {
        if index > 0 && !is_wrapped {
            return None;
        }
        if is_wrapped && runs_script(&words[index..]) {
            return Some(word);
        }
        if splits && is_split_script(word) {
            // The word is the script itself, which may hold anything.
            return Some(command);
        }
        let name = name(word);
        is_wrapped |= WRAPPERS.contains(&name.as_str()) || is_multi_call(&name);
        splits |= name == "env";
    }
    None
}

/// Tells whether a text that `env -S` takes apart holds a shell with a script.
fn is_split_script(word: &str) -> bool {
    let text =
        word.strip_prefix("--split-string=")
            .unwrap_or_else(|| match word.strip_prefix('-') {
                // `-S` may end a cluster and have its text attached.
                Some(cluster) if !cluster.starts_with('-') => {
                    cluster.split_once('S').map_or(word, |(_, text)| text)
                }
                Some(_) | None => word,
            });
    let text = text.replace("\\_", " ").replace(['"', '\''], "");
    let parts: Vec<&str> = text.split_whitespace().collect();
    parts.len() > 1 && (0..parts.len()).any(|index| runs_script(&parts[index..]))
}

/// Tells whether a program with its arguments runs a script that is one of them.
fn runs_script(words: &[&str]) -> bool {
    let Some((program, rest)) = words.split_first() else {
        return false;
    };
    let name = name(program);
    match name.as_str() {
        "pwsh" | "powershell" => power_shell(rest),
        "cmd" => rest
            .iter()
            .take_while(|word| word.starts_with('/'))
            .any(|word| matches!(word.get(1..2), Some("c" | "C" | "k" | "K" | "r" | "R"))),
        // They hand the argument of `-c` to a shell, wherever the option stands.
        "su" | "runuser" | "script" | "flock" => rest.iter().any(|word| {
            matches!(long(word), Some("command" | "session-command")) || has_letter(word, &['c'])
        }),
        // It hands all its words to a shell, unless it is told not to.
        "watch" => !rest
            .iter()
            .take_while(|word| word.starts_with('-'))
            .any(|word| long(word) == Some("exec") || has_letter(word, &['x'])),
        "sudo" | "doas" => leading(rest, "CDghpRrTtUu").iter().any(|word| {
            matches!(long(word), Some("shell" | "login")) || has_letter(word, &['s', 'i'])
        }),
        "npx" | "bunx" => calls(rest),
        "npm" | "pnpm" => match rest.iter().position(|word| !word.starts_with('-')) {
            Some(index) if matches!(rest[index], "exec" | "x") => calls(&rest[index + 1..]),
            Some(_) | None => false,
        },
        _ if is_multi_call(&name) => runs_script(rest),
        _ if SHELLS.contains(&name.as_str()) => shell(&name, rest),
        _ => false,
    }
}

/// Tells whether the options of a shell name a script; after the first word that is none, everything is
/// the script file's own.
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
        // `+c` is a script as well: shells look at the letter alone.
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

/// The same for PowerShell, whose options may be cut short and are written in any case.
fn power_shell(words: &[&str]) -> bool {
    for (index, word) in words.iter().enumerate() {
        let Some(option) = word.strip_prefix(['-', '/']) else {
            // A word that no option stands before is a file.
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

/// Tells whether a runner of packages is given a line for a shell: `npx -c`.
fn calls(words: &[&str]) -> bool {
    leading(words, "pw")
        .iter()
        .any(|word| long(word) == Some("call") || has_letter(word, &['c']))
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

/// Tells whether a cluster of short options has one of these letters.
fn has_letter(word: &str, letters: &[char]) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word[1..].contains(letters)
}

fn is_multi_call(name: &str) -> bool {
    matches!(name, "busybox" | "toybox")
}

/// Returns a program's plain name: no folder, no `.exe`, no version, in small letters.
fn name(path: &str) -> String {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let small = file.to_ascii_lowercase();
    let small = small.strip_suffix(".exe").unwrap_or(&small);
    let small = small.strip_suffix("-preview").unwrap_or(small);
    // `-bash` is how a login shell is called.
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
mod tests {
    use super::*;

    fn found(line: &str) -> bool {
        let words: Vec<String> = match line.split_once('|') {
            // A word with blanks stands behind the bar.
            Some((line, last)) => line
                .split_whitespace()
                .chain([last])
                .map(str::to_owned)
                .collect(),
            None => line.split_whitespace().map(str::to_owned).collect(),
        };
        script_shell(&words[0], &words[1..]).is_some()
    }

    // fault G3
    #[test]
    fn a_script_among_the_arguments_is_found_in_every_spelling() {
        for line in [
            "sh -c x",
            "/bin/bash -c x",
            "bash -lc x",
            "sh -ec x",
            "sh -ce x",
            "sh +c x",
            "sh -e -c x",
            "sh -o errexit -c x",
            "sh +o errexit -c x",
            "bash -eo pipefail -c x",
            "bash -euo pipefail -c x",
            "bash -O extglob -c x",
            "bash --norc -c x",
            "bash --rcfile f -c x",
            "bash --rcfile=f -c x",
            "bash --init-file f --posix -c x",
            "bash-5.2 -c x",
            "ksh93 -c x",
            "zsh -f -c x",
            "dash -c x",
            "ash -c x",
            "mksh -c x",
            "fish -c x",
            "fish --command=x",
            "fish -C x",
            "fish --init-command x",
            "nu --commands x",
            "tcsh -fc x",
            "rbash -c x",
            "busybox sh -c x",
            "busybox ash -ec x",
            "/bin/busybox env sh -c x",
            "busybox timeout 5 sh -c x",
            "toybox sh -c x",
            "env sh -c x",
            "env -u X sh -c x",
            "env -i sh -c x",
            "env -i -u X A=b sh -c x",
            "env --unset X -C /tmp A=b bash -c x",
            "env -- sh -c x",
            "env -u sh sh -c x",
            "env -S|sh -c x",
            "env|-Ssh -c x",
            "env|-vSbash -ec x",
            "env|--split-string=sh -c x",
            "env -S|sh\\_-c\\_x",
            "env nice sh -c x",
            "nice -n 5 sh -c x",
            "nice -5 sh -c x",
            "nohup sh -c x",
            "timeout 5 sh -c x",
            "timeout -k 1 -s KILL 5 sh -c x",
            "setsid -w sh -c x",
            "stdbuf -o0 sh -c x",
            "stdbuf -o 0 sh -c x",
            "xargs -I{} sh -c x",
            "xargs -0 -n 1 bash -c x",
            "find . -exec sh -c x",
            "sudo sh -c x",
            "sudo -u root -E sh -c x",
            "sudo -s x",
            "sudo -u root -i x",
            "doas -u a sh -c x",
            "doas -s",
            "su -c x",
            "su root -c x",
            "su - root --command=x",
            "su -lc x root",
            "runuser -u a -- sh -c x",
            "script -c x /dev/null",
            "script -qec x /dev/null",
            "script --command x",
            "flock /tmp/l -c x",
            "flock /tmp/l sh -c x",
            "watch -n 1 x",
            "chroot /x sh -c x",
            "unshare -r sh -c x",
            "strace -f -o o sh -c x",
            "npx -c x",
            "npx --yes -p a -c x",
            "npx --call=x",
            "npm exec -c x",
            "pwsh -Command x",
            "pwsh -c x",
            "pwsh -NoProfile -com x",
            "pwsh -ExecutionPolicy Bypass -enc x",
            "powershell.exe -EncodedCommand x",
            "cmd /c x",
            "cmd.exe /C x",
            "cmd /s /k x",
        ] {
            assert!(found(line), "{line}");
        }
    }

    // fault G3
    #[test]
    fn a_program_or_a_script_in_a_file_is_no_script_among_the_arguments() {
        for line in [
            "npx -y @a/b",
            "npx -y pkg -c conf.json",
            "npx --yes pkg -c conf.json",
            "npm run x -c y",
            "uvx x -c y",
            "node server.js -c conf",
            "python3 -m http.server",
            "bash server.sh",
            "bash server.sh -c x",
            "bash --norc server.sh -c x",
            "bash --rcfile f server.sh -c x",
            "bash -e server.sh -c x",
            "bash -eo pipefail server.sh -c x",
            "bash -C server.sh",
            "bash -- server.sh -c",
            "sh - server.sh -c",
            "busybox httpd -c conf",
            "env A=1 node server.js -c conf",
            "env -u X bash server.sh -c x",
            "env -S|node --inspect server.js",
            "timeout 5 node -c server.js",
            "sudo -u a node server.js",
            "pwsh server.ps1 -c x",
            "pwsh -File server.ps1 -Command x",
            "cmd server.bat /c",
            "watch -x node server.js",
            "mytool --shell bash -c conf",
        ] {
            assert!(!found(line), "{line}");
        }
    }
}
