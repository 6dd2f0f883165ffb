//! The flags of `gantry up`, and the configuration they become.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gantry_engine::{
    Durability, EngineConfig, IMAGE_CHECKS, IssuerConfig, OnStartFailure, SiemTarget, Startup,
    StopPolicy, StoreConfig, StoreConfigError, TracesConfig,
};
use gantry_model::naming::{Expose, LONGEST_EXPOSED, OnCollision};
use gantry_model::spec::period;

use crate::app;
use crate::app::accept::Bounds;
use crate::app::tls::TlsFiles;
use crate::cli::failure::{Exit, Failure};
use crate::cli::files::Files;
use crate::config::env::{Environment, GANTRY_MASTER_KEY, GANTRY_SIEM, GANTRY_STORE};
use crate::config::issuers;
use crate::config::master_key::KeySource;
use crate::config::otlp::{Endpoint, HeaderSource, OtlpChoice};
use crate::config::settings::Settings;
use crate::config::siem::{Receiver, ReceiverError, SiemChoice};
use crate::http::Origin;

/// The default shown if neither a flag nor a file sets a value.
const DEFAULT: &str = "default";

/// The settings of a listener with TLS.
pub(super) struct Secure {
    pub(super) address: SocketAddr,
    pub(super) files: TlsFiles,
}

/// Arguments of `gantry up`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Options {
    #[command(flatten)]
    pub(super) files: Files,
    /// Approve the folder's files as they are now, without asking
    #[arg(long)]
    pub(super) trust: bool,
    /// Ask again for inputs (`${input:id}`) that were answered at an earlier start
    #[arg(long)]
    pub(super) ask_again: bool,
    /// Do not run the example server when no other is configured
    #[arg(long)]
    pub(super) no_example: bool,
    /// Stop when no `gantry stdio` uses this gateway any more
    #[arg(long, hide = true)]
    pub(super) while_used: bool,
    /// Print one line of JSON when the endpoint is open, everything else to stderr, and ask nothing
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Settings that `[gateway]` of `gantry.toml` has too; flags take precedence.
#[derive(Debug, Args)]
pub(in crate::cli) struct Flags {
    /// The port; 0 takes any [default: the last one, else 4180 or the next free]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Listen on this address instead of loopback, without TLS
    #[arg(long, value_name = "ADDR")]
    insecure_bind: Option<IpAddr>,
    /// A further host name of the gateway; may be given several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// An origin whose web pages may use the MCP endpoint, such as `https://app.example.com`; may be
    /// given several times
    #[arg(long, value_name = "URL")]
    origin: Vec<Origin>,
    /// Start servers side by side or one after the other [default: parallel]
    #[arg(long, value_enum)]
    startup: Option<StartupFlag>,
    /// On start failure of a server: continue without it, or abort [default: isolate]
    #[arg(long, value_enum)]
    on_start_failure: Option<FailureFlag>,
    /// Audit durability: handed to the system, synced to disk, written soon, or in the database before a
    /// call is sent [default: os]
    #[arg(long, value_enum)]
    audit: Option<AuditFlag>,
    /// Exposed tool names: `server__tool`, or the tool's own name [default: qualified]
    #[arg(long, value_enum)]
    expose: Option<ExposeFlag>,
    /// Two tools with the same bare name: refuse the second, or the last wins [default: refuse]
    #[arg(long, value_enum)]
    on_collision: Option<CollisionFlag>,
    /// Grace period for calls in flight when the gateway stops [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    drain: Option<Duration>,
    /// Grace period before servers are killed, from the signal [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    kill_after: Option<Duration>,
    /// Store data in this file or database [default: `gantry.db` in the data folder]
    #[arg(long, value_name = "URL|PATH")]
    store: Option<StoreConfig>,
    /// Accept tokens of the authorization servers in this file
    #[arg(long, value_name = "FILE")]
    issuers: Option<PathBuf>,
    /// Listen here, too, with TLS, for other machines
    #[arg(long, value_name = "ADDR:PORT")]
    tls_listen: Option<SocketAddr>,
    /// The certificate of the listener with TLS, in PEM form
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Ask clients of that listener for a certificate of these authorities
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// The key that secrets are encrypted with: `file:PATH`, `env:NAME` or `command:PROGRAM` [default:
    /// `data.key` in the data folder]
    #[arg(long, value_name = "SOURCE")]
    master_key: Option<KeySource>,
    /// Export each call as a span to this OTLP endpoint, such as `http://localhost:4318`
    #[arg(long, value_name = "URL")]
    otlp: Option<Endpoint>,
    /// Headers for that endpoint, such as credentials: `file:PATH` or `env:NAME`
    #[arg(long, value_name = "SOURCE")]
    otlp_headers: Option<HeaderSource>,
    /// Push calls and administrative acts to this receiver: `syslog+udp://HOST`, `syslog+tcp://HOST`,
    /// `syslog+tls://HOST`, or an OTLP endpoint
    #[arg(long, value_name = "URL")]
    siem: Option<Receiver>,
    /// Headers for that receiver, if it is an OTLP endpoint: `file:PATH` or `env:NAME`
    #[arg(long, value_name = "SOURCE")]
    siem_headers: Option<HeaderSource>,
    /// Certificate authorities that the receiver must have its certificate of
    #[arg(long, value_name = "FILE")]
    siem_ca: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StartupFlag {
    Parallel,
    Sequential,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailureFlag {
    Isolate,
    Abort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuditFlag {
    Os,
    Disk,
    Relaxed,
    Database,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExposeFlag {
    Qualified,
    Bare,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CollisionFlag {
    Refuse,
    #[value(name = "last_wins", alias = "last-wins")]
    LastWins,
}

impl Flags {
    /// Returns the policy for start failures.
    fn on_start_failure(&self, settings: &Settings) -> OnStartFailure {
        let flag = self.on_start_failure.map(|flag| match flag {
            FailureFlag::Isolate => OnStartFailure::Isolate,
            FailureFlag::Abort => OnStartFailure::Abort,
        });
        flag.or(settings.on_start_failure).unwrap_or_default()
    }

    /// Merges flags, the file and defaults into the engine's configuration, in this order.
    fn settle(&self, settings: &Settings, config: &mut EngineConfig) {
        let startup = self.startup.map(|flag| match flag {
            StartupFlag::Parallel => Startup::Parallel,
            StartupFlag::Sequential => Startup::Sequential,
        });
        config.startup = startup.or(settings.startup).unwrap_or_default();
        config.on_start_failure = self.on_start_failure(settings);
        let audit = self.audit.map(|flag| match flag {
            AuditFlag::Os => Durability::Os,
            AuditFlag::Disk => Durability::Disk,
            AuditFlag::Relaxed => Durability::Relaxed,
            AuditFlag::Database => Durability::Database,
        });
        config.audit.durability = audit.or(settings.audit).unwrap_or(Durability::Os);
        let expose = self.expose.map(|flag| match flag {
            ExposeFlag::Qualified => Expose::Qualified,
            ExposeFlag::Bare => Expose::Bare,
        });
        config.expose = expose.or(settings.expose).unwrap_or_default();
        let on_collision = self.on_collision.map(|flag| match flag {
            CollisionFlag::Refuse => OnCollision::Refuse,
            CollisionFlag::LastWins => OnCollision::LastWins,
        });
        config.on_collision = on_collision.or(settings.on_collision).unwrap_or_default();
        config.tool_name_length = settings.tool_name_length.unwrap_or(LONGEST_EXPOSED);
        let answers = settings.answer_memory;
        config.limits.answer_bytes = answers.unwrap_or(config.limits.answer_bytes);
        let drain = self.drain.or(settings.drain);
        config.stop.drain = drain.unwrap_or(config.stop.drain);
        let kill_after = self.kill_after.or(settings.kill_after);
        let kill_after = kill_after.unwrap_or(config.stop.kill_after);
        config.stop.kill_after = kill_after.max(config.stop.drain);
        let every = settings.image_checks.unwrap_or(IMAGE_CHECKS);
        config.image_checks = (!every.is_zero()).then_some(every);
    }

    /// Returns each key of the gateway with its value and origin.
    pub(in crate::cli) fn explain(
        &self,
        settings: &Settings,
    ) -> Vec<(&'static str, String, String)> {
        fn named<T: ValueEnum>(flag: Option<T>) -> Option<String> {
            let value = flag?.to_possible_value()?;
            Some(value.get_name().to_owned())
        }
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let stop = StopPolicy::default();
        let (drain, kill_after) = (period::show(stop.drain), period::show(stop.kill_after));
        let flags = [
            ("startup", named(self.startup), "parallel"),
            ("on_start_failure", named(self.on_start_failure), "isolate"),
            ("audit", named(self.audit), "os"),
            ("expose", named(self.expose), "qualified"),
            ("on_collision", named(self.on_collision), "refuse"),
            ("tool_name_length", None, "64"),
            ("instructions", None, "joined"),
            ("drain", self.drain.map(period::show), drain.as_str()),
            (
                "kill_after",
                self.kill_after.map(period::show),
                kill_after.as_str(),
            ),
            ("connections_per_address", None, "5120"),
            ("answer_memory", None, "96M"),
            ("image_checks", None, "6h"),
            ("mcp_registry", None, "none"),
            (
                "store",
                self.store.as_ref().map(StoreConfig::to_string),
                "`gantry.db` in the data folder",
            ),
            ("issuers", shown(&self.issuers), "none"),
            (
                "tls_listen",
                self.tls_listen.map(|at| at.to_string()),
                "none",
            ),
            ("tls_cert", shown(&self.tls_cert), "none"),
            ("tls_key", shown(&self.tls_key), "none"),
            ("tls_client_ca", shown(&self.tls_client_ca), "none"),
            (
                "master_key",
                self.master_key.as_ref().map(KeySource::to_string),
                "`data.key` in the data folder",
            ),
            ("otlp", self.otlp.as_ref().map(Endpoint::to_string), "none"),
            (
                "otlp_headers",
                self.otlp_headers.as_ref().map(HeaderSource::to_string),
                "none",
            ),
            ("siem", self.siem.as_ref().map(Receiver::to_string), "none"),
            (
                "siem_headers",
                self.siem_headers.as_ref().map(HeaderSource::to_string),
                "none",
            ),
            (
                "siem_ca",
                shown(&self.siem_ca),
                "the authorities that this machine trusts",
            ),
        ];
        let rows =
            flags.into_iter().map(
                |(key, flag, default)| match (flag, settings.origins.get(key)) {
                    (Some(value), _) => (key, value, format!("flag --{}", key.replace('_', "-"))),
                    (None, Some((place, written))) => {
                        // A URL is shown without its password.
                        let shown = settings.store.as_ref().filter(|_| key == "store");
                        let shown = shown.map_or_else(|| written.clone(), StoreConfig::to_string);
                        (key, shown, place.clone())
                    }
                    (None, None) => (key, default.to_owned(), DEFAULT.to_owned()),
                },
            );
        self.explain_address(settings)
            .into_iter()
            .chain(rows)
            .collect()
    }

    /// Returns the listen address and host names, in the same form.
    fn explain_address(&self, settings: &Settings) -> Vec<(&'static str, String, String)> {
        let written = |key: &str| settings.origins.get(key).cloned();
        let unsaid = |value: &str| (DEFAULT.to_owned(), value.to_owned());
        let bound = self.insecure_bind.map(|address| {
            let from = "flag --insecure-bind".to_owned();
            (from, address.to_string())
        });
        let (listen_from, listen) = bound
            .or_else(|| written("listen"))
            .unwrap_or_else(|| unsaid("127.0.0.1"));
        let in_file = written("listen").zip(settings.listen);
        let (port_from, port) = match (self.port, in_file) {
            (Some(port), _) => ("flag --port".to_owned(), port.to_string()),
            (None, Some(((place, _), listen))) => (place, listen.port().to_string()),
            (None, None) => unsaid("the last one, else 4180 or the next free"),
        };
        let (insecure_from, insecure) = match self.insecure_bind {
            Some(_) => ("flag --insecure-bind".to_owned(), "true".to_owned()),
            None => written("insecure_bind").unwrap_or_else(|| unsaid("false")),
        };
        let joined =
            |flag: &str, given: &[String], in_file: &[String], key: &str, none: &str| match (
                given,
                written(key),
            ) {
                ([], None) => unsaid(none),
                ([], Some(written)) => written,
                (given, None) => (format!("flag {flag}"), given.join(", ")),
                (given, Some((place, _))) => {
                    let all = [given, in_file].concat();
                    (format!("flag {flag}, {place}"), all.join(", "))
                }
            };
        let none = "none beside the loopback names";
        let (hosts_from, hosts) = joined("--host", &self.host, &settings.hosts, "hosts", none);
        let shown = |origins: &[Origin]| origins.iter().map(Origin::to_string).collect::<Vec<_>>();
        let (given, in_file) = (shown(&self.origin), shown(&settings.pages));
        let (origins_from, origins) = joined("--origin", &given, &in_file, "origins", "none");
        vec![
            ("listen", listen, listen_from),
            ("port", port, port_from),
            ("insecure_bind", insecure, insecure_from),
            ("hosts", hosts, hosts_from),
            ("origins", origins, origins_from),
        ]
    }
}

impl Options {
    /// Returns the address to listen on.
    pub(super) fn address(&self, settings: &Settings) -> IpAddr {
        self.flags
            .insecure_bind
            .or(settings.listen.map(|listen| listen.ip()))
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Returns the requested port, if any.
    pub(super) fn port(&self, settings: &Settings) -> Option<u16> {
        let listen = settings.listen.map(|listen| listen.port());
        self.flags.port.or(listen)
    }

    /// Returns whether the example runs when no server is configured.
    pub(super) fn wants_example(&self) -> bool {
        !self.no_example && self.files.config.is_empty()
    }

    /// Returns whether one failed server aborts the start.
    pub(super) fn aborts(&self, settings: &Settings) -> bool {
        self.flags.on_start_failure(settings) == OnStartFailure::Abort
    }

    /// Merges flags and the file into the engine's configuration.
    pub(super) fn settle(&self, settings: &Settings, config: &mut EngineConfig) {
        self.flags.settle(settings, config);
    }

    /// Returns the store from the flag, the environment or the file, in this order.
    pub(super) fn store(
        &self,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Option<StoreConfig>, StoreConfigError> {
        if let Some(store) = &self.flags.store {
            return Ok(Some(store.clone()));
        }
        let variable = environment
            .filled(GANTRY_STORE)
            .map(str::parse)
            .transpose()?;
        Ok(variable.or_else(|| settings.store.clone()))
    }

    /// Removes the files that flags replace.
    pub(super) fn replace(&self, settings: &mut Settings) {
        let flags = &self.flags;
        for (setting, file) in settings.trusting() {
            let flag = match setting {
                "issuers" => &flags.issuers,
                "siem_ca" => &flags.siem_ca,
                _ => &flags.tls_client_ca,
            };
            if flag.is_some() {
                *file = None;
            }
        }
    }

    /// Reads the token issuers, if there are any.
    pub(super) fn issuers(&self, settings: &Settings) -> Result<Vec<IssuerConfig>, Failure> {
        let file = self.flags.issuers.as_ref().or(settings.issuers.as_ref());
        let read = file.map(|file| issuers::read(file)).transpose();
        let read = read.map_err(|error| Failure::of(Exit::Usage, &error))?;
        Ok(read.unwrap_or_default())
    }

    /// Returns where spans are exported to, if anywhere: by the flag, the file or the environment, in this order.
    pub(super) fn traces(
        &self,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Option<TracesConfig>, Failure> {
        let (flags, of_file) = (&self.flags, &settings.otlp);
        let choice = OtlpChoice {
            endpoint: flags.otlp.clone().or_else(|| of_file.endpoint.clone()),
            headers: flags
                .otlp_headers
                .clone()
                .or_else(|| of_file.headers.clone()),
        };
        let traces = choice.traces(environment);
        traces.map_err(|error| Failure::new(Exit::Usage, error.to_string()))
    }

    /// Returns where the audit is pushed to, if anywhere: by the flag, the environment or the file, in this order.
    pub(super) fn siem(
        &self,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Option<SiemTarget>, Failure> {
        let (flags, of_file) = (&self.flags, settings.siem.clone());
        let receiver = match (&flags.siem, environment.filled(GANTRY_SIEM)) {
            (Some(receiver), _) => Some(receiver.clone()),
            (None, Some(text)) => Some(text.parse().map_err(|error: ReceiverError| {
                Failure::plain(Exit::Usage, "invalid `GANTRY_SIEM`", &error)
            })?),
            (None, None) => of_file.receiver,
        };
        let choice = SiemChoice {
            receiver,
            headers: flags.siem_headers.clone().or(of_file.headers),
            ca: flags.siem_ca.clone().or(of_file.ca),
        };
        let target = choice.target(environment);
        target.map_err(|error| Failure::new(Exit::Usage, error.to_string()))
    }

    /// Returns the settings of the listener with TLS, if requested.
    pub(super) fn secure(&self, settings: &Settings) -> Result<Option<Secure>, Failure> {
        let flags = &self.flags;
        let listen = flags.tls_listen.or(settings.tls_listen);
        let cert = flags.tls_cert.as_ref().or(settings.tls_cert.as_ref());
        let key = flags.tls_key.as_ref().or(settings.tls_key.as_ref());
        let client_ca = flags.tls_client_ca.as_ref();
        let client_ca = client_ca.or(settings.tls_client_ca.as_ref());
        match (listen, cert, key) {
            (None, None, None) if client_ca.is_none() => Ok(None),
            (Some(address), Some(cert), Some(key)) => {
                let files = TlsFiles {
                    cert: cert.clone(),
                    key: key.clone(),
                    client_ca: client_ca.cloned(),
                };
                Ok(Some(Secure { address, files }))
            }
            _ => Err(Failure::new(
                Exit::Usage,
                "a listener with TLS needs an address, a certificate and a key".to_owned(),
            )
            .hint("give `--tls-listen`, `--tls-cert` and `--tls-key`, or the same keys of `[gateway]`")),
        }
    }

    /// Returns the source of the master key: from the flag, the file or the environment, in this
    /// order.
    pub(super) fn master_key(
        &self,
        settings: &Settings,
        environment: &Environment,
    ) -> Option<KeySource> {
        let flag = self.flags.master_key.clone();
        let variable = environment.filled(GANTRY_MASTER_KEY);
        let variable = variable.map(|_| KeySource::Variable(GANTRY_MASTER_KEY.to_owned()));
        flag.or_else(|| settings.master_key.clone()).or(variable)
    }

    /// Returns the options for serving.
    pub(super) fn serving(&self, settings: &Settings) -> app::Options {
        let bounds = Bounds::default();
        let per_address = settings.connections_per_address;
        app::Options {
            hosts: [self.flags.host.as_slice(), &settings.hosts].concat(),
            origins: [self.flags.origin.as_slice(), &settings.pages].concat(),
            instructions: settings.instructions.unwrap_or_default(),
            bounds: Bounds {
                per_address: per_address.unwrap_or(bounds.per_address),
                ..bounds
            },
            ..app::Options::default()
        }
    }

    /// Returns the URL of the listener on this machine.
    pub(super) fn shown_url(&self, listener: &TcpListener) -> io::Result<String> {
        let mut bound = listener.local_addr()?;
        if bound.ip().is_unspecified() {
            let loopback = match bound {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            };
            bound.set_ip(loopback);
        }
        Ok(format!("http://{bound}"))
    }
}

fn time(text: &str) -> Result<Duration, String> {
    period::parse(text).ok_or_else(|| "write for example `500ms`, `10s` or `2m`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault P4
    #[test]
    fn the_help_names_the_defaults_of_stopping() {
        let command = Flags::augment_args(clap::Command::new("up"));
        let stop = StopPolicy::default();
        for (name, time) in [("drain", stop.drain), ("kill_after", stop.kill_after)] {
            let mut flags = command.get_arguments();
            let flag = flags.find(|flag| flag.get_id().as_str() == name).unwrap();
            let help = flag.get_help().unwrap().to_string();
            let default = format!(" [default: {}]", period::show(time));
            assert!(help.ends_with(&default), "{name}: {help}");
        }
    }
}
