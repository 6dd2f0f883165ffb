//! `gantry add --from FILE|URL|NAME[@VERSION]`: adds a server from a manifest of the MCP registry.
//! Chooses a package or remote, asks for missing values, shows everything, and builds the entry.
//!
//! Entry point: [`read`].

mod ask;
mod shown;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gantry_engine::{FetchLimits, fetch};
use gantry_model::id::ServerName;
use serde_json::{Map, Value};

use crate::cli::CliContext;
use crate::cli::failure::{Exit, Failure};
use crate::cli::find::working_folder;
use crate::cli::mcp_registry::{McpRegistry, unfetched};
use crate::config::env::Environment;
use crate::config::manifest::{Kind, Manifest, Offer, Wrong, is_server_name};

/// The maximum size of a manifest, and the timeout of fetching it.
const LIMITS: FetchLimits = FetchLimits {
    bytes: 1 << 20,
    within: Duration::from_secs(30),
};

/// Where a server is described.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers of the MCP registry")]
pub(in crate::cli) struct From {
    /// Add what a `server.json` describes: a file, a URL, or a name in the MCP registry
    #[arg(long = "from", value_name = "FILE|URL|NAME[@VERSION]",
        conflicts_with_all = ["address", "command", "image"])]
    pub(super) source: Option<String>,
    /// Which kind of package to use [default: the best that works here]
    #[arg(long, value_enum, requires = "source")]
    package: Option<PackageFlag>,
    /// An argument, or a variable in one; may be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "source")]
    arg: Vec<String>,
    /// The URL of the MCP registry [default: `GANTRY_MCP_REGISTRY`, then `mcp_registry` of `[gateway]`]
    #[arg(long, value_name = "URL", requires = "source")]
    registry: Option<String>,
    /// Add it without asking, after it was shown
    #[arg(long, short, requires = "source")]
    yes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PackageFlag {
    Npm,
    Pypi,
    Oci,
    Remote,
}

impl PackageFlag {
    fn kind(self) -> Kind {
        match self {
            Self::Npm => Kind::Npm,
            Self::Pypi => Kind::PyPi,
            Self::Oci => Kind::Oci,
            Self::Remote => Kind::Remote,
        }
    }
}

/// The other flags of `gantry add`.
pub(super) struct Given<'a> {
    pub(super) name: Option<&'a ServerName>,
    pub(super) env: &'a [String],
    pub(super) header: &'a [String],
    /// Members that flags of `gantry add` set in the entry.
    pub(super) members: Map<String, Value>,
    pub(super) json: bool,
}

/// Reads the manifest, completes it with the user's answers, and returns name and entry.
pub(super) async fn read(
    from: &From,
    given: &Given<'_>,
    context: &CliContext,
) -> Result<(ServerName, Map<String, Value>), Failure> {
    let source = from.source.as_deref().unwrap_or_default();
    let (manifest, warning) = manifest(source, from, context).await?;
    let name = match given.name {
        Some(name) => name.clone(),
        None => name_of(&manifest)?,
    };
    let offers = manifest.offers();
    let (offer, skipped) = choose(&offers, from.package, context)?;
    let answers = ask::answers(&offer, &from.arg, given, &context.environment);
    // Who is asked for the values of a second choice is told why it is not the first.
    let answers = answers.map_err(|failure| {
        let skipped = skipped.iter().map(|skipped| format!("not used: {skipped}"));
        skipped.fold(failure, Failure::cause)
    })?;
    let folder = working_folder()?;
    let entry = offer.entry(&answers, &folder).map_err(|wrong| {
        refused(
            "what was given does not fit the manifest",
            &wrong,
            Exit::Usage,
        )
    })?;
    let mut entry = entry;
    ask::add_own(&mut entry, &offer, given, &context.environment)?;
    entry
        .entry("description")
        .or_insert_with(|| manifest.description.as_str().into());
    for (member, value) in &given.members {
        entry.insert(member.clone(), value.clone());
    }
    // With `--json` stdout is for a program, so questions and explanations go to stderr.
    let screen = match given.json {
        true => context.screen.beside_stdout(),
        false => context.screen,
    };
    shown::show(&shown::Shown {
        manifest: &manifest,
        name: &name,
        offer: &offer,
        entry: &entry,
        skipped: &skipped,
        warning: warning.as_deref(),
        screen: &screen,
    });
    ask::confirm(from.yes)?;
    Ok((name, entry))
}

/// Reads the manifest; also returns the registry's warnings.
async fn manifest(
    source: &str,
    from: &From,
    context: &CliContext,
) -> Result<(Manifest, Option<String>), Failure> {
    let unusable = |wrong: Vec<Wrong>| refused("the manifest cannot be used", &wrong, Exit::Failed);
    if source.starts_with("https://") || source.starts_with("http://") {
        let fetched = fetch(source, LIMITS)
            .await
            .map_err(|error| unfetched(&error))?;
        if fetched.status != 200 {
            let message = format!("`{source}` answered {}", fetched.status);
            return Err(Failure::new(Exit::Failed, message));
        }
        return Ok((Manifest::parse(&fetched.body).map_err(unusable)?, None));
    }
    let (name, version) = match source.rsplit_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (source, None),
    };
    let is_path = source.ends_with(".json") || source.starts_with(['.', '/', '~']);
    if is_server_name(name) && !is_path && !Path::new(source).exists() {
        let registry = McpRegistry::configured(from.registry.as_deref(), context)?;
        let listed = registry.server(name, version).await?;
        let warning = match listed.status.as_str() {
            "deleted" => {
                let message = format!("`{name}` was taken out of the registry");
                return Err(Failure::new(Exit::Failed, message).cause(listed.status_message));
            }
            "" | "active" => None,
            status => Some(format!(
                "the registry calls it {status}. {}",
                listed.status_message
            )),
        };
        return Ok((Manifest::of(&listed.manifest).map_err(unusable)?, warning));
    }
    let text = read_file(Path::new(source))?;
    Ok((Manifest::parse(&text).map_err(unusable)?, None))
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: &std::io::Error| {
        let message = format!("cannot read `{}`", path.display());
        Failure::plain(Exit::Failed, message, error)
    };
    let file = File::open(path).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        let message = format!("`{}` is not a file", path.display());
        return Err(Failure::new(Exit::Failed, message));
    }
    let mut text = Vec::new();
    let limit = LIMITS.bytes as u64 + 1;
    file.take(limit)
        .read_to_end(&mut text)
        .map_err(|error| failed(&error))?;
    Ok(text)
}

/// Derives a server's name from that of its manifest.
fn name_of(manifest: &Manifest) -> Result<ServerName, Failure> {
    let last = manifest.name.rsplit('/').next().unwrap_or_default();
    let name: String = last
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let name = name.trim_matches('-').replace("--", "-");
    name.parse().map_err(|_| {
        Failure::new(
            Exit::Usage,
            format!("`{last}` is not a name for a server here"),
        )
        .hint("give one: `gantry add NAME --from …`")
    })
}

/// Chooses what to run the server from; returns why better choices were skipped.
fn choose<'m>(
    offers: &[crate::config::manifest::Offered<'m>],
    wanted: Option<PackageFlag>,
    context: &CliContext,
) -> Result<(Offer<'m>, Vec<String>), Failure> {
    let wanted = wanted.map(PackageFlag::kind);
    let mut passed = Vec::new();
    let mut missing = Vec::new();
    let considered = offers
        .iter()
        .filter(|offered| wanted.is_none() || offered.kind == wanted);
    for offered in considered {
        match &offered.offer {
            Ok(offer) => {
                let program = offer.kind.program();
                let lacks = program.filter(|program| {
                    // The programs on another gateway's machine are unknown here.
                    context.url.is_none() && !has_program(&context.environment, program)
                });
                match lacks {
                    Some(program) if wanted.is_none() => {
                        missing.push(format!("{}: `{program}` is not on the PATH", offered.what));
                    }
                    Some(_) | None => {
                        passed.extend(missing);
                        return Ok((offer.clone(), passed));
                    }
                }
            }
            Err(wrong) => {
                let why: Vec<String> = wrong.iter().map(ToString::to_string).collect();
                passed.push(format!("{}: {}", offered.what, why.join("; ")));
            }
        }
    }
    passed.extend(missing);
    let message = match wanted {
        Some(kind) if passed.is_empty() => {
            format!("the manifest has nothing for `--package {}`", kind.as_str())
        }
        Some(_) | None => "nothing of the manifest can be run here".to_owned(),
    };
    let failure = Failure::new(Exit::Failed, message);
    Err(passed.into_iter().fold(failure, Failure::cause))
}

/// Returns whether a program is in a folder of the `PATH`.
fn has_program(environment: &Environment, program: &str) -> bool {
    let path = environment.get("PATH").unwrap_or_default();
    let mut folders = path.split(':').filter(|folder| folder.starts_with('/'));
    folders.any(|folder| Path::new(folder).join(program).is_file())
}

fn refused(message: &str, wrong: &[Wrong], exit: Exit) -> Failure {
    let failure = Failure::new(exit, message);
    let shown = wrong.iter().take(20).map(ToString::to_string);
    shown.fold(failure, Failure::cause)
}
