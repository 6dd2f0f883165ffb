//! The values that a manifest leaves open: taken from flags, asked for at a terminal (secrets
//! without echo), or reported as missing. Entry points: [`answers`], [`add_own`], [`confirm`].

use std::io::IsTerminal as _;

use serde_json::{Map, Value};

use super::super::variable;
use super::Given;
use crate::cli::failure::{Exit, Failure};
use crate::cli::prompt;
use crate::config::env::Environment;
use crate::config::manifest::{Answers, Kind, Offer, Question, Slot};

/// How often a question is asked again.
const TRIES: usize = 3;

/// Collects the answers to an offer's questions.
pub(super) fn answers(
    offer: &Offer<'_>,
    args: &[String],
    given: &Given<'_>,
    environment: &Environment,
) -> Result<Answers, Failure> {
    let questions = offer.questions();
    let mut answers = Answers::default();
    for arg in args {
        // Without a value it is a flag alone.
        let (name, value) = arg.split_once('=').unwrap_or((arg, ""));
        let slot = Slot::Arg(name.trim_start_matches('-').to_owned());
        if !questions.iter().any(|question| question.slot == slot) {
            return Err(unknown(name, &questions));
        }
        answers.give(slot, value);
    }
    for pair in given.env {
        let (name, value) = variable(pair, environment)?;
        let slot = Slot::Env(name.to_owned());
        if questions.iter().any(|question| question.slot == slot) {
            answers.give(slot, value);
        }
    }
    for pair in given.header {
        let (name, value) = header(pair)?;
        let known = questions.iter().find(|question| {
            matches!(&question.slot, Slot::Header(known) if known.eq_ignore_ascii_case(name))
        });
        if let Some(question) = known {
            answers.give(question.slot.clone(), value);
        }
    }
    for question in &questions {
        let said = answers.of(&question.slot);
        if said.len() > 1 && !question.is_repeated {
            let message = format!("`{}` is given more than once", question.slot.name());
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    let open: Vec<&Question> = questions
        .iter()
        .filter(|question| question.input.is_required && answers.of(&question.slot).is_empty())
        .collect();
    if !prompt::is_possible() {
        let missing: Vec<&&Question> = open.iter().filter(|open| open.needs_answer()).collect();
        return match missing.is_empty() {
            true => Ok(answers),
            false => Err(not_said(&missing)),
        };
    }
    for question in open {
        let answer = ask(question)?;
        answers.give(question.slot.clone(), answer);
    }
    Ok(answers)
}

fn ask(question: &Question) -> Result<String, Failure> {
    let input = &question.input;
    let mut text = question.slot.name().to_owned();
    let aside = [
        input.description.clone(),
        (!input.choices.is_empty()).then(|| format!("one of {}", input.choices.join(", "))),
        input
            .placeholder
            .as_ref()
            .map(|text| format!("such as {text}")),
    ];
    let aside: Vec<String> = aside.into_iter().flatten().collect();
    if !aside.is_empty() {
        text = format!("{text} ({})", aside.join("; "));
    }
    if let (Some(default), false) = (&input.default, input.is_secret) {
        text = format!("{text} [{default}]");
    }
    for _ in 0..TRIES {
        let answer = match input.is_secret {
            true => prompt::secret(&text),
            false => prompt::text(&text),
        };
        let answer = answer.ok_or_else(|| not_said(&[&question]))?;
        let answer = match (&input.default, answer.is_empty()) {
            (Some(default), true) => default.clone(),
            _ => answer,
        };
        if answer.is_empty() {
            continue;
        }
        match question.check(&answer, None) {
            Ok(_) => return Ok(answer),
            Err(why) => prompt::say(&format!("{} {why}", question.slot.name())),
        }
    }
    Err(not_said(&[&question]))
}

fn not_said(missing: &[&&Question]) -> Failure {
    let message = "the manifest needs values that were not given";
    let failure = Failure::new(Exit::Usage, message);
    missing.iter().fold(failure, |failure, question| {
        let what = question.input.description.clone().unwrap_or_default();
        let line = format!("`{}` {what}", question.slot.flag());
        failure.cause(line.trim_end().to_owned())
    })
}

fn unknown(name: &str, questions: &[Question]) -> Failure {
    let known: Vec<&str> = questions
        .iter()
        .filter(|question| matches!(question.slot, Slot::Arg(_)))
        .map(|question| question.slot.name())
        .collect();
    let failure = Failure::new(
        Exit::Usage,
        format!("the manifest has no open argument `{name}`"),
    );
    match known.is_empty() {
        true => failure.hint("it fixes all arguments"),
        false => failure.hint(format!("the open ones are {}", known.join(", "))),
    }
}

/// Adds variables and headers that the manifest does not name; those that it sets cannot be
/// changed.
pub(super) fn add_own(
    entry: &mut Map<String, Value>,
    offer: &Offer<'_>,
    given: &Given<'_>,
    environment: &Environment,
) -> Result<(), Failure> {
    let (table, is_remote) = match offer.kind {
        Kind::Remote => ("headers", true),
        Kind::Oci | Kind::Npm | Kind::PyPi => ("env", false),
    };
    let misplaced = match is_remote {
        true => (!given.env.is_empty()).then_some("a remote server has no environment"),
        false => (!given.header.is_empty()).then_some("only a remote server has headers"),
    };
    if let Some(why) = misplaced {
        return Err(Failure::new(Exit::Usage, why));
    }
    let asked: Vec<Slot> = offer
        .questions()
        .into_iter()
        .map(|question| question.slot)
        .collect();
    let Some(Value::Object(members)) = entry.get_mut(table) else {
        return Ok(());
    };
    for pair in given.env.iter().chain(given.header) {
        let (name, value) = match is_remote {
            true => header(pair)?,
            false => variable(pair, environment)?,
        };
        let is_asked = asked.iter().any(|slot| match slot {
            Slot::Env(known) => !is_remote && known == name,
            Slot::Header(known) => is_remote && known.eq_ignore_ascii_case(name),
            Slot::Arg(_) => false,
        });
        if is_asked {
            continue;
        }
        if members.keys().any(|known| known.eq_ignore_ascii_case(name)) {
            let message = format!("the manifest fixes `{name}`");
            return Err(Failure::new(Exit::Usage, message));
        }
        members.insert(name.to_owned(), value.into());
    }
    Ok(())
}

fn header(pair: &str) -> Result<(&str, &str), Failure> {
    let parts = pair.split_once('=').filter(|(name, _)| !name.is_empty());
    parts.ok_or_else(|| {
        Failure::new(Exit::Usage, format!("`{pair}` is not a header"))
            .hint("write `--header NAME=VALUE`")
    })
}

/// Asks for confirmation to add what was shown.
pub(super) fn confirm(yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !prompt::is_possible() || !std::io::stderr().is_terminal() {
        return Err(Failure::new(Exit::Usage, "not a terminal: pass --yes")
            .hint("what would be added is shown above"));
    }
    match prompt::yes("Add it?") {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, "nothing was added")),
    }
}
