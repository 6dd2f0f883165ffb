//! The configured faults of a peer, parsed from `--fault NAME[=ARGUMENT]` against the
//! [`catalogue`]. Their implementation is elsewhere.

pub(crate) mod catalogue;

pub(crate) use catalogue::Fault;

use catalogue::{Argument, CATALOGUE, Spec};

#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Vec<(Fault, Value)>);

#[derive(Clone, Debug)]
enum Value {
    None,
    Number(u64),
    Word(String),
}

impl Faults {
    /// Adds a fault as written on the command line.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        let (name, argument) = match text.split_once('=') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        let spec = CATALOGUE
            .iter()
            .find(|spec| spec.name == name)
            .ok_or_else(|| format!("no fault `{name}`; see `evilpeer --help`"))?;
        self.0.push((spec.fault, value(spec, argument)?));
        Ok(())
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.0.iter().any(|(each, _)| *each == fault)
    }

    /// Returns the number of a fault that takes one, if the fault is configured.
    pub(crate) fn number(&self, fault: Fault) -> Option<u64> {
        self.0.iter().find_map(|(each, value)| match value {
            Value::Number(number) if *each == fault => Some(*number),
            Value::Number(_) | Value::None | Value::Word(_) => None,
        })
    }

    /// Returns the arguments of a fault, one for each time it is configured.
    pub(crate) fn words(&self, fault: Fault) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(move |(each, value)| match value {
            Value::Word(word) if *each == fault => Some(word.as_str()),
            Value::Word(_) | Value::None | Value::Number(_) => None,
        })
    }

    pub(crate) fn is(&self, fault: Fault, word: &str) -> bool {
        self.words(fault).any(|each| each == word)
    }
}

fn value(spec: &Spec, given: Option<&str>) -> Result<Value, String> {
    let name = spec.name;
    match (spec.argument, given) {
        (Argument::None, None) => Ok(Value::None),
        (Argument::None, Some(_)) => Err(format!("fault `{name}` takes no argument")),
        (Argument::Number(_, default), None) => Ok(Value::Number(default)),
        (Argument::Number(..), Some(text)) => {
            let number = text
                .parse()
                .map_err(|_| format!("fault `{name}`: `{text}` is no number"));
            Ok(Value::Number(number?))
        }
        (Argument::Text(_, default), given) => Ok(Value::Word(given.unwrap_or(default).into())),
        (Argument::Choice(choices), given) => {
            let word = given.unwrap_or(choices[0]);
            if choices.contains(&word) {
                return Ok(Value::Word(word.into()));
            }
            Err(format!(
                "fault `{name}` takes {}, not `{word}`",
                choices.join(", ")
            ))
        }
    }
}
