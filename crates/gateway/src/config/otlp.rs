//! Where traces and audit records go over OTLP: from a flag, `[gateway]` or the variables of OpenTelemetry,
//! in this order. Headers may be credentials, so they come from a file or a variable, never from an argument.
//!
//! A mistake in a flag or a file is an error; variables may be meant for other programs, so what Gantry cannot
//! use of them is told and left out. Entry points: [`Endpoint`], [`HeaderSource`] and [`OtlpChoice::traces`].

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use gantry_engine::{OtlpEncoding, OtlpTarget, TracesConfig};
use url::Url;

use super::env::{self, Environment};
use super::master_key::open_private;

/// The longest file of headers.
const LONGEST: u64 = 64 << 10;

/// The base URL of an OTLP endpoint, to which the path of a signal is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

/// A text is no URL of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is no URL, or of another kind.
    #[error("write a URL such as `http://localhost:4318`")]
    Url,
    /// It has a user or a password in it.
    #[error("credentials belong into `otlp_headers`, or into `OTEL_EXPORTER_OTLP_HEADERS`")]
    Credentials,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let url = Url::parse(text).map_err(|_| EndpointError::Url)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(EndpointError::Url);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        Ok(Self(url))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Endpoint {
    /// Returns the URL of a signal, `traces` or `logs`.
    fn of_signal(&self, signal: &str) -> String {
        let mut url = self.0.clone();
        let path = url.path().trim_end_matches('/');
        let own = format!("/v1/{signal}");
        let path = match path.ends_with(&own) {
            true => path.to_owned(),
            false => format!("{path}{own}"),
        };
        url.set_path(&path);
        url.to_string()
    }
}

/// Where headers come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderSource {
    /// A file that only its owner can read, with a line `Name: value` for each.
    File(PathBuf),
    /// A variable of the form `name=value,name=value`.
    Variable(String),
}

/// A text that names no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write `file:PATH` or `env:NAME`")]
pub struct NoHeaderSource;

impl FromStr for HeaderSource {
    type Err = NoHeaderSource;

    fn from_str(text: &str) -> Result<Self, NoHeaderSource> {
        let (kind, rest) = text.split_once(':').ok_or(NoHeaderSource)?;
        match (kind, rest.trim()) {
            (_, "") => Err(NoHeaderSource),
            ("file", path) => Ok(Self::File(path.into())),
            ("env", name) => Ok(Self::Variable(name.to_owned())),
            _ => Err(NoHeaderSource),
        }
    }
}

impl fmt::Display for HeaderSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Variable(name) => write!(f, "env:{name}"),
        }
    }
}

/// Names with their values.
type Headers = Vec<(String, String)>;

impl HeaderSource {
    /// Returns the same with a file that is relative to this folder.
    pub fn beside(self, folder: &Path) -> Self {
        match self {
            Self::File(path) => Self::File(folder.join(path)),
            Self::Variable(_) => self,
        }
    }

    /// Reads the headers; the error shows nothing of them.
    fn read(&self, environment: &Environment) -> Result<Headers, String> {
        match self {
            Self::File(path) => of_lines(&read_file(path)?),
            Self::Variable(name) => {
                let value = environment.filled(name);
                let value = value.ok_or_else(|| format!("the variable `{name}` is not set"))?;
                of_list(value)
            }
        }
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let file = open_private(path)?;
    let mut text = String::new();
    let read = file.take(LONGEST).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    Ok(text)
}

fn of_lines(text: &str) -> Result<Headers, String> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let header = |(at, line): (usize, &str)| {
        let wrong = || format!("line {} is not of the form `Name: value`", at + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        checked(name, value.trim()).ok_or_else(wrong)
    };
    lines.map(header).collect()
}

/// Reads the form that OpenTelemetry has for variables: pairs between commas, values encoded as in URLs.
fn of_list(text: &str) -> Result<Headers, String> {
    let parts = text.split(',').map(str::trim).enumerate();
    let parts = parts.filter(|(_, part)| !part.is_empty());
    let header = |(at, part): (usize, &str)| {
        let wrong = || format!("part {} is not of the form `name=value`", at + 1);
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let value = decoded(value.trim()).ok_or_else(wrong)?;
        checked(name, &value).ok_or_else(wrong)
    };
    parts.map(header).collect()
}

fn checked(name: &str, value: &str) -> Option<(String, String)> {
    let name = name.trim();
    http::HeaderName::from_bytes(name.as_bytes()).ok()?;
    http::HeaderValue::from_str(value).ok()?;
    Some((name.to_owned(), value.to_owned()))
}

/// Decodes `%20` and its like; a `+` stays what it is.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Why nothing can be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no headers for OTLP from `{origin}`: {why}")]
pub struct OtlpError {
    origin: String,
    why: String,
}

/// What flag and file say of OTLP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpChoice {
    /// Where to send.
    pub endpoint: Option<Endpoint>,
    /// Where the headers come from.
    pub headers: Option<HeaderSource>,
}

impl OtlpChoice {
    /// Returns where spans are exported to, if anywhere.
    pub fn traces(&self, environment: &Environment) -> Result<Option<TracesConfig>, OtlpError> {
        let Some(target) = self.target("traces", environment)? else {
            return Ok(None);
        };
        let mut config = TracesConfig::new(target);
        let (service, further) = resource(environment);
        config.service = service.unwrap_or(config.service);
        config.resource = further;
        Ok(Some(config))
    }

    /// Returns where log records are exported to, if anywhere, and the attributes of their resource.
    pub fn logs(
        &self,
        environment: &Environment,
    ) -> Result<Option<(OtlpTarget, Headers)>, OtlpError> {
        let target = self.target("logs", environment)?;
        Ok(target.map(|target| {
            let (service, further) = resource(environment);
            let service = service.unwrap_or_else(|| "gantry".to_owned());
            let mut attributes = vec![("service.name".to_owned(), service)];
            attributes.extend(further);
            (target, attributes)
        }))
    }

    /// Returns where a signal is sent to.
    fn target(
        &self,
        signal: &str,
        environment: &Environment,
    ) -> Result<Option<OtlpTarget>, OtlpError> {
        let own = signal.to_ascii_uppercase();
        // What is said of one signal counts before what is said of all.
        let said = |what: &str| {
            let of_signal = format!("OTEL_EXPORTER_OTLP_{own}_{what}");
            let of_all = format!("OTEL_EXPORTER_OTLP_{what}");
            let found = [of_signal, of_all].into_iter();
            let mut found =
                found.filter_map(|name| Some((environment.filled(&name)?.to_owned(), name)));
            found.next()
        };
        let url = match &self.endpoint {
            Some(endpoint) => endpoint.of_signal(signal),
            None if is_off(&own, environment) => return Ok(None),
            None => {
                let Some((text, name)) = said("ENDPOINT") else {
                    return Ok(None);
                };
                match text.parse::<Endpoint>() {
                    // The endpoint of one signal is the whole URL.
                    Ok(endpoint) if name.contains(&own) => endpoint.to_string(),
                    Ok(endpoint) => endpoint.of_signal(signal),
                    Err(error) => {
                        left_out(&name, &error.to_string());
                        return Ok(None);
                    }
                }
            }
        };
        let mut target = OtlpTarget::new(url);
        if let Some((text, name)) = said("PROTOCOL") {
            match text.as_str() {
                "http/protobuf" => {}
                "http/json" => target.encoding = OtlpEncoding::Json,
                _ if self.endpoint.is_some() => {
                    left_out(&name, "only `http/protobuf` and `http/json` are supported");
                }
                _ => {
                    let why =
                        "only `http/protobuf` and `http/json` are supported: nothing is exported";
                    left_out(&name, why);
                    return Ok(None);
                }
            }
        }
        if let Some((text, name)) = said("TIMEOUT") {
            match text.parse::<u64>() {
                Ok(ms @ 1..=600_000) => target.timeout = Duration::from_millis(ms),
                Ok(_) | Err(_) => {
                    left_out(&name, "it is not a number of milliseconds up to 600000")
                }
            }
        }
        target.gzip = said("COMPRESSION").is_some_and(|(text, _)| text == "gzip");
        target.ca_file = said("CERTIFICATE").map(|(path, _)| path.into());
        target.headers = match &self.headers {
            Some(source) => source.read(environment).map_err(|why| OtlpError {
                origin: source.to_string(),
                why,
            })?,
            None => match said("HEADERS") {
                Some((text, name)) => {
                    of_list(&text).map_err(|why| OtlpError { origin: name, why })?
                }
                None => Vec::new(),
            },
        };
        Ok(Some(target))
    }
}

/// Returns the name of this service and further attributes, as the variables say.
fn resource(environment: &Environment) -> (Option<String>, Headers) {
    let mut service = environment
        .filled(env::OTEL_SERVICE_NAME)
        .map(str::to_owned);
    let mut attributes = Vec::new();
    let further = environment.filled(env::OTEL_RESOURCE_ATTRIBUTES);
    for pair in further.into_iter().flat_map(|pairs| pairs.split(',')) {
        let pair = pair.split_once('=');
        let decoded =
            pair.and_then(|(name, value)| Some((decoded(name.trim())?, decoded(value.trim())?)));
        match decoded {
            Some((name, value)) if name == "service.name" => {
                service.get_or_insert(value);
            }
            Some(attribute) => attributes.push(attribute),
            None => left_out(env::OTEL_RESOURCE_ATTRIBUTES, "it is not a list of pairs"),
        }
    }
    (service, attributes)
}

/// Returns whether the variables turn a signal off.
fn is_off(signal: &str, environment: &Environment) -> bool {
    let is_disabled = environment.filled(env::OTEL_SDK_DISABLED);
    let exporter = environment
        .filled(&format!("OTEL_{signal}_EXPORTER"))
        .map(str::to_owned);
    is_disabled.is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || exporter.is_some_and(|exporter| exporter != "otlp")
}

fn left_out(variable: &str, why: &str) {
    tracing::warn!(variable, why, "a variable is not used");
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn url(choice: &OtlpChoice, pairs: &[(&str, &str)]) -> Option<String> {
        let config = choice.traces(&environment(pairs)).unwrap();
        config.map(|config| config.target.url)
    }

    #[test]
    fn an_endpoint_is_found_as_opentelemetry_says() {
        let of_variables = OtlpChoice::default();
        const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        const OWN: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let base = (ALL, "http://collector:4318");
        for (pairs, expected) in [
            (&[][..], None),
            (&[base], Some("http://collector:4318/v1/traces")),
            (
                &[(ALL, "https://a/otel/")],
                Some("https://a/otel/v1/traces"),
            ),
            (&[base, (OWN, "http://b/x")], Some("http://b/x")),
            (&[base, ("OTEL_TRACES_EXPORTER", "none")], None),
            (&[base, ("OTEL_SDK_DISABLED", "true")], None),
            (&[base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], None),
            (&[(ALL, "collector:4317")], None),
            (&[(ALL, "https://user:pass@a")], None),
        ] {
            assert_eq!(url(&of_variables, pairs).as_deref(), expected, "{pairs:?}");
        }
        let chosen = OtlpChoice {
            endpoint: Some("https://cloud.example/api/public/otel".parse().unwrap()),
            headers: None,
        };
        let of_langfuse = "https://cloud.example/api/public/otel/v1/traces";
        let off = ("OTEL_TRACES_EXPORTER", "none");
        for pairs in [&[][..], &[base, (OWN, "http://b/x")], &[off]] {
            assert_eq!(url(&chosen, pairs).as_deref(), Some(of_langfuse));
        }
        for wrong in ["", "x", "ftp://a", "https://a:b@c", "/v1/traces"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_other_variables_are_heeded() {
        let config = OtlpChoice::default().traces(&environment(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "x-a=b, Authorization=Basic%20cGs6c2s=,",
            ),
            ("OTEL_SERVICE_NAME", "edge"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=x,deployment.environment.name=prod",
            ),
        ]));
        let config = config.unwrap().unwrap();
        assert_eq!(config.service, "edge");
        let environment_name = ("deployment.environment.name".to_owned(), "prod".to_owned());
        assert_eq!(config.resource, [environment_name]);
        let target = config.target;
        assert_eq!(target.encoding, OtlpEncoding::Json);
        assert_eq!(
            (target.timeout, target.gzip),
            (Duration::from_millis(1500), true)
        );
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            header("x-a", "b"),
            header("Authorization", "Basic cGs6c2s="),
        ];
        assert_eq!(target.headers, expected);
    }

    #[test]
    fn headers_come_from_a_private_file_or_a_variable() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("headers");
        std::fs::write(
            &path,
            "# Langfuse\nAuthorization: Basic c2VjcmV0\n\nx-a:b\n",
        )
        .unwrap();
        let read = |source: &str, pairs: &[(&str, &str)]| {
            let source: HeaderSource = source.parse().unwrap();
            source.read(&environment(pairs))
        };
        let of_file = format!("file:{}", path.display());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&of_file, &[]).unwrap_err().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let found = read(&of_file, &[]).unwrap();
        assert_eq!(found[0], ("Authorization".into(), "Basic c2VjcmV0".into()));
        assert_eq!(found[1], ("x-a".into(), "b".into()));
        assert_eq!(read("env:H", &[("H", "x-a=b")]).unwrap(), found[1..]);
        for (wrong, pairs) in [
            ("env:NONE", &[][..]),
            ("env:H", &[("H", "secret")]),
            ("env:H", &[("H", "a b=secret")]),
            ("env:H", &[("H", "a=secret%0d%0ax:y")]),
            ("env:H", &[("H", "a=secret%z")]),
        ] {
            let error = read(wrong, pairs).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        for wrong in ["", "file:", "Authorization: x", "command:x"] {
            assert!(wrong.parse::<HeaderSource>().is_err(), "{wrong}");
        }
    }
}
