//! The command line of `evilpeer`, parsed into [`Options`].

use std::path::PathBuf;

use super::faults::Faults;
use crate::web::{Kind, Place};

/// Which protocol generations a peer speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Era {
    /// Handshake by `initialize`, versions 2024-11-05 to 2025-11-25.
    Legacy,
    /// Stateless, version 2026-07-28.
    Modern,
    /// Both, as the client asks.
    #[default]
    Dual,
}

impl Era {
    /// Returns the era as `--era` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::Dual => "dual",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        [Self::Legacy, Self::Modern, Self::Dual]
            .into_iter()
            .find(|era| era.name() == text)
            .ok_or_else(|| format!("no era `{text}`: legacy, modern or dual"))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) era: Era,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) tools: usize,
    pub(crate) page: Option<usize>,
    pub(crate) journal: Option<PathBuf>,
    pub(crate) faults: Faults,
    pub(crate) fault_after: u64,
    pub(crate) fault_calls: Option<u64>,
    /// Faults in replies also hit replies to other requests than `tools/call`.
    pub(crate) everywhere: bool,
    pub(crate) seed: u64,
    /// Adds the tools that look around and use things up where it runs.
    pub(crate) inside: bool,
    /// Where it serves HTTP, if it does.
    pub(crate) place: Option<Place>,
    /// Set when this process was started again with signals ignored.
    pub(crate) deaf: bool,
}

pub(crate) enum Command {
    Help,
    Serve(Box<Options>),
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Command, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("`{flag}` needs a value"));
            match flag.as_str() {
                "--help" | "-h" => return Ok(Command::Help),
                "http" => options.place = Some(Place::default()),
                "--port" => options.place()?.port = number(value()?)?,
                "--kind" => options.place()?.kind = Kind::parse(value()?)?,
                "--until-eof" => options.place()?.until_eof = true,
                "--era" => options.era = Era::parse(value()?)?,
                "--name" => options.name = value()?.clone(),
                "--version" => options.version = value()?.clone(),
                "--tools" => options.tools = number(value()?)?,
                "--page" => options.page = Some(number::<usize>(value()?)?.max(1)),
                "--journal" => options.journal = Some(PathBuf::from(value()?)),
                "--fault" => options.faults.add(value()?)?,
                "--fault-after" => options.fault_after = number(value()?)?,
                "--fault-calls" => options.fault_calls = Some(number(value()?)?),
                "--everywhere" => options.everywhere = true,
                "--inside" => options.inside = true,
                "--seed" => options.seed = number(value()?)?,
                "--deaf" => options.deaf = true,
                other => return Err(format!("no flag `{other}`; see `evilpeer --help`")),
            }
        }
        Ok(Command::Serve(Box::new(options)))
    }

    fn place(&mut self) -> Result<&mut Place, String> {
        let place = self.place.as_mut();
        place.ok_or_else(|| "this flag comes after `http`; see `evilpeer --help`".to_owned())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            era: Era::Dual,
            name: "evilpeer".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            tools: 0,
            page: None,
            journal: None,
            faults: Faults::default(),
            fault_after: 0,
            fault_calls: None,
            everywhere: false,
            seed: 1,
            inside: false,
            place: None,
            deaf: false,
        }
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}
