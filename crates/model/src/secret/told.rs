//! What tells a secret where nobody declared one: the name that it stands under, and its own look.
//!
//! A net for command lines and variables, not a promise. Entry points: [`is_secret_name`],
//! [`looks_secret`], [`hide_arguments`] and [`secret_arguments`].

use super::is_credential;

/// How keys of well-known makers begin.
const BEGINNINGS: [&str; 14] = [
    "sk-",
    "pk_live_",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "npm_",
    "hf_",
    "eyJ",
];

/// The shortest word that is taken for a key because of its beginning.
const SHORTEST_KEY: usize = 16;
/// The shortest word that is taken for a key because it is no word of any language.
const SHORTEST_NOISE: usize = 24;

/// Tells whether the name of a variable says that its value is a secret.
pub fn is_secret_name(name: &str) -> bool {
    const ANYWHERE: [&str; 10] = [
        "KEY",
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "CREDENTIAL",
        "AUTH",
        "DSN",
        "COOKIE",
        "PRIVATE",
    ];
    let name = name.to_ascii_uppercase();
    // Folders, not passwords.
    if matches!(name.as_str(), "PWD" | "OLDPWD") {
        return false;
    }
    let is_secret = |part: &str| {
        let is_pass = part.ends_with("PASS") && !matches!(part, "BYPASS" | "COMPASS");
        is_pass || part.ends_with("PWD") || matches!(part, "PAT" | "PASSPHRASE")
    };
    ANYWHERE.iter().any(|part| name.contains(part)) || name.split(['_', '-', '.']).any(is_secret)
}

/// Tells whether a value looks like a key: by its beginning, or because it is long and no word.
pub fn looks_secret(value: &str) -> bool {
    let value = value.trim();
    if value.starts_with("-----BEGIN ") || userinfo(value).is_some_and(|user| user.contains(':')) {
        return true;
    }
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-+/=.".contains(letter);
    if !value.chars().all(plain) {
        return false;
    }
    let known = BEGINNINGS.iter().any(|known| value.starts_with(known));
    if known && value.len() >= SHORTEST_KEY {
        return true;
    }
    // Names of packages, files and hosts have these.
    if value.len() < SHORTEST_NOISE || value.contains(['/', '.']) {
        return false;
    }
    let has = |kind: fn(&char) -> bool| value.chars().any(|letter| kind(&letter));
    let (digit, upper, lower) = (
        has(char::is_ascii_digit),
        has(char::is_ascii_uppercase),
        has(char::is_ascii_lowercase),
    );
    let hexadecimal = value.chars().all(|letter| letter.is_ascii_hexdigit());
    digit && (upper && lower || hexadecimal && value.len() >= 32)
}

/// Returns who a URL logs in as, often with a password: what stands before the `@` of its host.
pub fn userinfo(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.rsplit_once('@').map(|(userinfo, _)| userinfo)
}

/// Returns a command's arguments with `stand_in` for what seems secret: `--token=x`, `--api-key x`,
/// a word that looks like a key, the password of a URL.
pub fn hide_arguments(arguments: &[String], stand_in: &str) -> Vec<String> {
    let secrets = secret_arguments(arguments);
    let shown = arguments.iter().zip(secrets);
    let shown = shown.map(|(argument, secret)| match secret {
        Some(secret) => argument.replacen(secret, stand_in, 1),
        None => argument.clone(),
    });
    shown.collect()
}

/// Returns of each argument the part that seems secret.
pub fn secret_arguments(arguments: &[String]) -> Vec<Option<&str>> {
    let mut named = false;
    let found = arguments.iter().map(|argument| {
        let argument = argument.as_str();
        let after_name = std::mem::take(&mut named);
        // `--token=x`, and `Authorization: x` as headers are given.
        let pair = argument
            .split_once(['=', ':'])
            .map(|(name, value)| (name, value.trim_start()));
        let secret = match pair {
            Some((name, value)) if is_credential(name) || looks_secret(value) => Some(value),
            _ if argument.starts_with('-') => {
                named = is_credential(argument) && !argument.contains('=');
                None
            }
            _ if after_name || looks_secret(argument) => Some(argument),
            _ => None,
        };
        let login = secret.and_then(userinfo).filter(|_| !after_name);
        let secret = login.or(secret);
        secret.filter(|secret| !secret.is_empty() && !is_reference(secret))
    });
    found.collect()
}

/// Tells whether a text is variables and little else, such as `Bearer ${TOKEN}`: names are no secrets.
fn is_reference(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let is_scheme = |word: &str| matches!(word, "Bearer" | "Basic" | "token");
    text.contains("${")
        && words.all(|word| is_scheme(word) || word.starts_with("${") && word.ends_with('}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_secrets() {
        for name in [
            "API_KEY",
            "GITHUB_PAT",
            "DB_PASS",
            "DBPASS",
            "MYSQL_PWD",
            "private_pem",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "PATH",
            "PWD",
            "OLDPWD",
            "NO_PROXY_BYPASS",
            "LANG",
            "DATA_PATH",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn keys_are_known_by_their_look_and_words_are_not() {
        for key in [
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "sk-proj-abcdefgh12345678",
            "postgres://app:hunter22@db/main",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "Zm9vYmFyMTIzNDU2Nzg5MEFCQ0RF",
        ] {
            assert!(looks_secret(key), "{key}");
        }
        for word in [
            "@modelcontextprotocol/server-everything",
            "/home/ada/Projects2/some-long-folder-name",
            "server-filesystem-with-a-long-name",
            "https://example.com/mcp",
            "sk-short",
            "-y",
        ] {
            assert!(!looks_secret(word), "{word}");
        }
        assert_eq!(
            userinfo("postgres://a:b@db.example/main?x=a@b"),
            Some("a:b")
        );
        assert_eq!(userinfo("https://example.com/a@b"), None);
    }

    #[test]
    fn of_arguments_only_the_secret_part_is_hidden() {
        let given = [
            "-y",
            "pkg",
            "--token",
            "s3",
            "--api-key=s4",
            "--db=postgres://u:p@h/d",
            "TOKEN=s5",
            "--token=${T}",
            "--token",
            "--verbose",
            "plain",
            "Authorization: Bearer s6",
            "Authorization: Bearer ${T}",
            "http://localhost:80/",
        ];
        let hidden = hide_arguments(&given.map(str::to_owned), "…");
        let expected = [
            "-y",
            "pkg",
            "--token",
            "…",
            "--api-key=…",
            "--db=postgres://…@h/d",
            "TOKEN=…",
            "--token=${T}",
            "--token",
            "--verbose",
            "plain",
            "Authorization: …",
            "Authorization: Bearer ${T}",
            "http://localhost:80/",
        ];
        assert_eq!(hidden, expected);
    }
}
