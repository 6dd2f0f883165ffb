//! A verb's failure: what is printed, in which order, and the exit code.
//!
//! First the message, then its causes, last the hint. Entry point: [`Failure`].

use std::error::Error;
use std::process::ExitCode;

use gantry_model::diagnose::Diagnose;

use super::screen::Screen;

/// The exit codes that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// The call or the gateway failed.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// No gateway is running.
    NoGateway = 3,
}

/// Why a verb failed.
#[derive(Debug)]
pub(super) struct Failure {
    exit: Exit,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    /// The hint applies to another folder.
    is_elsewhere: bool,
    report: Option<String>,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            causes: Vec::new(),
            hint: None,
            is_elsewhere: false,
            report: None,
        }
    }

    /// A failure with a multi-line report.
    pub(super) fn report(exit: Exit, text: String) -> Self {
        Self {
            report: Some(text),
            ..Self::new(exit, "")
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint whose commands apply to another folder.
    pub(super) fn hint_elsewhere(self, hint: impl Into<String>) -> Self {
        Self {
            is_elsewhere: true,
            ..self.hint(hint)
        }
    }

    pub(super) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    /// Takes message, causes and hint from our own error.
    pub(super) fn of(exit: Exit, error: &dyn Diagnose) -> Self {
        Self {
            exit,
            message: error.to_string(),
            causes: causes_of(error),
            hint: error.hint(),
            is_elsewhere: false,
            report: None,
        }
    }

    /// Takes message and causes from a foreign error.
    pub(super) fn plain(exit: Exit, message: impl Into<String>, error: &dyn Error) -> Self {
        let mut failure = Self::new(exit, message).cause(error.to_string());
        failure.causes.extend(causes_of(error));
        failure
    }

    /// Returns the message without causes.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether no gateway is running.
    pub(super) fn is_no_gateway(&self) -> bool {
        self.exit == Exit::NoGateway
    }

    /// Returns message and causes in one line.
    pub(super) fn in_one_line(&self) -> String {
        let causes = self.causes.iter();
        causes.fold(self.message.clone(), |told, cause| {
            format!("{told}: {cause}")
        })
    }

    /// Returns the hint with its commands completed for this folder.
    fn typed(&self, hint: &str, screen: &Screen) -> String {
        match self.is_elsewhere {
            true => hint.to_owned(),
            false => screen.typed(hint),
        }
    }

    /// Prints it to stderr, after pending log lines, and returns the exit code.
    pub(super) fn show(&self, screen: &Screen) -> ExitCode {
        let screen = screen.for_errors();
        screen.output().flush();
        if let Some(report) = &self.report {
            screen.error_line(report);
            return ExitCode::from(self.exit as u8);
        }
        screen.error_line(&format!(
            "{} {}",
            screen.bad("error:"),
            Screen::safe(&self.message)
        ));
        for cause in &self.causes {
            screen.error_line(&format!("  because: {}", Screen::safe(cause)));
        }
        if let Some(hint) = &self.hint {
            screen.error_line(&format!(
                "{} {}",
                screen.strong("hint:"),
                Screen::safe(&self.typed(hint, &screen))
            ));
        }
        ExitCode::from(self.exit as u8)
    }
}

/// Returns the causes of an error, without those that the one before has said already.
fn causes_of(error: &dyn Error) -> Vec<String> {
    let mut causes = Vec::new();
    let (mut said, mut next) = (error.to_string(), error.source());
    while let Some(source) = next {
        let text = source.to_string();
        if !said.contains(&text) {
            causes.push(text.clone());
        }
        (said, next) = (text, source.source());
    }
    causes
}
