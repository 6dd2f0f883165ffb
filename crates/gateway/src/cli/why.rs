//! `gantry why AGENT TOOL`: whether an agent may use a tool, and which grant, filter or server says so.
//!
//! Judges with the very rules that the gateway judges a call with (`model::grant`), over what the
//! gateway says it has. Entry point: [`run`].

use std::process::ExitCode;

use clap::Args;
use gantry_model::grant::{Grant, GrantSet, MethodClass, ToolFilter, Verdict};
use gantry_model::id::ServerName;
use serde_json::{Value, json};

use super::Surroundings;
use super::client::segment;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, pretty, text};
use super::screen::Screen;

/// What `gantry why` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The agent's name
    agent: String,
    /// The tool, as `server__tool` or `server:tool`
    tool: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The answer, with its reasons in the order in which a call meets them.
#[derive(Debug, PartialEq, Eq)]
struct Judgement {
    allowed: bool,
    reasons: Vec<String>,
}

/// Tells; an agent that may not use the tool exits with 1.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let (client, screen) = (surroundings.client(Role::Admin)?, &surroundings.screen);
    let agent = client
        .get(&format!("/api/v1/agents/{}", segment(&options.agent)))
        .await?;
    // An administrator sees every tool there is.
    let tools = client.get_all("/api/v1/tools").await?;
    let is_it =
        |tool: &&Value| text(tool, "/name") == options.tool || text(tool, "/id") == options.tool;
    let known = list(&tools, "/items").iter().find(is_it);
    let (server, tool) = match known {
        Some(known) => (text(known, "/server"), text(known, "/tool")),
        None => split(&options.tool)?,
    };
    let path = format!("/api/v1/mcp/servers/{}", segment(&server));
    let status = client.get(&path).await?;
    let judged = judge(&agent, (&server, &tool), known.is_some(), &status)?;
    if options.json {
        screen.line(&pretty(&json!({
            "agent": options.agent,
            "tool": format!("{server}:{tool}"),
            "allowed": judged.allowed,
            "reasons": judged.reasons,
        })));
    } else {
        let (mark, may) = match judged.allowed {
            true => (screen.good("✓"), "may use"),
            false => (screen.bad("✗"), "may not use"),
        };
        let line = format!("{} {may} {server}:{tool}", options.agent);
        screen.line(&format!("{mark} {}", Screen::safe(&line)));
        for reason in &judged.reasons {
            screen.line(&format!("  {}", Screen::safe(reason)));
        }
    }
    Ok(match judged.allowed {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Exit::Failed as u8),
    })
}

fn split(name: &str) -> Result<(String, String), Failure> {
    let parts = name.split_once(':').or_else(|| name.split_once("__"));
    let parts = parts.filter(|(server, tool)| !server.is_empty() && !tool.is_empty());
    let (server, tool) = parts.ok_or_else(|| {
        Failure::new(Exit::Usage, format!("`{name}` names no tool"))
            .hint("write `server__tool` or `server:tool`")
    })?;
    Ok((server.to_owned(), tool.to_owned()))
}

fn judge(
    agent: &Value,
    (server, tool): (&str, &str),
    is_listed: bool,
    status: &Value,
) -> Result<Judgement, Failure> {
    let name: ServerName = server
        .parse()
        .map_err(|_| Failure::new(Exit::Usage, format!("`{server}` is no name of a server")))?;
    let patterns = |pointer: &str| -> Vec<String> {
        list(agent, pointer)
            .iter()
            .map(|pattern| text(pattern, ""))
            .collect()
    };
    let mut reasons = Vec::new();
    let granting = patterns("/grants")
        .into_iter()
        .find(|pattern| grants(pattern, &name, tool));
    reasons.push(match &granting {
        Some(pattern) => format!("granted by `{pattern}`"),
        None => format!("no grant of `{}` names it", text(agent, "/name")),
    });
    let is_seen = filtered(
        &patterns("/tools/include"),
        &patterns("/tools/exclude"),
        &name,
        tool,
        &mut reasons,
    );
    let is_offered = offered(status, server, tool, is_listed, &mut reasons);
    Ok(Judgement {
        allowed: granting.is_some() && is_seen && is_offered,
        reasons,
    })
}

/// Tells whether one pattern, as the gateway shows it, grants a tool.
fn grants(pattern: &str, server: &ServerName, tool: &str) -> bool {
    let (pattern, alias) = match pattern.split_once(" as ") {
        Some((pattern, alias)) => (pattern, Some(alias)),
        None => (pattern, None),
    };
    let (of, item) = pattern.split_once(':').unwrap_or(("*", pattern));
    let set = Grant::new(of, item, alias).map(|grant| GrantSet::new(vec![grant]));
    set.is_ok_and(|set| set.check(MethodClass::Tool, server, Some(tool)) == Verdict::Allowed)
}

fn filtered(
    include: &[String],
    exclude: &[String],
    server: &ServerName,
    tool: &str,
    reasons: &mut Vec<String>,
) -> bool {
    let names_it = |pattern: &&String| {
        let one = ToolFilter::new([pattern.as_str()], []);
        one.is_ok_and(|filter| filter.allows(server, tool))
    };
    if let Some(pattern) = exclude.iter().find(names_it) {
        reasons.push(format!(
            "hidden by the agent's filter: `{pattern}` is excluded"
        ));
        return false;
    }
    match include.iter().find(names_it) {
        Some(pattern) => reasons.push(format!("`{pattern}` of the agent's filter includes it")),
        None if include.is_empty() => {}
        None => {
            reasons
                .push("hidden by the agent's filter: it is not among what is included".to_owned());
            return false;
        }
    }
    true
}

fn offered(
    status: &Value,
    server: &str,
    tool: &str,
    is_listed: bool,
    reasons: &mut Vec<String>,
) -> bool {
    let excluded = list(status, "/excluded")
        .iter()
        .find(|one| text(one, "/tool") == tool);
    if let Some(excluded) = excluded {
        reasons.push(format!("not offered: {}", text(excluded, "/reason")));
        return false;
    }
    let state = text(status, "/state");
    if is_listed {
        reasons.push(format!("server `{server}` is {state} and offers it"));
        return true;
    }
    match state.as_str() {
        "ready" => reasons.push(format!("server `{server}` has no tool `{tool}`")),
        _ => {
            let why = text(status, "/reason");
            let why = if why.is_empty() {
                why
            } else {
                format!(": {why}")
            };
            let state = state.replace('_', " ");
            reasons.push(format!("server `{server}` is {state}{why}"));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(agent: Value, tool: &str, status: Value, is_listed: bool) -> (bool, String) {
        let judged = judge(&agent, ("files", tool), is_listed, &status).unwrap();
        (judged.allowed, judged.reasons.join("; "))
    }

    #[test]
    fn every_reason_is_told() {
        let ready = || json!({"state": "ready"});
        let agent =
            |grants: Value, tools: Value| json!({"name": "x", "grants": grants, "tools": tools});
        let all = agent(json!(["*"]), json!({}));
        let expected = (
            true,
            "granted by `*`; server `files` is ready and offers it".to_owned(),
        );
        assert_eq!(judged(all.clone(), "read", ready(), true), expected);
        let (allowed, why) = judged(agent(json!(["mail:*"]), json!({})), "read", ready(), true);
        assert!(
            !allowed && why.starts_with("no grant of `x` names it"),
            "{why}"
        );
        let narrow = agent(
            json!(["mail:*", "files:re*"]),
            json!({"exclude": ["files:*"]}),
        );
        let (allowed, why) = judged(narrow, "read", ready(), true);
        assert!(
            !allowed
                && why.contains("granted by `files:re*`; hidden by the agent's filter: `files:*`"),
            "{why}"
        );
        let other = agent(json!(["*"]), json!({"include": ["mail:*"]}));
        assert!(
            judged(other, "read", ready(), true)
                .1
                .contains("not among what is included")
        );
        let excluded = json!({"state": "ready", "excluded": [{"tool": "read", "reason": "its schema is bad"}]});
        assert_eq!(
            judged(all.clone(), "read", excluded, false).1,
            "granted by `*`; not offered: its schema is bad"
        );
        let down = json!({"state": "backing_off", "reason": "exit code 3"});
        assert_eq!(
            judged(all.clone(), "read", down, false).1,
            "granted by `*`; server `files` is backing off: exit code 3"
        );
        assert_eq!(
            judged(all, "fly", ready(), false),
            (
                false,
                "granted by `*`; server `files` has no tool `fly`".to_owned()
            )
        );
    }

    #[test]
    fn a_tool_is_named_in_either_way() {
        let named = ("a".to_owned(), "b".to_owned());
        assert_eq!(split("a__b").unwrap(), named);
        assert_eq!(split("a:b").unwrap(), named);
        assert!(split("ab").is_err() && split("a:").is_err());
    }
}
