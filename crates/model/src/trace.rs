//! W3C Trace Context: the trace that a call belongs to, and its place in it.
//!
//! `traceparent` and `tracestate` are read here, strictly, and nowhere else. A call without a valid
//! `traceparent` begins a trace of its own, whose id follows from the call's id, so that it needs no
//! randomness. Entry points: [`TraceParent::parse`], [`TraceParent::of_call`] and [`trace_state`].

use std::borrow::Cow;
use std::fmt;

use crate::hex::put_hex;
use crate::id::CallId;

/// How long a `traceparent` is in characters.
pub const TRACEPARENT_LENGTH: usize = 55;
/// The flag that says that spans of the trace are recorded.
const SAMPLED: u8 = 1;
/// The longest `tracestate` that is passed on.
const LONGEST_STATE: usize = 512;
/// The maximum number of entries of a `tracestate`.
const MOST_ENTRIES: usize = 32;

/// A place in a trace: the trace, one span of it, and the flags.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// As two halves, so that the value needs no wide alignment.
    trace: (u64, u64),
    /// Zero if the trace begins with the call.
    span: u64,
    flags: u8,
}

impl TraceParent {
    /// Reads a `traceparent`; `None` if it is invalid. One of a later version is read as far as this
    /// version knows it.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, rest) = text.split_at_checked(TRACEPARENT_LENGTH)?;
        let mut parts = head.split('-');
        let mut digits = |length: usize| {
            let part = parts.next()?;
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            (part.len() == length && part.bytes().all(is_hex)).then_some(part)
        };
        let (version, trace, span, flags) = (digits(2)?, digits(32)?, digits(16)?, digits(2)?);
        let fits = match version {
            "00" => rest.is_empty(),
            "ff" => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let read = Self {
            trace: (number(&trace[..16])?, number(&trace[16..])?),
            span: number(span)?,
            flags: u8::from_str_radix(flags, 16).ok()? & SAMPLED,
        };
        (fits && read.trace != (0, 0) && read.span != 0).then_some(read)
    }

    /// Starts the trace of a call that has none: without a parent span.
    pub fn of_call(call: CallId) -> Self {
        let bits = call.to_bits();
        // Samplers decide by the second half, so it must look random.
        Self {
            trace: ((bits >> 64) as u64, mixed(bits, 0)),
            span: 0,
            flags: SAMPLED,
        }
    }

    /// Returns the same trace with the span of a call, as it is sent to the call's server.
    pub fn below(self, call: CallId) -> Self {
        Self {
            span: span_of(call),
            ..self
        }
    }

    /// Returns the 32 digits of the trace.
    pub fn trace_id(self) -> String {
        format!("{:016x}{:016x}", self.trace.0, self.trace.1)
    }

    /// Returns it as a `traceparent`, without allocating.
    pub fn text(self) -> TraceText {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put_hex(&mut text[3..19], self.trace.0);
        put_hex(&mut text[19..35], self.trace.1);
        put_hex(&mut text[36..52], self.span);
        put_hex(&mut text[53..55], u64::from(self.flags));
        TraceText(text)
    }
}

/// A place in a trace in the form of a `traceparent`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceText([u8; TRACEPARENT_LENGTH]);

impl TraceText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and dashes")
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceParent({self})")
    }
}

/// Returns the span id of a call.
pub fn span_of(call: CallId) -> u64 {
    mixed(call.to_bits(), 1).max(1)
}

/// Returns trace and parent span of a recorded place in a trace; a text of another form is the trace.
pub fn recorded_parts(text: &str) -> (&str, Option<&str>) {
    let is_place = text.len() == TRACEPARENT_LENGTH && text.is_ascii();
    let parts = is_place.then(|| (&text[3..35], &text[36..52]));
    match parts {
        Some((trace, span)) => (trace, Some(span).filter(|span| *span != "0000000000000000")),
        None => (text, None),
    }
}

/// Returns the trace id of a query, given alone or as a `traceparent`.
pub fn asked_for(text: &str) -> Cow<'_, str> {
    match TraceParent::parse(text) {
        Some(place) => Cow::Owned(place.trace_id()),
        None => Cow::Borrowed(text),
    }
}

/// Joins the values of `tracestate` headers; `None` if together they are invalid, so that none is passed on.
pub fn trace_state<'a>(values: impl Iterator<Item = &'a str>) -> Option<Box<str>> {
    let mut joined = String::new();
    let mut entries = 0;
    let all = values.flat_map(|value| value.split(','));
    for entry in all.map(|entry| entry.trim_matches([' ', '\t'])) {
        if entry.is_empty() {
            continue;
        }
        let (key, value) = entry.split_once('=')?;
        entries += 1;
        let is_repeated = joined.split(',').any(|known| {
            let known = known.split_once('=');
            known.is_some_and(|(known, _)| known == key)
        });
        if !is_state_key(key) || !is_state_value(value) || is_repeated || entries > MOST_ENTRIES {
            return None;
        }
        if !joined.is_empty() {
            joined.push(',');
        }
        joined.push_str(entry);
    }
    (!joined.is_empty() && joined.len() <= LONGEST_STATE).then(|| joined.into())
}

fn is_state_key(key: &str) -> bool {
    let is_first = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_next = |c: u8| is_first(c) || b"_-*/".contains(&c);
    let is_word = |word: &str, longest: usize| {
        (1..=longest).contains(&word.len())
            && word.as_bytes().first().copied().is_some_and(is_first)
            && word.bytes().all(is_next)
    };
    match key.split_once('@') {
        Some((tenant, system)) => is_word(tenant, 241) && is_word(system, 14),
        None => is_word(key, 256),
    }
}

fn is_state_value(value: &str) -> bool {
    let fits = |c: u8| (0x20..=0x7e).contains(&c) && !b",=".contains(&c);
    (1..=256).contains(&value.len()) && value.bytes().all(fits) && !value.ends_with(' ')
}

/// Returns 64 bits that look random and only depend on the call and the purpose.
fn mixed(bits: u128, purpose: u64) -> u64 {
    let mut mixed = (bits >> 64) as u64 ^ (bits as u64).rotate_left(32) ^ (purpose << 63);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    // row 3.5
    #[test]
    fn a_traceparent_is_read_as_the_standard_says() {
        let place = TraceParent::parse(PARENT).unwrap();
        assert_eq!(place.to_string(), PARENT);
        assert_eq!(place.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        let later = PARENT.replacen("00", "cc", 1);
        for valid in [later.clone(), format!("{later}-what-the-future-holds")] {
            let read = TraceParent::parse(&valid).unwrap();
            assert_eq!(read.to_string(), PARENT, "{valid}");
        }
        for invalid in [
            String::new(),
            "00-xyz".to_owned(),
            PARENT.to_uppercase(),
            format!("{PARENT}-more"),
            format!("{later}.more"),
            PARENT.replacen("00", "ff", 1),
            PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            PARENT.replace("b7ad", "-7ad"),
            PARENT.replace('-', "_"),
            format!(" {PARENT}"),
            PARENT.replace("0af7", "0äf"),
        ] {
            assert_eq!(TraceParent::parse(&invalid), None, "{invalid}");
        }
        // Flags that this version does not know are not passed on.
        let unknown = format!("{}ff", &PARENT[..53]);
        let read = TraceParent::parse(&unknown).unwrap();
        assert_eq!(read.to_string(), PARENT);
    }

    // row 3.5
    #[test]
    fn a_call_has_a_span_of_its_own_below_its_callers() {
        let [one, other] = [CallId::new(5, 7), CallId::new(5, 8)];
        let began = TraceParent::of_call(one);
        assert_ne!(began.trace_id(), TraceParent::of_call(other).trace_id());
        assert_eq!(began, TraceParent::of_call(one));
        let recorded = began.to_string();
        assert_eq!(recorded_parts(&recorded), (began.trace_id().as_str(), None));
        let given = TraceParent::parse(PARENT).unwrap();
        let passed = given.below(one);
        assert_eq!(passed.trace_id(), given.trace_id());
        let [mine, others] = [passed, given.below(other)].map(|place| place.to_string());
        assert_ne!(mine, others);
        assert!(TraceParent::parse(&mine).is_some(), "{mine}");
        assert_eq!(
            recorded_parts(PARENT),
            ("0af7651916cd43dd8448eb211c80319c", Some("b7ad6b7169203331"))
        );
        assert_eq!(recorded_parts("00-aa-bb-01"), ("00-aa-bb-01", None));
        assert_eq!(asked_for(PARENT), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(asked_for("0af7"), "0af7");
    }

    #[test]
    fn a_tracestate_is_passed_on_whole_or_not_at_all() {
        let state = |values: &[&str]| trace_state(values.iter().copied());
        let joined = state(&["rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE, ,a@b=x"]);
        assert_eq!(
            joined.as_deref(),
            Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE,a@b=x")
        );
        let many: String = (0..33).map(|at| format!("k{at}=v,")).collect();
        let long = format!("a={},b={},c=x", "v".repeat(256), "v".repeat(256));
        for invalid in [
            "", "a", "A=b", "a=", "a=b=c", "a=b,a=c", "a=\u{e9}", "a@b@c=d", &many, &long,
        ] {
            assert_eq!(state(&[invalid]), None, "{invalid}");
        }
    }
}
