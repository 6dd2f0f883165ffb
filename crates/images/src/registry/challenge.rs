//! How a registry asks for credentials: the header `WWW-Authenticate`.
//!
//! Only parses and decides. Entry point: [`Challenge::choose`].

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// The kind of credentials that a registry requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A token from a token server.
    Bearer {
        realm: String,
        service: Option<String>,
    },
    /// A user name and a password.
    Basic,
}

impl Challenge {
    /// Returns the preferred challenge of a response: a token before a password.
    pub(super) fn choose(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        let mut basic = None;
        for (scheme, parameters) in texts.flat_map(challenges) {
            let value = |name: &str| {
                let found = parameters.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone())
            };
            if scheme == "basic" {
                basic = Some(Self::Basic);
            } else if scheme == "bearer"
                && let Some(realm) = value("realm")
            {
                let service = value("service");
                return Some(Self::Bearer { realm, service });
            }
        }
        basic
    }
}

type Parsed = (String, Vec<(String, String)>);

/// Parses `Scheme name="value", name=value, Scheme …`; invalid parts are skipped.
fn challenges(text: &str) -> Vec<Parsed> {
    let mut found: Vec<Parsed> = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let word = word.to_ascii_lowercase();
        if let Some(after) = after.trim_start_matches([' ', '\t']).strip_prefix('=') {
            let (value, after) = value(after.trim_start_matches([' ', '\t']));
            if let Some((_, parameters)) = found.last_mut() {
                parameters.push((word, value));
            }
            rest = after;
        } else {
            found.push((word, Vec::new()));
            rest = after;
        }
        rest = rest.trim_start_matches([' ', '\t', ',']);
    }
    found
}

/// Parses a token or a quoted string, and returns the rest.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        let (value, after) = text.split_at(end);
        return (value.to_owned(), after);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(values: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, value.parse().unwrap());
        }
        Challenge::choose(&headers)
    }

    fn bearer(realm: &str, service: Option<&str>) -> Option<Challenge> {
        Some(Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
        })
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        let wanted = bearer("https://auth.docker.io/token", Some("registry.docker.io"));
        assert_eq!(choose(&[hub]), wanted);
        assert_eq!(choose(&[r#"Basic realm="x""#, hub]), wanted);
        assert_eq!(
            choose(&[r#"basic realm="x", BEARER Realm=https://r/t"#]),
            bearer("https://r/t", None)
        );
        assert_eq!(choose(&["Basic"]), Some(Challenge::Basic));
        assert_eq!(
            choose(&[r#"Bearer realm = "a\"b\\c" , service=x"#]),
            bearer(r#"a"b\c"#, Some("x"))
        );
    }

    #[test]
    fn what_is_no_challenge_is_none() {
        for text in [
            "",
            ",,, ,",
            "=",
            "=\"",
            "Bearer",
            "Bearer service=x",
            "realm=https://r/t",
            "Digest realm=\"x\"",
            "\"Bearer",
        ] {
            assert_eq!(choose(&[text]), None, "{text}");
        }
        assert_eq!(choose(&["Bearer realm=\"cut"]), bearer("cut", None));
    }
}
