//! The file of token issuers: which authorization servers' tokens are accepted, and which agents
//! they map to.
//!
//! Strict: an unknown member, a missing audience or an empty mapping is an error, since a mistake
//! here would grant access. Entry point: [`read`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gantry_engine::{Algorithm, IssuerConfig};
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::{AgentName, ProjectName};
use serde::Deserialize;

/// The longest file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuersError {
    /// It cannot be read.
    #[error("cannot read the token issuers in `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is not valid JSON, or has the wrong structure.
    #[error("the token issuers in `{}` are not valid", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A value is wrong.
    #[error("`{}`, issuer `{issuer}`: {why}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The issuer.
        issuer: String,
        /// The error.
        why: String,
    },
}

impl Diagnose for IssuersError {
    fn code(&self) -> &'static str {
        "config.issuers"
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        Some("see docs/tokens.md for the file's form".to_owned())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    issuers: Vec<Issuer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Issuer {
    url: String,
    audience: String,
    #[serde(default)]
    algorithms: Vec<String>,
    #[serde(default)]
    project: Option<String>,
    #[serde(default = "agent_claim")]
    agent_claim: String,
    agents: BTreeMap<String, String>,
    #[serde(default = "user_claim")]
    user_claim: String,
    #[serde(default)]
    jwks: Option<url::Url>,
    #[serde(default)]
    allow_private: bool,
}

fn agent_claim() -> String {
    "azp".to_owned()
}

fn user_claim() -> String {
    "sub".to_owned()
}

/// Reads the file.
pub fn read(path: &Path) -> Result<Vec<IssuerConfig>, IssuersError> {
    let failed = |source| IssuersError::Read {
        path: path.to_owned(),
        source,
    };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > LONGEST {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let text = fs::read(path).map_err(failed)?;
    let file: File = serde_json::from_slice(&text).map_err(|source| IssuersError::Form {
        path: path.to_owned(),
        source,
    })?;
    let mut read: Vec<IssuerConfig> = Vec::new();
    for issuer in file.issuers {
        let url = issuer.url.clone();
        let value = |why: String| IssuersError::Value {
            path: path.to_owned(),
            issuer: url.clone(),
            why,
        };
        if read.iter().any(|known| known.url == issuer.url) {
            return Err(value("it is listed twice".to_owned()));
        }
        read.push(checked(issuer).map_err(value)?);
    }
    Ok(read)
}

fn checked(issuer: Issuer) -> Result<IssuerConfig, String> {
    let url = url::Url::parse(&issuer.url).map_err(|error| format!("`url`: {error}"))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err("`url` must start with `https://`".to_owned());
    }
    if issuer.audience.is_empty() {
        return Err("`audience` must not be empty: tokens for others would be accepted".to_owned());
    }
    if issuer.agents.is_empty() {
        return Err(
            "`agents` maps no holder to an agent, so no token would be accepted".to_owned(),
        );
    }
    let names = issuer.algorithms.iter();
    let algorithms: Result<Vec<Algorithm>, _> = names.map(|name| name.parse()).collect();
    let mut algorithms = algorithms.map_err(|error| format!("`algorithms`: {error}"))?;
    if algorithms.is_empty() {
        algorithms = vec![Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa];
    }
    let project = match issuer.project {
        None => ProjectName::local(),
        Some(name) => name
            .parse()
            .map_err(|error| format!("`project`: {error}"))?,
    };
    let agents = issuer.agents.into_iter().map(|(holder, agent)| {
        let agent: Result<AgentName, _> = agent.parse();
        let agent = agent.map_err(|error| format!("`agents`: {error}"))?;
        Ok((holder, agent))
    });
    Ok(IssuerConfig {
        url: issuer.url,
        audience: issuer.audience,
        algorithms,
        project,
        agent_claim: issuer.agent_claim,
        agents: agents.collect::<Result<_, String>>()?,
        user_claim: issuer.user_claim,
        jwks: issuer.jwks,
        allow_private: issuer.allow_private,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<IssuerConfig>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read(file.path()).map_err(|error| gantry_model::diagnose::chain(&error).to_string())
    }

    #[test]
    fn a_mistake_is_refused_and_named() {
        let good = r#"{"issuers": [{"url": "https://a.example", "audience": "x", "agents": {"c": "default"}}]}"#;
        let read = of(good).unwrap();
        assert_eq!(
            (read[0].agent_claim.as_str(), read[0].user_claim.as_str()),
            ("azp", "sub")
        );
        for (text, said) in [
            (
                r#"{"issuers": [{"url": "https://a.example", "agents": {"c": "d"}}]}"#,
                "audience",
            ),
            (
                r#"{"issuers": [{"url": "https://a.example", "audience": "", "agents": {"c": "d"}}]}"#,
                "must not be empty",
            ),
            (
                r#"{"issuers": [{"url": "https://a.example", "audience": "x", "agents": {}}]}"#,
                "no token would be accepted",
            ),
            (
                r#"{"issuers": [{"url": "file:///x", "audience": "x", "agents": {"c": "d"}}]}"#,
                "https://",
            ),
            (
                r#"{"issuers": [{"url": "https://a.example", "audience": "x", "agents": {"c": "d"}, "algorithms": ["none"]}]}"#,
                "RS256",
            ),
            (
                r#"{"issuers": [{"url": "https://a.example", "audience": "x", "agents": {"c": "d"}, "algorithms": ["HS256"]}]}"#,
                "RS256",
            ),
            (
                r#"{"issuers": [{"url": "https://a.example", "audience": "x", "agents": {"c": "d"}, "audiance": "y"}]}"#,
                "audiance",
            ),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
