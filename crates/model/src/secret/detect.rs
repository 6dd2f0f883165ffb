//! Detects undeclared secrets: by the name of their variable or flag, and by their own form.
//!
//! A heuristic for command lines and variables, without guarantee. A detected value is redacted
//! from everything the server sends, so a value that may well be an ordinary word or number does
//! not count as a secret, whatever its name. Entry points: [`is_given_secret`], [`looks_secret`],
//! [`hide_arguments`] and [`secret_arguments`].

use super::names::{Hint, hint_of, is_harmless};
use super::{ADMIN_KEY, AGENT_KEY, is_credential};

/// Prefixes of keys of well-known providers.
const BEGINNINGS: [&str; 38] = [
    ADMIN_KEY,
    AGENT_KEY,
    "sk-",
    "sk_live_",
    "sk_test_",
    "pk_live_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "npm_",
    "pypi-",
    "hf_",
    "eyJ",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "SG.",
    "hvs.",
    "dop_v1_",
    "shpat_",
    "sntrys_",
    "lin_api_",
    "AGE-SECRET-KEY-",
];

/// The shortest word that counts as a key because of its prefix.
const SHORTEST_KEY: usize = 16;
/// The shortest word that counts as a key because it is not a natural word.
const SHORTEST_NOISE: usize = 24;
/// The shortest value that counts as a secret because it looks random, if its name is ambiguous.
const SHORTEST_RANDOM: usize = 16;
/// The longest natural word.
const LONGEST_WORD: usize = 20;
/// The maximum number of digits at the end of a word, such as a year.
const MOST_DIGITS: usize = 4;
/// The shortest value that counts as a secret because of its name.
const SHORTEST_NAMED: usize = 6;
/// The minimum length of a number, or of words of letters alone.
const SHORTEST_PLAIN: usize = 12;
/// The minimum entropy of a value in bits.
const LEAST_BITS: f64 = 12.0;

/// Returns whether a value under this name is a secret.
pub fn is_given_secret(name: &str, value: &str) -> bool {
    has_known_look(value)
        || (is_noise(value) && !is_harmless(name))
        || match hint_of(name) {
            Hint::Secret => is_plausible(value),
            Hint::Login => is_plausible(value) && !is_words(value, "_-."),
            Hint::Ambiguous => is_random(value),
            Hint::Nothing => false,
        }
}

/// Returns whether a value looks like a key: by its prefix, or because it is long and not a natural
/// word.
pub fn looks_secret(value: &str) -> bool {
    has_known_look(value) || is_noise(value)
}

/// Returns whether a declared secret is searched in the output of servers: short words, numbers and
/// repetitions would match by accident.
pub fn is_redactable(value: &str) -> bool {
    is_plausible(value) || looks_secret(value)
}

/// Returns whether a value can be a secret and is unlikely to occur elsewhere by accident, unlike
/// words, numbers, repetitions and file names.
pub(crate) fn is_plausible(value: &str) -> bool {
    let value = value.trim();
    let length = value.chars().count();
    let is_number = value
        .chars()
        .all(|letter| letter.is_ascii_digit() || ".,:-+ ".contains(letter));
    let rest = value.get(1..).unwrap_or_default();
    let is_word = value.chars().all(char::is_alphabetic)
        && (!rest.chars().any(char::is_uppercase) || !value.chars().any(char::is_lowercase));
    let is_joined = value
        .chars()
        .all(|letter| letter.is_ascii_lowercase() || "_-.".contains(letter));
    let is_plain = (is_number || is_word || is_joined) && length < SHORTEST_PLAIN;
    length >= SHORTEST_NAMED && !is_plain && !is_path(value) && bits(value) >= LEAST_BITS
}

/// Returns whether a value is long and does not consist of words: no sort order, path or address.
fn is_random(value: &str) -> bool {
    let value = value.trim();
    let is_place = value.contains("://")
        || value.starts_with("arn:")
        || value.contains([' ', '\\'])
        || (value.contains('/') && value.contains('.'));
    let signs = |letter: char| !letter.is_alphanumeric();
    value.chars().count() >= SHORTEST_RANDOM
        && !is_place
        && is_plausible(value)
        && !value.split(signs).all(is_word_like)
}

/// Returns whether a text is words separated by these signs: `created_at`, `oauth2`, `X-Api-Key`.
pub(super) fn is_words(text: &str, signs: &str) -> bool {
    text.split(|letter| signs.contains(letter))
        .all(is_word_like)
}

/// Returns whether letters and digits may be a word, a number or both: `tenantId`, `HTTP`, `2026`,
/// `v2`.
fn is_word_like(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_digit = |letter: char| letter.is_ascii_digit();
    let letters = text.trim_matches(is_digit);
    if letters.is_empty() {
        return digits(text);
    }
    let has_digits_once = text.starts_with(letters) || text.ends_with(letters);
    let few_digits = text.len() - letters.len() <= MOST_DIGITS;
    if !has_digits_once || !few_digits || letters.chars().count() > LONGEST_WORD {
        return false;
    }
    if !letters.chars().all(char::is_alphabetic) {
        return false;
    }
    let mixed = letters.chars().any(char::is_uppercase) && letters.chars().any(char::is_lowercase);
    !mixed || is_camel_case(letters)
}

/// Returns whether upper-case letters are at the start of words, or at the end as in `userID`, and
/// no word is a single letter.
fn is_camel_case(letters: &str) -> bool {
    let letters = letters.trim_end_matches(char::is_uppercase);
    let mut small = letters.split(char::is_uppercase);
    // The part before the first upper-case letter may be empty.
    let first = small.next().unwrap_or_default();
    first.chars().count() != 1 && small.all(|rest| !rest.is_empty())
}

/// Returns the information content of a value: its length times the entropy of its characters.
fn bits(value: &str) -> f64 {
    let mut counts: std::collections::BTreeMap<char, f64> = std::collections::BTreeMap::new();
    for character in value.chars() {
        *counts.entry(character).or_default() += 1.0;
    }
    let length: f64 = counts.values().sum();
    counts
        .values()
        .map(|count| count * (length / count).log2())
        .sum()
}

/// Returns whether a value is a file name rather than a key that happens to begin with `/`.
fn is_path(value: &str) -> bool {
    let is_rooted = ["/", "./", "../", "~/"]
        .iter()
        .any(|root| value.starts_with(root));
    let is_word = |segment: &str| {
        segment.len() >= 3 && segment.chars().all(|letter| letter.is_ascii_lowercase())
    };
    is_rooted && !value.contains(['+', '=']) && value.split('/').any(is_word)
}

fn has_known_look(value: &str) -> bool {
    let value = value.trim();
    if value.starts_with("-----BEGIN ") || userinfo(value).is_some_and(is_login) {
        return true;
    }
    let known = BEGINNINGS.iter().any(|known| value.starts_with(known));
    known && value.len() >= SHORTEST_KEY && value.chars().all(is_plain)
}

/// Returns whether the part before the host of a URL is more than a user name.
fn is_login(userinfo: &str) -> bool {
    let password = userinfo.split_once(':').map(|(_, password)| password);
    password.is_some_and(|password| !password.is_empty()) || is_noise(userinfo)
}

fn is_noise(value: &str) -> bool {
    let value = value.trim();
    // These characters occur in names of packages, files and hosts.
    if value.len() < SHORTEST_NOISE || value.contains(['/', '.']) || !value.chars().all(is_plain) {
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

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-+/=.".contains(letter)
}

/// Returns the user information of a URL (before the `@` of its host), which often has a password.
pub fn userinfo(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.rsplit_once('@').map(|(userinfo, _)| userinfo)
}

/// Returns a command's arguments with `stand_in` for apparent secrets: `--token=x`, `--api-key x`,
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

/// Returns the part of each argument that seems secret.
pub fn secret_arguments(arguments: &[String]) -> Vec<Option<&str>> {
    let mut named = false;
    let found = arguments.iter().map(|argument| {
        let argument = argument.as_str();
        let after_name = std::mem::take(&mut named);
        // `--token=x`, and `Authorization: x` as in headers.
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

/// Returns whether a text consists mainly of variables, such as `Bearer ${TOKEN}`: names are not
/// secrets.
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
    fn a_name_makes_no_secret_of_a_word_or_a_number() {
        for (name, value) in [
            ("API_KEY", "s3cr3t"),
            ("DB_PASSWORD", "hunter22"),
            ("DB_PASSWORD", "correct horse"),
            ("SESSION_SECRET", "abcdefghijklmnop"),
            (
                "SENTRY_DSN",
                "https://0123456789abcdef0123456789abcdef@sentry.example/1",
            ),
            (
                "GIT_AUTHOR_NAME",
                "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            ),
            ("ANYTHING", "xoxb-123456789012-abcdefgh"),
            ("MAX_TOKENS", "sk-proj-abcdefgh12345678"),
            ("KEYCLOAK_REALM", "AKIAIOSFODNN7EXAMPLE"),
        ] {
            assert!(is_given_secret(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("KEYCLOAK_REALM", "master"),
            ("MAX_TOKENS", "100000"),
            ("GIT_AUTHOR_NAME", "Ada Lovelace"),
            ("GIT_AUTHOR_EMAIL", "ada@example.com"),
            ("API_KEY", "none"),
            ("AUTH", "basic"),
            ("AUTH", "disabled"),
            ("DB_PASSWORD", "postgres"),
            ("DB_PASSWORD", "Password"),
            ("TOKEN", "100000"),
            ("TOKEN", "2026-11-17"),
            ("SECRET", "aaaaaaaaaaaaaaaa"),
            ("SSH_PRIVATE_KEY", "/home/ada/.ssh/id_ed25519"),
            (
                "GOOGLE_APPLICATION_CREDENTIALS",
                "./keys/service-account.json",
            ),
            ("GIT_COMMIT", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"),
            ("REPOSITORY", "ssh://git@github.com/org/repository"),
        ] {
            assert!(!is_given_secret(name, value), "{name}={value}");
        }
    }

    // fault K3: what a server is told of keys is not what a key is
    #[test]
    fn a_name_that_speaks_of_keys_makes_no_secret_of_words() {
        for (name, value) in [
            ("SORT_KEY", "created_at"),
            ("SORT_KEY", "customers.created_at_desc"),
            ("PRIMARY_KEY", "customer_id"),
            ("FOREIGN_KEY", "orderLines.customerID"),
            ("PARTITION_KEY", "tenantId"),
            ("CACHE_KEY", "users-by-region-2026"),
            ("CACHE_KEY_PREFIX", "reporting:v2"),
            ("KEY", "created_at"),
            ("KEYS", "alpha,beta,gamma,delta"),
            ("HOT_KEY", "Ctrl+Shift+F12"),
            ("AUTH", "oauth2"),
            ("AUTH", "basic_auth_over_tls12"),
            ("API_AUTH", "oauth2"),
            ("PROXY_AUTH", "kerberos5"),
            ("AUTH_STRATEGY", "client_credentials"),
            ("AUTH_BACKEND", "ldap-internal2"),
            ("AUTH_PROVIDER", "keycloak21"),
            ("AUTH_SCHEME", "Bearer2024"),
            ("AUTH_USER", "svc_reporting1"),
            ("AUTH_USERNAME", "ada.lovelace1815"),
            ("AUTH_EMAIL", "ada1815@example.com"),
            ("API_KEY_HEADER", "X-Api-Key"),
            ("API_KEY_FIELD", "api_key_v2"),
            ("TOKEN_COLUMN", "access_token2"),
            ("TOKEN_TYPE", "urn:bearer2"),
            ("TOKEN_METHOD", "client_secret_basic"),
            ("JWT_ALGORITHM", "RS256-or-ES256"),
            ("SECRET_NAME", "prod/database2"),
            ("SECRETS_BACKEND", "aws-secrets-manager"),
            ("SSH_AUTH_SOCK", "/tmp/ssh-XXabc123/agent.4711"),
            ("PASSWORD_FILE", "/run/secrets/db2"),
            ("PASSWORD_FILE", "C:\\secrets\\Db2.txt"),
            ("TOKEN_DIR", "tokens/v2/cache"),
            ("PRIVATE_KEY_PATH", "keys/id_ed25519"),
            ("TOKEN_URL", "https://idp.example/oauth2/token"),
            ("PRIVATE_SUBNET", "10.0.0.0/16"),
            ("PRIVATE_REGISTRY", "registry.internal:5000"),
            ("ODBC_DSN", "warehouse_prod2"),
            (
                "KMS_KEY",
                "arn:aws:kms:us-east-1:123456789012:key/f47ac10b-58cc",
            ),
            ("SESSION_COOKIE", "connect.sid"),
            ("AUTH_CLIENT_ID", "reporting-service2"),
        ] {
            assert!(!is_given_secret(name, value), "{name}={value}");
        }
    }

    // fault K3
    #[test]
    fn keys_stay_secrets_by_a_qualifier_or_by_their_noise() {
        for (name, value) in [
            ("KEY", "k9f2m4x7q1z8w3b6"),
            ("STRIPE_KEY", "f47ac10b58cc4372"),
            ("SORT_KEY", "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
            ("AUTH", "dXNlcjpwYXNzd29yZDE="),
            ("KEY", "a$9!kd8#Lq2x&Zt7"),
            ("TOKEN", "q8Zr2Lk0Pw5Xn7Vt"),
            ("SECRET", "q8zr2lk0pw5xn7vt"),
            ("PASSWORD", "Q8ZR2LK0PW5XN7VT"),
            ("PASSWD", "q8Zr2-Lk0Pw_5Xn7Vt"),
            ("MYSQL_PWD", "q8Zr2Lk0Pw5Xn7Vt"),
            ("CREDENTIAL", "q8Zr2Lk0Pw5Xn7Vt"),
            ("SECRET_ID", "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
            ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
            ("API_KEY", "s3cr3t"),
            ("ACCESS_KEY", "hunter22"),
            ("SIGNING_KEY", "hunter22"),
            ("ENCRYPTION_KEY", "hunter22"),
            ("MASTER_KEY", "hunter22"),
            ("SERVICE_KEY", "hunter22"),
            ("SUBSCRIPTION_KEY", "hunter22"),
            ("SSH_KEY", "hunter22"),
            ("GIT_DEPLOY_KEY", "hunter22"),
            ("LICENSE_KEY", "ABCD-1234-EFGH"),
            ("ACCOUNT_KEY", "hunter22"),
            ("BASIC_AUTH", "ada:hunter22"),
            ("NPM_CONFIG__AUTH", "dXNlcjpwYXNz"),
            ("MYSQL_DSN", "app:hunter22@tcp(db:3306)/main"),
            ("GITHUB_PAT", "k9f2m4x7q1z8w3b6k9f2"),
            ("private_pem", "-----BEGIN PRIVATE KEY-----"),
            ("DB_PASSWORD", "correct-horse-battery-staple"),
            // By their look, whatever the name says.
            ("TOKEN_URL", "https://ada:hunter22@idp.example/token"),
            ("PASSWORD_FILE", "https://ada:hunter22@files.example/x"),
            ("AUTH_HEADER", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        ] {
            assert!(is_given_secret(name, value), "{name}={value}");
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
