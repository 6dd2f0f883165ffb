//! URIs as grants compare them: what a server may take a URI for, however it parses it.
//!
//! A URI has two forms that a grant must both match. `proper` is the URI by RFC 3986: scheme and
//! host in lower case, unnecessary escapes decoded, dot segments removed, a local file written in
//! one way. `careless` is the reading of a careless server: every escape decoded repeatedly,
//! backslashes and Unicode's other slashes as slashes, empty segments removed, the host of a file
//! ignored, a plain path taken for a file. A URI whose two readings differ in their dot segments has
//! no form, and no grant matches it. Entry points: [`NormalUri::of`] and [`UriPattern::new`].

use std::borrow::Cow;

use super::Pattern;
use crate::naming::is_unprintable;

/// Longer URIs have no form.
const LONGEST: usize = 8 << 10;
/// How often nested escapes are decoded.
const MOST_ROUNDS: usize = 4;
/// Schemes whose host is case-insensitive.
const HOSTED: [&str; 6] = ["http", "https", "ws", "wss", "ftp", "file"];

/// Characters that some parsers take for a slash: backslashes, and what becomes either when Unicode
/// is folded to ASCII.
const SLASHES: [char; 10] = [
    '\\', '\u{2044}', '\u{2215}', '\u{2216}', '\u{29f5}', '\u{29f8}', '\u{29f9}', '\u{fe68}',
    '\u{ff0f}', '\u{ff3c}',
];
/// Characters that become a percent sign in the same way.
const PERCENTS: [char; 2] = ['\u{fe6a}', '\u{ff05}'];

/// A URI in the forms that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalUri<'a> {
    proper: Cow<'a, str>,
    careless: Cow<'a, str>,
    /// The URI without its dot segments, if it has any.
    direct: Option<String>,
}

impl<'a> NormalUri<'a> {
    /// Returns the forms of a URI; `None` if it is ambiguous.
    pub fn of(uri: &'a str) -> Option<Self> {
        if is_plain(uri) {
            return Some(Self {
                proper: Cow::Borrowed(uri),
                careless: Cow::Borrowed(uri),
                direct: None,
            });
        }
        let parts = Parts::split(uri)?;
        let (path, dots) = parts.direct_path()?;
        let careless_path = parts.careless_path(dots)?;
        let scheme = parts.scheme.to_ascii_lowercase();
        let authority = parts.authority.map(|authority| {
            let authority = unescape_plain(authority);
            fold_host(&scheme, &authority)
        });
        let careless_authority = match parts.authority {
            Some(authority) => Some(careless_authority(&scheme, authority)?),
            None => None,
        };
        let careless_rest = careless_rest(parts.rest)?;
        let direct = join(&scheme, authority.as_deref(), &path, parts.rest);
        let careless = join(
            &scheme,
            careless_authority.as_deref(),
            &careless_path,
            &careless_rest,
        );
        Some(Self {
            proper: Cow::Owned(unescape_proper(&proper_file(direct.clone()))),
            careless: Cow::Owned(careless_file(careless)),
            direct: (dots > 0).then_some(direct),
        })
    }

    /// Returns the URI to send to a server instead of `uri`: without dot segments, which might lead
    /// elsewhere there, and otherwise unchanged.
    pub fn forwarded(self, uri: &'a str) -> Cow<'a, str> {
        self.direct.map_or(Cow::Borrowed(uri), Cow::Owned)
    }
}

/// A pattern of URIs, in both forms.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UriPattern {
    proper: Pattern,
    careless: Pattern,
}

impl UriPattern {
    /// Converts a pattern into both forms; every text is one.
    pub(super) fn new(text: &str) -> Self {
        let folded = fold_pattern(text);
        let each = |change: fn(&str) -> String| {
            let pieces: Vec<String> = folded.split('*').map(change).collect();
            pieces.join("*")
        };
        let careless = each(|piece| {
            // An escape that decodes to `*` matches only itself.
            let undone = unescape_all(piece).filter(|undone| !undone.contains('*'));
            let undone = undone.unwrap_or_else(|| piece.to_owned());
            undone.replace(SLASHES, "/")
        });
        let careless = without_empty_segments(&careless);
        Self {
            proper: Pattern::new(&each(unescape_proper)),
            careless: Pattern::new(&match has_open_host(&careless) {
                true => careless,
                false => careless_file(careless),
            }),
        }
    }

    /// Returns whether it may match a URI with this prefix.
    pub(super) fn may_begin_with(&self, beginning: &str) -> bool {
        let beginning = unescape_proper(&fold_pattern(beginning));
        match &self.proper {
            Pattern::All => true,
            Pattern::Exact(uri) => uri.starts_with(&beginning),
            Pattern::Glob(glob) => {
                let head = glob.split('*').next().unwrap_or_default();
                head.starts_with(&beginning) || beginning.starts_with(head)
            }
        }
    }

    /// Returns whether it matches every URI with this prefix.
    pub(super) fn covers_below(&self, beginning: &str) -> bool {
        let beginning = unescape_proper(&fold_pattern(beginning));
        self.proper.as_str().ends_with('*') && self.proper.matches(&beginning)
    }

    /// Returns whether it matches this URI in both of its forms.
    pub(super) fn matches(&self, uri: &NormalUri<'_>) -> bool {
        self.proper.matches(&uri.proper) && self.careless.matches(&uri.careless)
    }

    /// Returns whether the pattern matches one of the forms of this URI.
    pub(super) fn may_match(&self, uri: &NormalUri<'_>) -> bool {
        self.proper.matches(&uri.proper) || self.careless.matches(&uri.careless)
    }
}

/// The parts of a URI as it is written.
struct Parts<'a> {
    /// Without its colon; empty if there is none.
    scheme: &'a str,
    authority: Option<&'a str>,
    path: &'a str,
    /// The query and the fragment.
    rest: &'a str,
}

impl<'a> Parts<'a> {
    fn split(uri: &'a str) -> Option<Self> {
        // Some parsers remove white space around a URI.
        if uri.len() > LONGEST || uri.chars().any(char::is_control) || uri.trim() != uri {
            return None;
        }
        let (scheme, behind) = split_scheme(uri);
        let slashes = behind.bytes().take_while(|byte| is_slash(*byte)).count();
        let (authority, behind) = if !scheme.is_empty() && slashes >= 2 {
            let behind = &behind[2..];
            let end = behind.find(['/', '\\', '?', '#']);
            let (authority, behind) = behind.split_at(end.unwrap_or(behind.len()));
            (Some(authority), behind)
        } else {
            (None, behind)
        };
        let (path, rest) = behind.split_at(behind.find(['?', '#']).unwrap_or(behind.len()));
        Some(Self {
            scheme,
            authority,
            path,
            rest,
        })
    }

    /// Returns the path without dot segments, and how many there were.
    fn direct_path(&self) -> Option<(String, usize)> {
        let path = unescape_plain(self.path);
        without_dots(&path)
    }

    /// Returns the path with every escape decoded; `None` if that reveals other dot segments than
    /// `dots`.
    fn careless_path(&self, dots: usize) -> Option<String> {
        let path = unescape_all(self.path)?.replace(SLASHES, "/");
        if path.split('/').any(seems_dots) {
            return None;
        }
        let (path, shown) = without_dots(&path)?;
        (shown == dots).then(|| collapse(&path))
    }
}

/// Returns whether a URI is the same in every form.
fn is_plain(uri: &str) -> bool {
    let (scheme, behind) = split_scheme(uri);
    let odd = |byte: u8| matches!(byte, b'%' | b'\\' | b';' | b'@' | 0..=32 | 127..);
    if uri.len() > LONGEST || uri.bytes().any(odd) || scheme.bytes().any(|b| b.is_ascii_uppercase())
    {
        return false;
    }
    let is_other_file = match scheme {
        "file" => !behind.starts_with("///"),
        "" => uri.starts_with('/'),
        _ => false,
    };
    if is_other_file {
        return false;
    }
    let (path, is_hosted) = match behind.strip_prefix("//") {
        Some(behind) => (behind, HOSTED.contains(&scheme)),
        None => (behind, false),
    };
    let mut segments = path.split(['/', '?', '#']);
    let host = segments.next().unwrap_or_default();
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    let has_capitals = is_hosted && host.bytes().any(|byte| byte.is_ascii_uppercase());
    let mut inner = path.split('/').skip(1).peekable();
    let mut has_empty = false;
    while let Some(segment) = inner.next() {
        has_empty |= segment.is_empty() && inner.peek().is_some();
    }
    !has_capitals && !has_empty && !is_dots(host) && !segments.any(is_dots)
}

fn split_scheme(uri: &str) -> (&str, &str) {
    let Some((scheme, behind)) = uri.split_once(':') else {
        return ("", uri);
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(legal) {
        (scheme, behind)
    } else {
        ("", uri)
    }
}

fn is_slash(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\')
}

fn join(scheme: &str, authority: Option<&str>, path: &str, rest: &str) -> String {
    let mut uri = String::with_capacity(scheme.len() + path.len() + rest.len() + 16);
    if !scheme.is_empty() {
        uri.push_str(scheme);
        uri.push(':');
    }
    if let Some(authority) = authority {
        uri.push_str("//");
        uri.push_str(authority);
    }
    uri.push_str(path);
    uri.push_str(rest);
    uri
}

/// Writes the URI of a local file as `file:///path`, which `file:/path` and `file://localhost/path`
/// mean, too (RFC 8089).
fn proper_file(uri: String) -> String {
    let Some(behind) = uri.strip_prefix("file:") else {
        return uri;
    };
    let path = match behind.strip_prefix("//") {
        Some(behind) => behind.strip_prefix("localhost"),
        None => Some(behind),
    };
    match path.filter(|path| path.starts_with('/')) {
        Some(path) => format!("file://{path}"),
        None => uri,
    }
}

/// Returns the file that a careless server opens for a URI or a path: it ignores the host.
fn careless_file(uri: String) -> String {
    let path = match uri.strip_prefix("file:") {
        Some(behind) => match behind.strip_prefix("//") {
            Some(behind) => behind.find('/').map_or("", |end| &behind[end..]),
            None => behind,
        },
        None if uri.starts_with('/') => &uri,
        None => return uri,
    };
    format!("file:///{}", path.trim_start_matches('/'))
}

/// Returns whether the host of a pattern of files has a `*`, which may stand for a path.
fn has_open_host(pattern: &str) -> bool {
    let behind = pattern.strip_prefix("file://").unwrap_or_default();
    behind
        .split('/')
        .next()
        .is_some_and(|host| host.contains('*'))
}

/// Removes dot segments by RFC 3986, and counts them. `None` if they lead out of a relative path,
/// or if an empty segment decides where they lead.
fn without_dots(path: &str) -> Option<(String, usize)> {
    let (root, inner) = match path.strip_prefix('/') {
        Some(inner) => ("/", inner),
        None => ("", path),
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut dots = 0;
    let mut segments = inner.split('/').peekable();
    let mut has_empty = false;
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                dots += 1;
                if segment == ".." && kept.pop().is_none() && root.is_empty() {
                    return None;
                }
                if is_last {
                    kept.push("");
                }
            }
            _ => {
                has_empty |= segment.is_empty() && !is_last;
                kept.push(segment);
            }
        }
    }
    if dots > 0 && has_empty {
        return None;
    }
    Some((format!("{root}{}", kept.join("/")), dots))
}

/// Returns whether some parsers take a segment for a dot segment: with parameters, with white space
/// or characters that are not seen, or with characters that become dots.
fn seems_dots(segment: &str) -> bool {
    let name = segment.split(';').next().unwrap_or_default();
    let name = name.replace(|c: char| c.is_whitespace() || is_unprintable(c), "");
    let is_dot = |c: char| matches!(c, '.' | '\u{2024}' | '\u{2025}' | '\u{fe52}' | '\u{ff0e}');
    let is_odd = name.len() < segment.len() || !name.is_ascii();
    is_odd && !name.is_empty() && name.chars().count() <= 2 && name.chars().all(is_dot)
}

/// Merges repeated slashes.
fn collapse(path: &str) -> String {
    let mut collapsed = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !collapsed.ends_with('/') {
            collapsed.push(character);
        }
    }
    collapsed
}

/// Merges repeated slashes in the path of a pattern.
fn without_empty_segments(pattern: &str) -> String {
    let (scheme, behind) = split_scheme(pattern);
    let path = match pattern.find("://") {
        // The authority goes up to the next slash.
        Some(place) => {
            let authority = &pattern[place + 3..];
            place + 3 + authority.find('/').unwrap_or(authority.len())
        }
        None if scheme.is_empty() => 0,
        None => pattern.len() - behind.len(),
    };
    let (head, path) = pattern.split_at(path);
    format!("{head}{}", collapse(path))
}

/// Converts scheme and host of a pattern to lower case, and a local file to one spelling.
fn fold_pattern(pattern: &str) -> String {
    let (scheme, behind) = split_scheme(pattern);
    if scheme.is_empty() {
        return pattern.to_owned();
    }
    let lower = scheme.to_ascii_lowercase();
    let Some(behind) = behind.strip_prefix("//") else {
        return proper_file(format!("{lower}:{behind}"));
    };
    let (authority, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
    proper_file(format!("{lower}://{}{path}", fold_host(&lower, authority)))
}

fn fold_host(scheme: &str, authority: &str) -> String {
    if HOSTED.contains(&scheme) {
        authority.to_ascii_lowercase()
    } else {
        authority.to_owned()
    }
}

/// Returns what a careless parser takes for the host; `None` if that could be a path.
fn careless_authority(scheme: &str, authority: &str) -> Option<String> {
    let authority = unescape_all(authority)?;
    let is_path = authority.contains(['/', '?', '#']) || authority.contains(SLASHES);
    let is_dots = matches!(&*authority, "." | "..") || seems_dots(&authority);
    // Of `public@secret` the host is `secret`.
    let is_login = HOSTED.contains(&scheme) && authority.contains('@');
    (!is_path && !is_dots && !is_login).then(|| fold_host(scheme, &authority))
}

/// Returns query and fragment with every escape decoded; `None` if a parser that takes them for a
/// part of the path would be led elsewhere.
fn careless_rest(rest: &str) -> Option<String> {
    let rest = unescape_all(rest)?;
    let ends = |c: char| matches!(c, '/' | '?' | '#') || SLASHES.contains(&c);
    let mut segments = rest.split(ends);
    let leads = segments.any(|segment| segment == ".." || seems_dots(segment));
    (!leads).then_some(rest)
}

/// Decodes the escapes of characters that need none (RFC 3986 §2.3).
fn unescape_plain(text: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    unescape_some(text, plain)
}

/// Decodes all escapes except those of reserved characters (RFC 3986 §2.2).
fn unescape_proper(text: &str) -> String {
    let reserved = |byte: u8| b"%:/?#[]@!$&'()*+,;=".contains(&byte) || byte.is_ascii_control();
    unescape_some(text, |byte| !reserved(byte))
}

fn unescape_some(text: &str, wanted: impl Fn(u8) -> bool) -> String {
    let mut text = text.to_owned();
    for _ in 0..=MOST_ROUNDS {
        match String::from_utf8(unescape(text.as_bytes(), &wanted)) {
            Ok(undone) if undone != text => text = undone,
            _ => break,
        }
    }
    text
}

/// Decodes all escapes, repeatedly; `None` if there is no end to it, or the result is not text.
fn unescape_all(text: &str) -> Option<String> {
    let mut text = text.to_owned();
    for _ in 0..=MOST_ROUNDS {
        if !text.is_ascii() {
            text = text.replace(PERCENTS, "%");
        }
        if !text.contains('%') {
            return Some(text);
        }
        if has_wide_escape(&text) {
            return None;
        }
        let undone = String::from_utf8(unescape(text.as_bytes(), |_| true)).ok()?;
        if undone.chars().any(char::is_control) {
            return None;
        }
        if undone == text {
            return Some(text);
        }
        text = undone;
    }
    None
}

/// Returns whether a text has an escape of the form `%uXXXX`, which is none of RFC 3986, but decoded by
/// JavaScript's `unescape` and others.
fn has_wide_escape(text: &str) -> bool {
    let is_wide = |place: usize| {
        let escape = text.as_bytes().get(place + 1..place + 6);
        let digits =
            escape.and_then(|escape| escape.strip_prefix(b"u").or(escape.strip_prefix(b"U")));
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    memchr::memchr_iter(b'%', text.as_bytes()).any(is_wide)
}

fn unescape(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut undone = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits =
            (byte == b'%').then(|| Some((digit(bytes.get(at + 1)?)?, digit(bytes.get(at + 2)?)?)));
        let value = digits
            .flatten()
            .and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        match value.filter(|value| wanted(*value)) {
            Some(value) => {
                undone.push(value);
                at += 3;
            }
            None => {
                undone.push(byte);
                at += 1;
            }
        }
    }
    undone
}

#[cfg(test)]
mod tests;
