//! Patterns that strings must match, each run by the engine that suits it.
//!
//! Most run on the linear engine: a short text in one step, a long one byte by byte through a
//! lazily built automaton, so that the clock can be checked on the way. Patterns with look-around
//! or back-references, or too large for an automaton, are matched by backtracking with counted
//! steps. A text that exceeds the budget is left unchecked (`budget::pattern`). Patterns of
//! property names are matched by the library; [`name_pattern`] translates them and [`states`]
//! returns their cost. Entry points: [`Pattern::new`], [`name_pattern`], [`states`].

use std::sync::OnceLock;

use jsonschema::json::Node as _;
use jsonschema::{Keyword, ValidationError};
use regex_automata::hybrid::dfa::DFA;
use regex_automata::meta;
use regex_automata::nfa::thompson::{Compiler, Config, NFA, WhichCaptures};
use regex_automata::{Anchored, Input};

use super::budget::{self, MATCHES_AT_ONCE};
use super::counted::{Counted, Seen};
use super::ecma::{self, PatternError, Program};

/// The keyword that holds patterns in the compiled schema; the library ignores it.
pub(super) const PATTERN: &str = "x-gantry-pattern";
/// The largest compiled regular expression of the linear engine, in bytes.
pub(super) const PATTERN_BYTES: usize = 256 << 10;
/// Bytes of a long text between two checks of the clock.
const BYTES_PER_LOOK: usize = 256;
/// Units for parsing a byte of a value that is to be a pattern: the sets of some escapes are large.
const UNITS_PER_PARSED_BYTE: u64 = 64;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    Linear(Box<Linear>),
    Backtracking(Program),
}

/// A pattern for the linear engine.
#[derive(Debug)]
struct Linear {
    nfa: NFA,
    regex: meta::Regex,
    /// For long texts, built on first use; `None` if it cannot be built.
    stepwise: OnceLock<Option<Box<DFA>>>,
}

/// The result of matching a long text step by step.
enum Walked {
    Matches,
    Fails,
    /// The automaton cannot handle the text.
    Stuck,
}

/// Checks a value of the format `regex`, which the library does uncounted; one that is too long to be
/// judged counts as valid.
pub(super) fn is_regex(text: &str) -> bool {
    if text.len() <= ecma::LONGEST {
        budget::charge(UNITS_PER_PARSED_BYTE * text.len() as u64);
    }
    !matches!(ecma::parse(text), Err(PatternError::Syntax(_)))
}

impl Pattern {
    /// Compiles a pattern of JSON Schema.
    pub(super) fn new(text: &str) -> Result<Self, PatternError> {
        let regex = ecma::parse(text)?;
        let linear = ecma::linear(&regex).and_then(|translated| Linear::new(&translated));
        let engine = match linear {
            Some(linear) => Engine::Linear(Box::new(linear)),
            None => Engine::Backtracking(Program::new(&regex)),
        };
        Ok(Self {
            text: text.to_owned(),
            engine,
        })
    }

    fn matches(&self, text: &str) -> bool {
        match &self.engine {
            Engine::Linear(linear) => linear.matches(text),
            Engine::Backtracking(program) => program.is_match(text),
        }
    }
}

impl Linear {
    /// Compiles a translated pattern; `None` if it is too large.
    fn new(translated: &str) -> Option<Self> {
        let nfa = compile(translated)?;
        let config = meta::Config::new().nfa_size_limit(Some(PATTERN_BYTES));
        let builder = meta::Builder::new().configure(config).build(translated);
        Some(Self {
            nfa,
            regex: builder.ok()?,
            stepwise: OnceLock::new(),
        })
    }

    fn matches(&self, text: &str) -> bool {
        let states = self.nfa.states().len() as u64;
        let matches = states.saturating_mul(text.len() as u64);
        if matches > MATCHES_AT_ONCE {
            budget::leave_inline();
            match self.walk(text.as_bytes()) {
                Some(Walked::Matches) => return true,
                Some(Walked::Fails) => return false,
                Some(Walked::Stuck) | None => budget::exhausted(),
            }
        }
        budget::matching(matches);
        // Some patterns make the library panic, which counts as no match.
        budget::catch(|| self.regex.is_match(text)).unwrap_or(false)
    }

    /// Matches a long text step by step; `None` if there is no automaton.
    fn walk(&self, text: &[u8]) -> Option<Walked> {
        let build = || {
            let config = DFA::config()
                .unicode_word_boundary(true)
                .skip_cache_capacity_check(true);
            let dfa = DFA::builder()
                .configure(config)
                .build_from_nfa(self.nfa.clone());
            dfa.ok().map(Box::new)
        };
        let dfa = self.stepwise.get_or_init(build).as_deref()?;
        let mut cache = dfa.create_cache();
        let input = Input::new(text).anchored(Anchored::No);
        let mut state = dfa.start_state_forward(&mut cache, &input).ok()?;
        let mut built = cache.memory_usage();
        for part in text.chunks(BYTES_PER_LOOK) {
            budget::look();
            budget::bytes(part.len());
            // Building states takes the time: charge one unit per byte of state. When the cache is
            // full, all states are dropped and rebuilt.
            let now = cache.memory_usage();
            budget::charge(now.checked_sub(built).unwrap_or(now) as u64);
            built = now;
            for &byte in part {
                state = dfa.next_state(&mut cache, state, byte).ok()?;
                if state.is_tagged() {
                    if state.is_match() {
                        return Some(Walked::Matches);
                    } else if state.is_dead() {
                        return Some(Walked::Fails);
                    } else if state.is_quit() {
                        return Some(Walked::Stuck);
                    }
                }
            }
        }
        let last = dfa.next_eoi_state(&mut cache, state).ok()?;
        Some(if last.is_match() {
            Walked::Matches
        } else {
            Walked::Fails
        })
    }
}

impl<'i> Keyword<'i, Counted> for Pattern {
    fn validate(&self, instance: Seen<'i>) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            return Ok(());
        }
        let wanted = super::issues::must_match(&self.text);
        Err(ValidationError::custom(wanted))
    }

    fn is_valid(&self, instance: Seen<'i>) -> bool {
        let text = instance.as_string();
        text.is_none_or(|text| budget::pattern(|| self.matches(&text)))
    }
}

/// Returns a pattern for property names in the library's syntax; `None` if the library has no
/// engine for it.
pub(super) fn name_pattern(pattern: &str) -> Result<Option<String>, PatternError> {
    let translated = ecma::linear(&ecma::parse(pattern)?);
    Ok(translated.filter(|translated| Linear::new(translated).is_some()))
}

/// Returns how many states a translated pattern for property names has; 0 if it does not compile.
pub(super) fn states(translated: &str) -> u64 {
    compile(translated).map_or(0, |nfa| nfa.states().len() as u64)
}

fn compile(translated: &str) -> Option<NFA> {
    let config = Config::new()
        .nfa_size_limit(Some(PATTERN_BYTES))
        .which_captures(WhichCaptures::None);
    Compiler::new().configure(config).build(translated).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_matched_as_short_ones_are() {
        for (pattern, part, end) in [
            ("^(a+)+$", "a", "!"),
            ("^[a-z0-9 ]*$", "word 7 ", "Ü"),
            ("x$", "abc", "x"),
            ("needle", "hay ", "needle"),
            (r"\bend$", "word ", "end"),
            ("^(?:[A-Za-z0-9+/]{4})*$", "QUJD", "="),
        ] {
            let Engine::Linear(linear) = Pattern::new(pattern).unwrap().engine else {
                panic!("`{pattern}` is not linear");
            };
            let long = part.repeat(5_000);
            for text in [long.clone(), format!("{long}{end}")] {
                let walked = matches!(linear.walk(text.as_bytes()), Some(Walked::Matches));
                assert_eq!(walked, linear.regex.is_match(&text), "{pattern}");
            }
        }
    }

    #[test]
    fn each_pattern_gets_the_engine_it_needs() {
        let is_linear = |pattern: &str| {
            let pattern = Pattern::new(pattern).unwrap();
            matches!(pattern.engine, Engine::Linear(_))
        };
        for linear in [
            "^(a+)+$",
            "[^]",
            r"^\p{L}+$",
            "(?i)abc",
            r"(?P<year>\d{4})-\/",
            "",
        ] {
            assert!(is_linear(linear), "{linear}");
        }
        // The last is too large for an automaton.
        for other in ["(?=a)", "(?<!a)b", r"(a)\1", "a++", r"x\Z", "^.{0,5000}$"] {
            assert!(!is_linear(other), "{other}");
        }
        assert!(Pattern::new("(unclosed").is_err());
        assert!(Pattern::new("(?:a{1,100}){1,100}{1,100}").is_err());
    }

    #[test]
    fn patterns_of_names_are_translated_for_the_library() {
        let translated = name_pattern("^x-[a-z]{1,40}$").unwrap().unwrap();
        assert!(states(&translated) > 40, "{translated}");
        assert_eq!(name_pattern("^(?!_)"), Ok(None));
        assert_eq!(name_pattern("^.{0,5000}$"), Ok(None));
        assert!(name_pattern("(unclosed").is_err());
        assert_eq!(states("(unclosed"), 0);
    }
}
