//! Bytes that no good server writes (faults S1, S5, S16): noise, broken text, hostile numbers.

pub(crate) const BANNER: &str = "\
[dotenv@17.2.3] injecting env (3) from .env -- tip: encrypt with dotenvx\n\
\n\
\x1b[32mINFO\x1b[0m  evil server v1.0 listening on stdio\n\
npm warn deprecated inflight@1.0.6: This module is not supported\n";

pub(crate) const NOISE: &[&str] = &[
    "",
    "   ",
    "INFO request handled in 3 ms",
    "\x1b[33mwarn\x1b[39m: cache miss \x1b[2K",
    "{\"level\":\"info\",\"message\":\"structured log on the wrong stream\"}",
    "{ not json at all",
    "Traceback (most recent call last):",
    "42",
    "\"a lone string\"",
    "null",
];

pub(crate) const ESCAPES: &[u8] = b"\x1b]0;owned\x07\x1b[2J\x1b[H\x1b[31mred\x1b[0m\x07\x08\x08\r\
    fake prompt$ \x1b[6n\x1bP+q544e\x1b\\ \x9b31m \xff\xfe \x00 end\n";

const DEPTH: usize = 100_000;

/// Returns a stray line of this kind: a whole line that is no answer to anything.
pub(crate) fn stray(kind: &str) -> Vec<u8> {
    if kind == "bom" {
        return b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}".to_vec();
    }
    let mut line =
        br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"#.to_vec();
    line.extend(value(kind));
    line.extend(b"}}");
    line
}

/// Returns a JSON value, or what claims to be one, of this kind; a BOM has none.
pub(crate) fn value(kind: &str) -> Vec<u8> {
    match kind {
        "invalid-utf8" => b"\"\xff\xfe\xc0\x80\"".to_vec(),
        "nul" => b"\"a\0b\"".to_vec(),
        "surrogate" => br#""\ud800""#.to_vec(),
        "deep" => {
            let mut nested = vec![b'['; DEPTH];
            nested.extend(vec![b']'; DEPTH]);
            nested
        }
        "1e400" => b"1e400".to_vec(),
        "2^63" => b"9223372036854775808".to_vec(),
        _ => b"null".to_vec(),
    }
}
