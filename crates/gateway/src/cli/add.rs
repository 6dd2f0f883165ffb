//! `gantry add NAME -- COMMAND ARGS…`, `gantry add NAME --image IMAGE`, `gantry add NAME URL` or `gantry add
//! --from MANIFEST`: registers a server with the running gateway and starts it.
//!
//! It is stored in the data folder, not in a file; `gantry rm` removes it.

mod from;
mod hosting;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gantry_model::id::ServerName;
use gantry_model::spec::check_url;
use serde_json::{Map, Value, json};

use crate::config::docker_run;
use crate::config::env::Environment;

use super::CliContext;
use super::await_server;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{count, folder, here, number, pretty, text, time_span};
use super::grant::ungranted;
use super::screen::Screen;

/// How long a command or a remote server may take to be ready.
const WAIT: Duration = Duration::from_secs(90);
/// How long an image may take, which is pulled first.
const WAIT_FOR_IMAGE: Duration = Duration::from_secs(15 * 60);

const USAGE: &str = "gantry add [OPTIONS] <NAME> -- <COMMAND> [ARGUMENT]...
       gantry add [OPTIONS] <NAME> <URL>
       gantry add [OPTIONS] <NAME> --image <IMAGE> [-- ARGUMENT...]
       gantry add [OPTIONS] [NAME] --from <FILE|URL|NAME[@VERSION]>";

/// What `gantry add` takes.
#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub(super) struct Options {
    /// The name that clients see [default with `--from`: the last part of the manifest's name]
    #[arg(required_unless_present = "source")]
    name: Option<ServerName>,
    /// The URL of a remote server
    #[arg(value_name = "URL", required_unless_present_any = ["command", "image", "source"],
        conflicts_with_all = ["command", "env", "cwd", "profile"], value_parser = web_address)]
    address: Option<String>,
    /// A header for a remote server; may be given several times
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["command", "image"])]
    header: Vec<String>,
    /// The transport of a remote server
    #[arg(long, value_enum, default_value_t = TransportFlag::Auto, requires = "address")]
    transport: TransportFlag,
    /// The HTTP proxy for a remote server
    #[arg(long, value_name = "URL", requires = "address")]
    proxy: Option<String>,
    /// Allow the URL to resolve to a private address
    #[arg(long, requires = "address")]
    allow_private: bool,
    /// An environment variable, as `NAME=VALUE`, or as `NAME` with its value here; may be given
    /// several times
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The folder it runs in
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Its isolation profile: `local` as a program of your own, `hosted` sandboxed, no network
    #[arg(long, value_enum, default_value_t = ProfileFlag::Local)]
    profile: ProfileFlag,
    /// Start it with the gateway (eager), or on first use (lazy)
    #[arg(long, value_enum, default_value_t = StartFlag::Eager)]
    start: StartFlag,
    /// A description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// The number of concurrent calls
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Time limit of a call
    #[arg(long, value_name = "TIME", value_parser = time_text)]
    timeout: Option<String>,
    /// Grant everything it offers to this agent; may be given several times
    #[arg(long, value_name = "AGENT")]
    grant: Vec<String>,
    /// Do not wait until it is ready
    #[arg(long)]
    no_wait: bool,
    /// Time limit until it is ready [default: 90s, 15m for an image]
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    wait: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hosting: hosting::Hosting,
    #[command(flatten)]
    from: from::From,
    /// The command and its arguments, after `--`; for an image its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProfileFlag {
    Local,
    Hosted,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TransportFlag {
    Auto,
    StreamableHttp,
    Sse,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StartFlag {
    Eager,
    Lazy,
}

/// Registers the server; if it fails to start, exits with 1 and the server stays registered.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    // Without a gateway it fails here, before any question is asked.
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let body = match &options.from.source {
        Some(_) => Box::pin(of_manifest(options, context)).await?,
        None => body(options, &context.environment)?,
    };
    let mut server = client.post("/api/v1/mcp/servers", Some(&body)).await?;
    if !options.no_wait {
        let wait = options.wait.unwrap_or(match body.get("image") {
            Some(_) => WAIT_FOR_IMAGE,
            None => WAIT,
        });
        let name = text(&body, "/name");
        let settled = await_server::settled(&client, &name, screen, wait).await;
        server =
            settled.map_err(|failure| failure.cause("it stays registered and is tried again"))?;
    }
    for agent in &options.grant {
        let grant = json!({"agent": agent, "server": text(&server, "/name"), "item": "*"});
        client.post("/api/v1/grants", Some(&grant)).await?;
    }
    if options.json {
        screen.line(&pretty(&server));
        return Ok(ExitCode::SUCCESS);
    }
    let (name, state) = (text(&server, "/name"), text(&server, "/state"));
    let line = match state.as_str() {
        "ready" => {
            let tools = number(&server, "/tools").unwrap_or_default();
            format!("{name} is ready, {}", count(tools, "tool"))
        }
        "idle" => format!("{name} is registered and starts with its first use"),
        _ => format!("{name} is {state}"),
    };
    screen.line(&Screen::safe(&line));
    for agent in &options.grant {
        screen.line(&Screen::safe(&format!("{agent} may use {name}:*")));
    }
    let shown = format!("server `{name}`");
    for warning in ungranted(&client).await? {
        if warning.contains(&shown) {
            screen.advise(&Screen::safe(&warning));
        }
    }
    offer(options, screen);
    Ok(ExitCode::SUCCESS)
}

/// Checks a time, and returns it as it is written.
fn time_text(text: &str) -> Result<String, String> {
    time_span(text).map(|_| text.to_owned())
}

/// Parses the URL of a server; a command in its place is refused.
fn web_address(text: &str) -> Result<String, String> {
    match check_url(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!(
            "{error}; a command goes after `--`: `gantry add NAME -- COMMAND`"
        )),
    }
}

/// Parses headers, each as `NAME=VALUE` or, as HTTP writes them, `NAME: VALUE`.
fn headers(given: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut pairs = Map::new();
    for pair in given {
        let (name, value) = pair
            .split_once(['=', ':'])
            .map(|(name, value)| (name.trim(), value.trim_start()))
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                Failure::new(Exit::Usage, format!("`{pair}` is not a header"))
                    .hint("write `--header NAME=VALUE`")
            })?;
        pairs.insert(name.to_owned(), value.into());
    }
    Ok(pairs)
}

/// Returns the body of a registration from a manifest.
async fn of_manifest(options: &Options, context: &CliContext) -> Result<Value, Failure> {
    let mut members = options.hosting.members();
    members.insert("start".to_owned(), options.start.as_str().into());
    for (name, value) in options.common() {
        members.insert(name.to_owned(), value);
    }
    let given = from::Given {
        name: options.name.as_ref(),
        env: &options.env,
        header: &options.header,
        members,
        json: options.json,
    };
    let (name, mut entry) = from::read(&options.from, &given, context).await?;
    if entry.contains_key("command") {
        entry.insert("profile".to_owned(), options.profile.as_str().into());
    }
    entry.insert("name".to_owned(), name.as_str().into());
    Ok(Value::Object(entry))
}

impl ProfileFlag {
    fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Hosted => "hosted",
        }
    }
}

impl StartFlag {
    fn as_str(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Lazy => "lazy",
        }
    }
}

impl Options {
    /// Returns the members that the flags for all kinds of servers set.
    fn common(&self) -> Vec<(&'static str, Value)> {
        let cwd = self.cwd.as_ref().map(|cwd| match self.hosting.image {
            // A folder inside the image.
            Some(_) => cwd.to_string_lossy().into(),
            None => folder(cwd).into(),
        });
        let members = [
            ("description", self.description.clone().map(Value::from)),
            ("concurrency", self.concurrency.map(Value::from)),
            ("timeout", self.timeout.clone().map(Value::from)),
            ("proxy", self.proxy.clone().map(Value::from)),
            ("cwd", cwd),
        ];
        let given = members.into_iter();
        given
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

fn body(options: &Options, environment: &Environment) -> Result<Value, Failure> {
    let start = options.start.as_str();
    if options.address.is_none() && !options.header.is_empty() {
        let message = "`--header` is for a remote server";
        return Err(Failure::new(Exit::Usage, message));
    }
    let name = options.name.as_ref().map(ServerName::as_str);
    let mut body = match &options.address {
        Some(url) => json!({
            "name": name,
            "url": url,
            "headers": headers(&options.header)?,
            "transport": match options.transport {
                TransportFlag::Auto => "auto",
                TransportFlag::StreamableHttp => "streamable-http",
                TransportFlag::Sse => "sse",
            },
            "allow_private": options.allow_private,
            "start": start,
        }),
        None if options.hosting.image.is_some() => json!({
            "name": name,
            "args": options.command,
            "env": variables(options, environment)?,
            "start": start,
        }),
        None => {
            let mut words = options.command.iter();
            let command = words.next().map(|word| here(word)).unwrap_or_default();
            let env = variables(options, environment)?;
            json!({
                "name": name,
                "command": command,
                "args": words.collect::<Vec<_>>(),
                "env": env,
                "profile": options.profile.as_str(),
                "start": start,
            })
        }
    };
    for (name, value) in options.common() {
        body[name] = value;
    }
    for (name, value) in options.hosting.members() {
        body[name] = value;
    }
    Ok(body)
}

fn variables(options: &Options, environment: &Environment) -> Result<Map<String, Value>, Failure> {
    let mut env = Map::new();
    for given in &options.env {
        let (name, value) = variable(given, environment)?;
        env.insert(name.to_owned(), value.into());
    }
    Ok(env)
}

/// Suggests running the image of a `docker run` command with Gantry itself.
fn offer(options: &Options, screen: &Screen) {
    let Some((command, args)) = options.command.split_first() else {
        return;
    };
    if options.hosting.image.is_some() {
        return;
    }
    if let Some(Ok(run)) = docker_run::read(command, args) {
        let name = options.name.as_ref().map_or("NAME", ServerName::as_str);
        let line = format!(
            "Gantry can run this image itself, without `{}`: `gantry add {name} --image {}`",
            run.engine, run.image
        );
        screen.advise(&format!("{} {}", screen.doubtful("!"), Screen::safe(&line)));
    }
}

/// Parses a `--env` value. Without `=VALUE` the value comes from our own environment, so that a
/// secret need not be on a command line.
fn variable<'a>(
    given: &'a str,
    environment: &'a Environment,
) -> Result<(&'a str, &'a str), Failure> {
    let (name, value) = match given.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (given, environment.get(given)),
    };
    if name.is_empty() {
        let message = format!("`{given}` is not a variable");
        return Err(Failure::new(Exit::Usage, message).hint("write `--env NAME=VALUE`"));
    }
    let value = value.ok_or_else(|| {
        let message = format!("there is no variable `{name}` in the environment");
        Failure::new(Exit::Usage, message)
            .hint(format!("set it first, or write `--env {name}=VALUE`"))
    })?;
    Ok((name, value))
}
