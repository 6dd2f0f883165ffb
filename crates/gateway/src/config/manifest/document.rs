//! The structure of a manifest, parsed strictly. Entry point: [`Manifest::parse`].

use std::collections::BTreeMap;

use gantry_model::jsonrpc::{self, Limits};
use serde_json::Value;

use super::inputs::Input;
use super::reader::{Findings, Reader, Wrong};

/// The longest manifest, in bytes.
const LONGEST: usize = 1 << 20;
/// How many unknown members are listed.
const MOST_NOTES: usize = 5;
/// The hint for an invalid name.
pub const NAME_HELP: &str = "a name looks like `io.github.owner/server`";

/// A server as its publisher describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its name in registries, such as `io.github.owner/server`.
    pub name: String,
    /// Its display name.
    pub title: Option<String>,
    /// Its description.
    pub description: String,
    /// Its version.
    pub version: String,
    /// The URL of its source code.
    pub repository: Option<String>,
    /// Its home page.
    pub website: Option<String>,
    /// Packages that can be run here.
    pub(super) packages: Vec<Package>,
    /// Remote servers.
    pub(super) remotes: Vec<Remote>,
    /// Notes for the user about the manifest.
    pub notes: Vec<String>,
}

/// A package that can be fetched and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) registry_type: String,
    pub(super) base_url: Option<String>,
    pub(super) identifier: String,
    pub(super) version: Option<String>,
    pub(super) has_hash: bool,
    pub(super) runtime_hint: Option<String>,
    pub(super) transport: Transport,
    pub(super) runtime_arguments: Vec<Argument>,
    pub(super) package_arguments: Vec<Argument>,
    pub(super) variables: Vec<KeyValue>,
    pub(super) at: String,
}

/// The transport of a package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Transport {
    pub(super) kind: TransportKind,
    pub(super) url: Option<String>,
    pub(super) headers: Vec<KeyValue>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TransportKind {
    #[default]
    Stdio,
    StreamableHttp,
    Sse,
}

impl TransportKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::StreamableHttp => "streamable-http",
            Self::Sse => "sse",
        }
    }
}

/// A remote server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) transport: Transport,
    pub(super) variables: BTreeMap<String, Input>,
    pub(super) at: String,
}

/// A command-line argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) place: Place,
    pub(super) is_repeated: bool,
    pub(super) input: Input,
}

/// The kind of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Positional; the name is informative.
    Positional(String),
    /// After its flag.
    Named(String),
}

/// An environment variable or a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyValue {
    pub(super) name: String,
    pub(super) input: Input,
}

/// Returns whether a text is a server name in a registry.
pub fn is_server_name(text: &str) -> bool {
    let is_part = |part: &str, more: &[char]| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-' || more.contains(&c))
    };
    (3..=200).contains(&text.len())
        && text
            .split_once('/')
            .is_some_and(|(space, name)| is_part(space, &[]) && is_part(name, &['_']))
}

impl Manifest {
    /// Parses a manifest; a registry's wrapper is removed.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<Wrong>> {
        let whole = |why: String| vec![Wrong::new("", why)];
        if text.len() > LONGEST {
            return Err(whole("the manifest is over 1 MiB long".to_owned()));
        }
        let text = std::str::from_utf8(text);
        let text = text.map_err(|_| whole("the manifest is not UTF-8".to_owned()))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let valid = jsonrpc::validate(text, &Limits::default());
        valid.map_err(|error| whole(format!("the manifest is not valid JSON: {error}")))?;
        let value: Value = serde_json::from_str(text)
            .map_err(|error| whole(format!("the manifest is not valid JSON: {error}")))?;
        Self::of(&value)
    }

    /// Parses a manifest from a JSON value.
    pub fn of(value: &Value) -> Result<Self, Vec<Wrong>> {
        let value = match value.get("server") {
            Some(server) if value.get("name").is_none() => server,
            _ => value,
        };
        let mut findings = Findings::default();
        let manifest = Self::read(value, &mut findings);
        match manifest {
            Some(mut manifest) if findings.wrong.is_empty() => {
                manifest.note_unknown(&findings.unknown);
                Ok(manifest)
            }
            _ => Err(findings.wrong),
        }
    }

    fn note_unknown(&mut self, unknown: &[String]) {
        if unknown.is_empty() {
            return;
        }
        let names = unknown.iter().take(MOST_NOTES);
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let more = match unknown.len().saturating_sub(MOST_NOTES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        self.notes.push(format!(
            "members that Gantry does not know are left out: {}{more}",
            names.join(", ")
        ));
    }

    fn read(value: &Value, findings: &mut Findings) -> Option<Self> {
        let mut reader = Reader::new(value, "", findings)?;
        let name = reader.required("name");
        let is_old = value.get("version_detail").is_some();
        let version = match is_old {
            true => {
                let why = "is a manifest of a schema before 2025-09-16, which is not supported; ask its \
                           publisher for one of the current schema";
                reader.wrong("version_detail", why);
                None
            }
            false => reader.required("version"),
        };
        let description = match reader.member("description") {
            None => {
                reader.wrong("description", "is missing");
                None
            }
            Some(_) => reader.prose("description"),
        };
        let title = reader.prose("title");
        let website = reader.text("websiteUrl");
        for known in ["$schema", "_meta", "icons", "status"] {
            reader.member(known);
        }
        let repository = reader.member("repository");
        let packages = reader.list("packages");
        let remotes = reader.list("remotes");
        if let Some(name) = &name
            && !is_server_name(name)
        {
            reader.wrong("name", format!("is not a server's name: {NAME_HELP}"));
        }
        if let Some(version) = &version
            && !is_exact_version(version)
        {
            reader.wrong("version", "must be one exact version, not a range");
        }
        if packages.is_empty() && remotes.is_empty() {
            reader.wrong(
                "packages",
                "and `remotes` are empty: there is nothing to run",
            );
        }
        reader.end();
        let repository = repository.and_then(|value| repository_url(value, findings));
        let packages = packages
            .into_iter()
            .filter_map(|(at, value)| Package::read(value, &at, findings));
        let packages: Vec<Package> = packages.collect();
        let remotes = remotes
            .into_iter()
            .filter_map(|(at, value)| Remote::read(value, &at, findings));
        let remotes: Vec<Remote> = remotes.collect();
        Some(Self {
            name: name?,
            title,
            description: description?,
            version: version?,
            repository,
            website,
            packages,
            remotes,
            notes: Vec::new(),
        })
    }
}

fn repository_url(value: &Value, findings: &mut Findings) -> Option<String> {
    let mut reader = Reader::new(value, "repository", findings)?;
    let url = reader.text("url");
    for known in ["source", "id"] {
        reader.member(known);
    }
    let folder = reader.text("subfolder");
    let is_clean = |folder: &String| {
        !folder.starts_with('/') && !folder.split(['/', '\\']).any(|part| part == "..")
    };
    if folder.is_some_and(|folder| !is_clean(&folder)) {
        reader.wrong("subfolder", "points outside of the repository");
    }
    reader.end();
    url
}

/// Returns whether a version is exact: not a range, not a tag.
pub(super) fn is_exact_version(version: &str) -> bool {
    let mut chars = version.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphanumeric());
    let rest = version
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '!'));
    let is_wild = version
        .split(['.', '-', '+'])
        .any(|part| part.eq_ignore_ascii_case("x"));
    first && rest && !is_wild && version != "latest" && version.len() <= 255
}

impl Package {
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        let mut reader = Reader::new(value, at, findings)?;
        if value.get("registry_type").is_some() || value.get("registry_name").is_some() {
            let why = "is written in an older schema (`registry_type`), which is not supported";
            reader.wrong("registryType", why);
            return None;
        }
        let registry_type = reader.required("registryType");
        let identifier = reader.required("identifier");
        let version = reader.text("version");
        let base_url = reader.text("registryBaseUrl");
        let runtime_hint = reader.text("runtimeHint");
        let has_hash = reader.text("fileSha256").is_some();
        let transport = match reader.member("transport") {
            None => {
                reader.wrong("transport", "is missing");
                None
            }
            Some(transport) => {
                let at = format!("{at}.transport");
                Transport::read(transport, &at, reader.findings)
            }
        };
        if let Some(version) = &version
            && !is_exact_version(version)
        {
            reader.wrong(
                "version",
                "must be one exact version, not a range or `latest`",
            );
        }
        if let Some(url) = &base_url
            && !url.starts_with("https://")
            && !url.starts_with("http://")
        {
            reader.wrong("registryBaseUrl", "must be an https URL");
        }
        let runtime_arguments = arguments(&mut reader, "runtimeArguments");
        let package_arguments = arguments(&mut reader, "packageArguments");
        let variables = key_values(&mut reader, "environmentVariables", is_variable_name);
        let at = reader.at.clone();
        reader.end();
        Some(Self {
            registry_type: registry_type?,
            base_url,
            identifier: identifier?,
            version,
            has_hash,
            runtime_hint,
            transport: transport?,
            runtime_arguments,
            package_arguments,
            variables,
            at,
        })
    }
}

impl Transport {
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        let mut reader = Reader::new(value, at, findings)?;
        let transport = Self::read_members(&mut reader);
        reader.end();
        transport
    }

    fn read_members(reader: &mut Reader<'_, '_>) -> Option<Self> {
        let kind = match reader.required("type")?.as_str() {
            "stdio" => TransportKind::Stdio,
            "streamable-http" => TransportKind::StreamableHttp,
            "sse" => TransportKind::Sse,
            other => {
                let why = format!("is `{other}`: there are `stdio`, `streamable-http` and `sse`");
                reader.wrong("type", why);
                return None;
            }
        };
        let url = match kind {
            // Some publishers write an empty one.
            TransportKind::Stdio => {
                reader.member("url");
                None
            }
            TransportKind::StreamableHttp | TransportKind::Sse => Some(reader.required("url")?),
        };
        let headers = key_values(reader, "headers", is_header_name);
        Some(Self { kind, url, headers })
    }
}

impl Remote {
    fn read(value: &Value, at: &str, findings: &mut Findings) -> Option<Self> {
        let mut reader = Reader::new(value, at, findings)?;
        let transport = Transport::read_members(&mut reader);
        let mut variables = BTreeMap::new();
        for (name, at, value) in reader.table("variables") {
            if let Some(input) = Input::read_at(value, &at, reader.findings, 1) {
                variables.insert(name, input);
            }
        }
        let transport = transport.filter(|transport| match transport.kind {
            TransportKind::Stdio => {
                reader.wrong("type", "of a remote server cannot be `stdio`");
                false
            }
            TransportKind::StreamableHttp | TransportKind::Sse => true,
        });
        let at = reader.at.clone();
        reader.end();
        Some(Self {
            transport: transport?,
            variables,
            at,
        })
    }
}

fn arguments(reader: &mut Reader<'_, '_>, name: &'static str) -> Vec<Argument> {
    let mut arguments = Vec::new();
    for (index, (at, value)) in reader.list(name).into_iter().enumerate() {
        let Some(mut reader) = Reader::new(value, &at, reader.findings) else {
            continue;
        };
        let kind = reader.required("type");
        let flag = reader.text("name");
        let hint = reader.text("valueHint");
        let is_repeated = reader.flag("isRepeated");
        let input = Input::read(&mut reader, 0);
        let place = match (kind.as_deref(), flag, hint) {
            (None, ..) => None,
            (Some("named"), Some(flag), _) if is_flag(&flag) => Some(Place::Named(flag)),
            (Some("named"), Some(_), _) => {
                reader.wrong("name", "is not a flag: letters, digits, `-`, `_` and `.`");
                None
            }
            (Some("named"), None, _) => {
                reader.wrong("name", "is missing");
                None
            }
            (Some("positional"), _, hint) => {
                if hint.is_none() && input.value.is_none() {
                    reader.wrong("valueHint", "or `value` is missing");
                }
                let label = hint.unwrap_or_else(|| format!("argument{}", index + 1));
                Some(Place::Positional(label))
            }
            (Some(other), ..) => {
                reader.wrong(
                    "type",
                    format!("is `{other}`: there are `positional` and `named`"),
                );
                None
            }
        };
        reader.end();
        if let Some(place) = place {
            arguments.push(Argument {
                place,
                is_repeated,
                input,
            });
        }
    }
    arguments
}

fn key_values(
    reader: &mut Reader<'_, '_>,
    name: &'static str,
    is_name: fn(&str) -> bool,
) -> Vec<KeyValue> {
    let mut pairs: Vec<KeyValue> = Vec::new();
    for (at, value) in reader.list(name) {
        let Some(mut reader) = Reader::new(value, &at, reader.findings) else {
            continue;
        };
        let key = reader.required("name");
        let input = Input::read(&mut reader, 0);
        if let Some(key) = &key {
            if !is_name(key) {
                reader.wrong("name", "is not a name that can be set");
            } else if pairs.iter().any(|known| known.name == *key) {
                reader.wrong("name", format!("`{key}` is there twice"));
            }
        }
        reader.end();
        if let Some(name) = key {
            pairs.push(KeyValue { name, input });
        }
    }
    pairs
}

fn is_flag(name: &str) -> bool {
    let body = name.trim_start_matches('-');
    let is_body = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    !body.is_empty() && name.len() - body.len() <= 2 && body.chars().all(is_body)
}

fn is_variable_name(name: &str) -> bool {
    let mut chars = name.chars();
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    chars.next().is_some_and(is_first) && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_header_name(name: &str) -> bool {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(is_token)
}
