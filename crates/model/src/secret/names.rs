//! Which names indicate secrets: of variables, headers, flags and members of JSON.
//!
//! A name is split into words, at signs and at changes of letter case, and only whole words count:
//! `KEYCLOAK_REALM`, `MAX_TOKENS` and `GIT_AUTHOR_NAME` are not secrets. `KEY` and `AUTH` alone are
//! too ambiguous. Entry points: [`is_secret_name`], [`is_credential`] and [`hint_of`].

/// Words that always indicate a credential.
const CREDENTIALS: [&str; 24] = [
    "PASSWORD",
    "PASSWORDS",
    "PASSWD",
    "PASSPHRASE",
    "PASSCODE",
    "PASS",
    "PWD",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "CREDENTIAL",
    "CREDENTIALS",
    "AUTHORIZATION",
    "COOKIE",
    "COOKIES",
    "BEARER",
    "JWT",
    "APIKEY",
    "APIKEYS",
    "ACCESSKEY",
    "SECRETKEY",
    "PRIVATEKEY",
    "SIGNINGKEY",
    "ENCRYPTIONKEY",
];

/// Every name of a credential contains one of these.
const STEMS: [&[u8]; 14] = [
    b"pass",
    b"pwd",
    b"secret",
    b"token",
    b"credential",
    b"authorization",
    b"cookie",
    b"bearer",
    b"jwt",
    b"apikey",
    b"accesskey",
    b"privatekey",
    b"signingkey",
    b"encryptionkey",
];

/// Words that may indicate a secret in the name of a variable, but mostly mean something else.
const AMBIGUOUS: [&str; 6] = ["KEY", "KEYS", "AUTH", "PRIVATE", "PAT", "DSN"];

/// Words that make a following `KEY` a secret.
const QUALIFIERS: [&str; 22] = [
    "API",
    "ACCESS",
    "SECRET",
    "PRIVATE",
    "SIGNING",
    "SIGNATURE",
    "ENCRYPTION",
    "DECRYPTION",
    "MASTER",
    "SERVICE",
    "SUBSCRIPTION",
    "SSH",
    "DEPLOY",
    "LICENSE",
    "ACCOUNT",
    "ADMIN",
    "AUTH",
    "HMAC",
    "AES",
    "RSA",
    "TLS",
    "WEBHOOK",
];

/// More words that make a following `AUTH` a login.
const LOGINS: [&str; 6] = ["BASIC", "PROXY", "REGISTRY", "DOCKER", "NPM", "CONFIG"];

/// Suffixes of words without separators: `PGPASSWORD`, `DBPASS`, `authtoken`.
const ENDINGS: [&str; 10] = [
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "TOKEN",
    "APIKEY",
    "ACCESSKEY",
    "PRIVATEKEY",
    "PASS",
    "PWD",
];

/// Words with such a suffix that mean something else.
const NOT_ENDINGS: [&str; 5] = ["BYPASS", "COMPASS", "TRESPASS", "ENCOMPASS", "OLDPWD"];

/// Last words of names that describe a secret but do not contain it.
const ABOUT: [&str; 77] = [
    "URL",
    "URI",
    "ENDPOINT",
    "HOST",
    "PORT",
    "PATH",
    "FILE",
    "DIR",
    "FOLDER",
    "NAME",
    "TYPE",
    "MODE",
    "KIND",
    "COUNT",
    "LIMIT",
    "LENGTH",
    "SIZE",
    "TTL",
    "EXPIRY",
    "EXPIRES",
    "EXPIRATION",
    "TIMEOUT",
    "ISSUER",
    "AUDIENCE",
    "SCOPE",
    "SCOPES",
    "REALM",
    "ALGORITHM",
    "ALG",
    "FORMAT",
    "PREFIX",
    "SUFFIX",
    "ENABLED",
    "DISABLED",
    "REQUIRED",
    "VERSION",
    "REGION",
    "LEVEL",
    "METHOD",
    "PROVIDER",
    "DOMAIN",
    "POLICY",
    "BUDGET",
    "USAGE",
    "HEADER",
    "HEADERS",
    "FIELD",
    "FIELDS",
    "COLUMN",
    "COLUMNS",
    "USER",
    "USERNAME",
    "EMAIL",
    "SCHEME",
    "STRATEGY",
    "BACKEND",
    "SOCK",
    "SOCKET",
    "STORE",
    "STORAGE",
    "MANAGER",
    "ENGINE",
    "DRIVER",
    "PLUGIN",
    "SOURCE",
    "ENV",
    "VARIABLE",
    "TEMPLATE",
    "PATTERN",
    "FINGERPRINT",
    "LIFETIME",
    "DURATION",
    "INTERVAL",
    "PARAM",
    "PARAMETER",
    "PROTOCOL",
    "FLOW",
];

/// Words in names whose values look like keys but are not.
const HARMLESS: [&str; 20] = [
    "SHA",
    "SHA1",
    "SHA256",
    "COMMIT",
    "REVISION",
    "REV",
    "REF",
    "HASH",
    "DIGEST",
    "CHECKSUM",
    "UUID",
    "GUID",
    "ID",
    "VERSION",
    "BUILD",
    "TRACE",
    "SPAN",
    "NAME",
    "PUBLIC",
    "FINGERPRINT",
];

/// What the name of a variable or a header indicates about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// The value is a secret.
    Secret,
    /// It is a login of some kind, or its name: `BASIC_AUTH`, `ODBC_DSN`.
    Login,
    /// It may be a secret: `SORT_KEY`, `STRIPE_KEY`.
    Ambiguous,
    /// Nothing indicates a secret.
    Nothing,
}

/// Returns what a name indicates about its value.
pub(crate) fn hint_of(name: &str) -> Hint {
    let words = words(name);
    // `PWD` alone is a folder, not a password.
    if (words.len() == 1 && words[0] == "PWD") || is_about(&words) {
        return Hint::Nothing;
    }
    let is_credential = is_told(&words, |word| CREDENTIALS.contains(&word));
    let is_ambiguous = words.iter().any(|word| AMBIGUOUS.contains(&word.as_str()));
    // The id of a key is not the key, but some ids are as good as one.
    if matches!(words.last().map(String::as_str), Some("ID" | "IDS")) {
        return if is_credential || is_ambiguous {
            Hint::Ambiguous
        } else {
            Hint::Nothing
        };
    }
    let is_key = |pair: &[String]| {
        QUALIFIERS.contains(&pair[0].as_str()) && matches!(&*pair[1], "KEY" | "KEYS")
    };
    let is_login = |pair: &[String]| {
        let first = pair[0].as_str();
        pair[1] == "AUTH" && (QUALIFIERS.contains(&first) || LOGINS.contains(&first))
    };
    if is_credential || words.windows(2).any(is_key) {
        Hint::Secret
    } else if words.iter().any(|word| word == "DSN") || words.windows(2).any(is_login) {
        Hint::Login
    } else if is_ambiguous {
        Hint::Ambiguous
    } else {
        Hint::Nothing
    }
}

/// Returns whether the name of a variable or a header indicates a secret.
pub fn is_secret_name(name: &str) -> bool {
    hint_of(name) == Hint::Secret
}

/// Returns whether the name of a member or a flag indicates a credential.
pub fn is_credential(name: &str) -> bool {
    mentions_credential(name.as_bytes())
        && is_told(&words(name), |word| CREDENTIALS.contains(&word))
}

/// Returns whether a text contains the letters of a credential's name, ignoring `-` and `_`: a
/// quick check before an exact one.
pub(super) fn mentions_credential(text: &[u8]) -> bool {
    let begins = |text: &[u8], stem: &[u8]| {
        let mut letters = text.iter().filter(|byte| !matches!(byte, b'-' | b'_'));
        stem.iter().all(|wanted| {
            let letter = letters.next().map(u8::to_ascii_lowercase);
            letter == Some(*wanted)
        })
    };
    let mut starts = text.iter().enumerate();
    starts.any(|(start, byte)| {
        let first = byte.to_ascii_lowercase();
        let is_first = |stem: &&[u8]| stem[0] == first;
        // Few letters start a stem, so most texts are rejected here.
        matches!(first, b'a'..=b'c' | b'e' | b'j' | b'p' | b's' | b't')
            && STEMS
                .iter()
                .any(|stem| is_first(stem) && begins(&text[start..], stem))
    })
}

/// Returns whether a value of this name may look like a key without being one.
pub(super) fn is_harmless(name: &str) -> bool {
    let is_one = |word: &String| HARMLESS.contains(&word.as_str());
    hint_of(name) == Hint::Nothing && words(name).iter().any(is_one)
}

/// Returns whether a name describes where or how rather than what: `PRIVATE_KEY_PATH`.
fn is_about(words: &[String]) -> bool {
    let last = words.last().filter(|_| words.len() > 1);
    last.is_some_and(|last| ABOUT.contains(&last.as_str()))
}

fn is_told(words: &[String], is_one: impl Fn(&str) -> bool) -> bool {
    if is_about(words) {
        return false;
    }
    let has_ending = |word: &str| {
        ENDINGS.iter().any(|ending| word.ends_with(ending)) && !NOT_ENDINGS.contains(&word)
    };
    let is_single = |word: &String| is_one(word) || has_ending(word);
    // `api_key`, `pass-word`, and plurals such as `access_tokens`.
    let is_pair = |pair: &[String]| {
        let joined = pair.concat();
        let plural = matches!(
            &*pair[0],
            "ACCESS" | "REFRESH" | "API" | "AUTH" | "ID" | "BEARER"
        );
        CREDENTIALS.contains(&joined.as_str()) || (plural && pair[1] == "TOKENS")
    };
    words.iter().any(is_single) || words.windows(2).any(is_pair)
}

/// Splits a name into upper-case words; digits at the end of a word are dropped.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut end = |word: &mut String| {
        let kept = word.trim_end_matches(|c: char| c.is_ascii_digit());
        if !kept.is_empty() {
            words.push(kept.to_ascii_uppercase());
        }
        word.clear();
    };
    let mut letters = name.chars().peekable();
    let mut before = None;
    while let Some(letter) = letters.next() {
        if !letter.is_alphanumeric() {
            end(&mut word);
            before = None;
            continue;
        }
        // `apiKey`, and the last capital of `HTTPToken`.
        let begins = letter.is_uppercase()
            && match before {
                Some(before) if char::is_uppercase(before) => {
                    letters.peek().is_some_and(|next| next.is_lowercase())
                }
                Some(_) => true,
                None => false,
            };
        if begins {
            end(&mut word);
        }
        word.push(letter);
        before = Some(letter);
    }
    end(&mut word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words("GIT_AUTHOR_NAME"), ["GIT", "AUTHOR", "NAME"]);
        assert_eq!(words("maxTokens"), ["MAX", "TOKENS"]);
        assert_eq!(words("X-Api-Key2"), ["X", "API", "KEY"]);
        assert_eq!(words("HTTPToken"), ["HTTP", "TOKEN"]);
        assert_eq!(words("__"), Vec::<String>::new());
    }

    #[test]
    fn whole_words_tell_secrets() {
        for name in [
            "API_KEY",
            "OPENAI_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "SSH_KEYS",
            "MASTER_KEY",
            "AZURE_SUBSCRIPTION_KEY_2",
            "GITHUB_TOKEN",
            "TOKEN",
            "TOKEN_2",
            "githubToken",
            "DB_PASS",
            "DBPASS",
            "PGPASSWORD",
            "MYSQL_PWD",
            "Authorization",
            "X-Api-Key",
            "Cookie",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "clientSecret",
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
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "KEYCLOAK_REALM",
            "KEYCLOAK_URL",
            "MAX_TOKENS",
            "MAX_OUTPUT_TOKENS",
            "TOKENIZERS_PARALLELISM",
            "TOKEN_LIMIT",
            "TOKEN_URL",
            "AUTHOR",
            "AUTHORITY",
            "AUTH_MODE",
            "KEYBOARD",
            "MONKEY",
            "KEYSTONE_HOST",
            "PRIVATE_KEY_PATH",
            "SECRET_NAME",
            "SECRETARY",
            "PASSENGER_APP_ENV",
            "COOKIECUTTER_CONFIG",
            "COMPASS",
            "PATTERN",
            "PASSWORD_FILE",
            "API_KEY_HEADER",
            "SSH_AUTH_SOCK",
            "AWS_ACCESS_KEY_ID",
            "SORT_KEY",
            "AUTH",
            "",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn members_are_judged_by_fewer_words() {
        for name in [
            "password",
            "x_PASS-word_y",
            "api_key",
            "X-Api-Key",
            "accessToken",
            "access_tokens",
            "token",
            "set-cookie",
            "client_secret",
            "auth_orization",
            "private_key",
            "userPassword",
        ] {
            assert!(is_credential(name), "{name}");
        }
        for name in [
            "key",
            "keyboard",
            "max_tokens",
            "maxTokens",
            "tokens",
            "tokenizer",
            "token_count",
            "author",
            "path",
            "patient",
            "auth",
            "private",
            "passenger",
            "secretary",
            "type",
            "",
        ] {
            assert!(!is_credential(name), "{name}");
        }
    }
}
