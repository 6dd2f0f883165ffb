//! The flags of `gantry up`, and what they become.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gantry_engine::{Durability, EngineConfig, OnStartFailure, Startup};
use gantry_model::naming::{Expose, OnCollision};
use gantry_model::spec::period;

use crate::app;

/// What `gantry up` takes.
#[derive(Debug, Args)]
pub(in crate::cli) struct Options {
    /// An `mcpServers` file with servers to run; may be given several times, the later wins
    #[arg(long, value_name = "FILE")]
    pub(super) config: Vec<PathBuf>,
    /// The port; 0 takes any [default: the last one, else 4180 or the next free]
    #[arg(long, value_name = "N")]
    pub(super) port: Option<u16>,
    /// Do not run the example server when no other is configured
    #[arg(long)]
    pub(super) no_example: bool,
    /// Stop when no `gantry stdio` uses this gateway any more
    #[arg(long, hide = true)]
    pub(super) while_used: bool,
    /// Listen on this address instead of loopback, without TLS
    #[arg(long, value_name = "ADDR")]
    insecure_bind: Option<IpAddr>,
    /// A further name by which clients reach the gateway; may be given several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Start servers side by side or one after the other
    #[arg(long, value_enum, default_value_t = StartupFlag::Parallel)]
    startup: StartupFlag,
    /// What a server that does not start means: it alone is down, or the gateway does not start
    #[arg(long, value_enum, default_value_t = FailureFlag::Isolate)]
    on_start_failure: FailureFlag,
    /// When a call's record is safe: handed to the system, on disk, or soon
    #[arg(long, value_enum, default_value_t = AuditFlag::Os)]
    audit: AuditFlag,
    /// How tools are named towards clients: `server__tool`, or the tool's own name
    #[arg(long, value_enum, default_value_t = ExposeFlag::Qualified)]
    expose: ExposeFlag,
    /// Two tools with one bare name: the second is refused, or the last one wins
    #[arg(long, value_enum, default_value_t = CollisionFlag::Refuse)]
    on_collision: CollisionFlag,
    /// How long calls in flight may go on when the gateway stops
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    drain: Duration,
    /// When servers are killed that do not stop, counted from the signal
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    kill_after: Duration,
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

impl Options {
    /// Returns the address to listen on.
    pub(super) fn address(&self) -> IpAddr {
        self.insecure_bind
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Tells whether one server that does not start ends it all.
    pub(super) fn aborts(&self) -> bool {
        self.on_start_failure == FailureFlag::Abort
    }

    /// Puts the flags into the engine's configuration.
    pub(super) fn settle(&self, config: &mut EngineConfig) {
        config.startup = match self.startup {
            StartupFlag::Parallel => Startup::Parallel,
            StartupFlag::Sequential => Startup::Sequential,
        };
        config.on_start_failure = match self.on_start_failure {
            FailureFlag::Isolate => OnStartFailure::Isolate,
            FailureFlag::Abort => OnStartFailure::Abort,
        };
        config.audit.durability = match self.audit {
            AuditFlag::Os => Durability::Os,
            AuditFlag::Disk => Durability::Disk,
            AuditFlag::Relaxed => Durability::Relaxed,
        };
        config.expose = match self.expose {
            ExposeFlag::Qualified => Expose::Qualified,
            ExposeFlag::Bare => Expose::Bare,
        };
        config.on_collision = match self.on_collision {
            CollisionFlag::Refuse => OnCollision::Refuse,
            CollisionFlag::LastWins => OnCollision::LastWins,
        };
        config.stop.drain = self.drain;
        config.stop.kill_after = self.kill_after.max(self.drain);
    }

    /// Returns how connections are served.
    pub(super) fn serving(&self) -> app::Options {
        app::Options {
            hosts: self.host.clone(),
            ..app::Options::default()
        }
    }

    /// Returns the URL by which this machine reaches the listener.
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
