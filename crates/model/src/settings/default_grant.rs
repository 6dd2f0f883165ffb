//! Whom a new server is granted to: nobody, all agents of the project, or some by name.

use serde::{Deserialize, Serialize};

use crate::grant::Principal;
use crate::id::AgentName;

/// Whom a new server is granted to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum DefaultGrant {
    /// Nobody, until somebody grants it.
    #[default]
    None,
    /// Every agent of the project.
    AllAgents,
    /// These agents.
    Agents(Vec<AgentName>),
}

/// It as it is written.
#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "`none`, `all_agents` or a list of agents is expected"
)]
enum Written {
    Word(String),
    Agents(Vec<String>),
}

impl TryFrom<Written> for DefaultGrant {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Word(word) if word == "none" => Ok(Self::None),
            Written::Word(word) if word == "all_agents" => Ok(Self::AllAgents),
            Written::Word(word) => Err(format!("`{}` is neither", word.escape_debug())),
            Written::Agents(names) if names.len() > 100 => Err("more than 100 agents".into()),
            Written::Agents(names) => {
                let names = names.iter().map(|name| name.parse());
                let names = names.collect::<Result<Vec<AgentName>, _>>();
                names.map(Self::Agents).map_err(|error| error.to_string())
            }
        }
    }
}

impl From<DefaultGrant> for Written {
    fn from(to: DefaultGrant) -> Self {
        match to {
            DefaultGrant::None => Self::Word("none".into()),
            DefaultGrant::AllAgents => Self::Word("all_agents".into()),
            DefaultGrant::Agents(names) => {
                Self::Agents(names.iter().map(ToString::to_string).collect())
            }
        }
    }
}

impl DefaultGrant {
    /// Returns whom it names.
    pub fn principals(&self) -> Vec<Principal> {
        match self {
            Self::None => Vec::new(),
            Self::AllAgents => vec![Principal::Project],
            Self::Agents(names) => names.iter().cloned().map(Principal::Agent).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_and_names_are_read_as_they_are_written() {
        for written in [json!("none"), json!("all_agents"), json!(["a", "b"])] {
            let read: DefaultGrant = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), written);
        }
        for bad in [json!("all"), json!(["no name"]), json!(1), json!({})] {
            assert!(
                serde_json::from_value::<DefaultGrant>(bad.clone()).is_err(),
                "{bad}"
            );
        }
    }
}
