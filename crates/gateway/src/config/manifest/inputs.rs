//! The inputs of a manifest: arguments, variables and headers, fixed or to be filled in by a person, and
//! the questions that follow from them.
//!
//! Entry points: [`Input::read`], [`Question`], [`Answers`].

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::reader::{Findings, Reader, Wrong};

/// What may be written as the value of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Any text.
    #[default]
    Text,
    /// A decimal number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A path of the person's machine.
    Path,
}

/// One value that a server is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    /// What it is for.
    pub description: Option<String>,
    /// Whether the server does without it.
    pub is_required: bool,
    /// Whether it is a password, a token or the like.
    pub is_secret: bool,
    /// What may be written.
    pub format: Format,
    /// The value that the manifest fixes, with `{names}` of its variables.
    pub value: Option<String>,
    /// The value if a person says nothing.
    pub default: Option<String>,
    /// An example.
    pub placeholder: Option<String>,
    /// The values there are; any if it is empty.
    pub choices: Vec<String>,
    /// What `{names}` in the value stand for.
    pub variables: BTreeMap<String, Self>,
    /// Where it stands in the manifest.
    pub at: String,
}

/// Where a person's value goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// An argument, or a variable in a value: `--arg NAME=VALUE`.
    Arg(String),
    /// A variable of the environment: `--env NAME=VALUE`.
    Env(String),
    /// A header of a remote server: `--header NAME=VALUE`.
    Header(String),
}

impl Slot {
    /// Returns the flag that fills it.
    pub fn flag(&self) -> String {
        match self {
            Self::Arg(name) => format!("--arg {name}=VALUE"),
            Self::Env(name) => format!("--env {name}=VALUE"),
            Self::Header(name) => format!("--header {name}=VALUE"),
        }
    }

    /// Returns the name as a person knows it.
    pub fn name(&self) -> &str {
        match self {
            Self::Arg(name) | Self::Env(name) | Self::Header(name) => name,
        }
    }
}

/// Something that a person may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Where the answer goes.
    pub slot: Slot,
    /// What is asked for.
    pub input: Input,
    /// Whether there may be several answers.
    pub is_repeated: bool,
}

impl Question {
    /// Tells whether there is no server without an answer.
    pub fn needs_answer(&self) -> bool {
        self.input.is_required && self.input.default.is_none()
    }

    /// Checks an answer, and returns it as the server gets it. A path is seen from `folder`.
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

/// What a person said, by where it goes.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    given: BTreeMap<Slot, Vec<String>>,
}

impl Answers {
    /// Takes an answer.
    pub fn give(&mut self, slot: Slot, answer: impl Into<String>) {
        self.given.entry(slot).or_default().push(answer.into());
    }

    /// Returns the answers to a question.
    pub fn of(&self, slot: &Slot) -> &[String] {
        self.given.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Returns every place that something was given for.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.given.keys()
    }
}

impl Input {
    /// Reads the members that every input has.
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

    /// Reads an input that is an object of its own.
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

    /// Returns what a person may be asked for this input, which goes to `slot` if it is not fixed.
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
            // A variable that is fixed itself is filled in without a question.
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

    /// Returns the values of this input; none if it is left out. `wrong` takes what cannot be used.
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
                // One pass: what a person says is not filled in again.
                Some(text) => filled = filled.replace(&mark, &text),
                // Without its variable the whole is left out, unless it must be there.
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
