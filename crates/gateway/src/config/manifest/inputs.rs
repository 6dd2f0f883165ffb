//! The inputs of a manifest: arguments, variables and headers, fixed or entered by the user, and
//! the resulting questions.
//!
//! Entry points: [`Input::read`], [`Question`], [`Answers`].

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::reader::{Findings, Reader, Wrong};

/// The format of an input's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Any text.
    #[default]
    Text,
    /// A decimal number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A path on the user's machine.
    Path,
}

/// One value for a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    /// Its description.
    pub description: Option<String>,
    /// Whether a value is required.
    pub is_required: bool,
    /// Whether it is a password, a token or the like.
    pub is_secret: bool,
    /// The format of the value.
    pub format: Format,
    /// The fixed value, with `{names}` of its variables.
    pub value: Option<String>,
    /// The default.
    pub default: Option<String>,
    /// An example.
    pub placeholder: Option<String>,
    /// The allowed values; any if it is empty.
    pub choices: Vec<String>,
    /// The variables in the value.
    pub variables: BTreeMap<String, Self>,
    /// Its path in the manifest.
    pub at: String,
}

/// Where the user's value goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// An argument, or a variable in a value: `--arg NAME=VALUE`.
    Arg(String),
    /// An environment variable: `--env NAME=VALUE`.
    Env(String),
    /// A header of a remote server: `--header NAME=VALUE`.
    Header(String),
}

impl Slot {
    /// Returns the flag that sets it.
    pub fn flag(&self) -> String {
        match self {
            Self::Arg(name) => format!("--arg {name}=VALUE"),
            Self::Env(name) => format!("--env {name}=VALUE"),
            Self::Header(name) => format!("--header {name}=VALUE"),
        }
    }

    /// Returns its name for display.
    pub fn name(&self) -> &str {
        match self {
            Self::Arg(name) | Self::Env(name) | Self::Header(name) => name,
        }
    }
}

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Where the answer goes.
    pub slot: Slot,
    /// The input.
    pub input: Input,
    /// Whether several answers are allowed.
    pub is_repeated: bool,
}

impl Question {
    /// Returns whether an answer is required.
    pub fn needs_answer(&self) -> bool {
        self.input.is_required && self.input.default.is_none()
    }

    /// Checks an answer, and returns the value for the server. A path is relative to `folder`.
    pub fn check(&self, answer: &str, folder: Option<&Path>) -> Result<String, String> {
        let Input {
            choices, format, ..
        } = &self.input;
        if answer.contains('\0') {
            return Err("has a NUL character".to_owned());
        }
        if !choices.is_empty() && !choices.iter().any(|choice| choice == answer) {
            return Err(format!("must be one of {}", choices.join(", ")));
        }
        match format {
            Format::Text => Ok(answer.to_owned()),
            Format::Number => {
                let number = answer.parse::<f64>().ok().filter(|n| n.is_finite());
                number
                    .map(|_| answer.to_owned())
                    .ok_or_else(|| "must be a number".to_owned())
            }
            Format::Boolean => match answer {
                "true" | "false" => Ok(answer.to_owned()),
                _ => Err("must be `true` or `false`".to_owned()),
            },
            Format::Path if answer.is_empty() => Err("must be a path".to_owned()),
            Format::Path => match folder {
                Some(folder) => Ok(folder.join(answer).to_string_lossy().into_owned()),
                None => Ok(answer.to_owned()),
            },
        }
    }
}

/// The user's answers, by slot.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    given: BTreeMap<Slot, Vec<String>>,
}

impl Answers {
    /// Adds an answer.
    pub fn give(&mut self, slot: Slot, answer: impl Into<String>) {
        self.given.entry(slot).or_default().push(answer.into());
    }

    /// Returns the answers to a question.
    pub fn of(&self, slot: &Slot) -> &[String] {
        self.given.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Returns every slot with an answer.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.given.keys()
    }
}

impl Input {
    /// Parses the members common to all inputs.
    pub(super) fn read(reader: &mut Reader<'_, '_>, depth: u8) -> Self {
        let mut input = Self {
            description: reader.prose("description"),
            is_required: reader.flag("isRequired"),
            is_secret: reader.flag("isSecret"),
            format: Format::default(),
            value: reader.text("value"),
            default: reader.text("default"),
            placeholder: reader.prose("placeholder"),
            choices: Vec::new(),
            variables: BTreeMap::new(),
            at: reader.at.clone(),
        };
        input.format = match reader.text("format").as_deref() {
            None | Some("string") => Format::Text,
            Some("number") => Format::Number,
            Some("boolean") => Format::Boolean,
            Some("filepath") => Format::Path,
            Some(other) => {
                let why =
                    format!("is `{other}`: there are `string`, `number`, `boolean`, `filepath`");
                reader.wrong("format", why);
                Format::Text
            }
        };
        for (at, choice) in reader.list("choices") {
            match choice.as_str() {
                Some(choice) => input.choices.push(choice.to_owned()),
                None => reader.findings.wrong.push(Wrong::new(at, "must be a text")),
            }
        }
        for text in input
            .value
            .iter()
            .chain(&input.default)
            .chain(&input.choices)
        {
            if text.contains("${") {
                let why = "has `${`: a manifest may not name variables or secrets of this machine";
                reader.findings.wrong.push(Wrong::new(&input.at, why));
            }
        }
        if let (Some(default), false) = (&input.default, input.choices.is_empty())
            && !input.choices.contains(default)
        {
            reader.wrong("default", "is none of the choices");
        }
        if depth == 0 {
            for (name, at, value) in reader.table("variables") {
                if let Some(variable) = Self::read_at(value, &at, reader.findings, 1) {
                    input.variables.insert(name, variable);
                }
            }
        }
        input
    }

    /// Parses an input that is an object of its own.
    pub(super) fn read_at(
        value: &Value,
        at: &str,
        findings: &mut Findings,
        depth: u8,
    ) -> Option<Self> {
        let mut reader = Reader::new(value, at, findings)?;
        let input = Self::read(&mut reader, depth);
        reader.end();
        Some(input)
    }

    /// Returns the questions for this input, whose value goes to `slot` if it is not fixed.
    pub(super) fn questions(&self, slot: &Slot, is_repeated: bool) -> Vec<Question> {
        let Some(value) = &self.value else {
            return vec![Question {
                slot: slot.clone(),
                input: self.clone(),
                is_repeated,
            }];
        };
        let used = self.variables.iter();
        let used = used.filter(|(name, _)| value.contains(&format!("{{{name}}}")));
        let questions = used.map(|(name, variable)| {
            let mut input = variable.clone();
            input.is_secret |= self.is_secret;
            // A variable that is fixed itself needs no question.
            Question {
                slot: Slot::Arg(name.clone()),
                input,
                is_repeated: false,
            }
        });
        questions
            .filter(|question| question.input.value.is_none())
            .collect()
    }

    /// Returns the values of this input; none if it is omitted. Errors are added to `wrong`.
    pub(super) fn values(
        &self,
        slot: &Slot,
        answers: &Answers,
        folder: Option<&Path>,
        wrong: &mut Vec<Wrong>,
    ) -> Vec<String> {
        let mut one = |slot: &Slot, input: &Self| -> Vec<String> {
            let question = Question {
                slot: slot.clone(),
                input: input.clone(),
                is_repeated: true,
            };
            let given = answers.of(slot);
            let given = match (given, &input.default) {
                ([], Some(default)) => std::slice::from_ref(default),
                (given, _) => given,
            };
            if given.is_empty() && input.is_required {
                let why = format!("is required: give `{}`", slot.flag());
                wrong.push(Wrong::new(&input.at, why));
            }
            let checked = given.iter().filter_map(|answer| {
                let checked = question.check(answer, folder);
                checked
                    .map_err(|why| wrong.push(Wrong::new(slot.name(), why)))
                    .ok()
            });
            checked.collect()
        };
        let Some(value) = &self.value else {
            return one(slot, self);
        };
        let mut filled = value.clone();
        for (name, variable) in &self.variables {
            let mark = format!("{{{name}}}");
            if !filled.contains(&mark) {
                continue;
            }
            let text = match &variable.value {
                Some(fixed) => Some(fixed.clone()),
                None => one(&Slot::Arg(name.clone()), variable).pop(),
            };
            match text {
                // One pass: the user's values are not expanded again.
                Some(text) => filled = filled.replace(&mark, &text),
                // Without its variable the whole input is omitted, unless it is required.
                None if self.is_required && !variable.is_required => {
                    let why = format!("needs `{}`", Slot::Arg(name.clone()).flag());
                    wrong.push(Wrong::new(&self.at, why));
                    return Vec::new();
                }
                None => return Vec::new(),
            }
        }
        vec![filled]
    }
}
