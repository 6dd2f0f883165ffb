//! Where the audit is pushed to: from a flag, a variable or `[gateway]`, in this order. The scheme
//! of the URL says how: `syslog+udp`, `syslog+tcp` and `syslog+tls`, or `http` and `https` for logs
//! over OTLP, which heeds the variables of OpenTelemetry. Entry points: [`Receiver`] and
//! [`SiemChoice::target`].

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use gantry_engine::{SiemTarget, SyslogTarget, SyslogTransport};
use url::{Host, Url};

use super::env::Environment;
use super::otlp::{Endpoint, HeaderSource, OtlpChoice, OtlpError};

/// A receiver of audit records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receiver {
    /// A syslog receiver.
    Syslog(SyslogTarget),
    /// An endpoint of OTLP.
    Otlp(Endpoint),
}

/// A text names no receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverError {
    /// It is no URL, or of another kind.
    #[error(
        "write `syslog+udp://HOST:514`, `syslog+tcp://HOST:601`, `syslog+tls://HOST:6514`, or \
         `https://HOST:4318` for OTLP"
    )]
    Url,
    /// It has more than a host and a port.
    #[error("a syslog receiver is a host and a port, without user, path or query")]
    More,
    /// It has a user or a password in it.
    #[error("credentials belong into `siem_headers`, or into `OTEL_EXPORTER_OTLP_HEADERS`")]
    Credentials,
}

impl FromStr for Receiver {
    type Err = ReceiverError;

    fn from_str(text: &str) -> Result<Self, ReceiverError> {
        let url = Url::parse(text).map_err(|_| ReceiverError::Url)?;
        let (transport, port) = match url.scheme() {
            "syslog+udp" => (SyslogTransport::Udp, 514),
            "syslog+tcp" => (SyslogTransport::Tcp, 601),
            "syslog+tls" => (SyslogTransport::Tls, 6514),
            "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
                return Err(ReceiverError::Credentials);
            }
            "http" | "https" => {
                let endpoint = text.parse().map_err(|_| ReceiverError::Url)?;
                return Ok(Self::Otlp(endpoint));
            }
            _ => return Err(ReceiverError::Url),
        };
        let has_more = !url.username().is_empty()
            || url.password().is_some()
            || !matches!(url.path(), "" | "/")
            || url.query().is_some()
            || url.fragment().is_some();
        if has_more {
            return Err(ReceiverError::More);
        }
        let host = match url.host().ok_or(ReceiverError::Url)? {
            Host::Domain("") => return Err(ReceiverError::Url),
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Ok(Self::Syslog(SyslogTarget {
            transport,
            host,
            port: url.port().unwrap_or(port),
            ca_file: None,
        }))
    }
}

impl fmt::Display for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syslog(target) => target.fmt(f),
            Self::Otlp(endpoint) => endpoint.fmt(f),
        }
    }
}

/// What flag, variable and file say of the SIEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiemChoice {
    /// Where to push.
    pub receiver: Option<Receiver>,
    /// Where the headers for OTLP come from.
    pub headers: Option<HeaderSource>,
    /// The authorities that the receiver's certificate must be of.
    pub ca: Option<PathBuf>,
}

impl SiemChoice {
    /// Returns where the audit is pushed to, if anywhere.
    pub fn target(self, environment: &Environment) -> Result<Option<SiemTarget>, OtlpError> {
        Ok(match self.receiver {
            None => None,
            Some(Receiver::Syslog(target)) => Some(SiemTarget::Syslog(SyslogTarget {
                ca_file: self.ca,
                ..target
            })),
            Some(Receiver::Otlp(endpoint)) => {
                let choice = OtlpChoice {
                    endpoint: Some(endpoint),
                    headers: self.headers,
                };
                let logs = choice.logs(environment)?;
                logs.map(|(mut target, resource)| {
                    target.ca_file = self.ca.or(target.ca_file);
                    SiemTarget::Otlp(target, resource)
                })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_named_by_a_url() {
        for (text, shown) in [
            ("syslog+udp://siem.example", "syslog+udp://siem.example:514"),
            ("syslog+tcp://10.0.0.1:1514", "syslog+tcp://10.0.0.1:1514"),
            ("syslog+tls://[::1]/", "syslog+tls://[::1]:6514"),
            ("https://collector:4318", "https://collector:4318/"),
        ] {
            assert_eq!(text.parse::<Receiver>().unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "siem.example:514",
            "syslog://a",
            "syslog+tcp://",
            "syslog+tcp://user@a",
            "syslog+udp://a/path",
            "syslog+tls://a?ca=b",
            "https://user:pass@a",
            "ftp://a",
        ] {
            assert!(wrong.parse::<Receiver>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn logs_go_to_their_path_with_their_variables() {
        let choice = SiemChoice {
            receiver: Some("https://otel.example/base".parse().unwrap()),
            ca: Some("ca.pem".into()),
            ..SiemChoice::default()
        };
        let variables = [
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "x-a=b"),
            ("OTEL_SERVICE_NAME", "edge"),
            ("OTEL_LOGS_EXPORTER", "none"),
        ];
        let environment: Environment = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let Some(SiemTarget::Otlp(target, resource)) = choice.target(&environment).unwrap() else {
            panic!("it is an endpoint of OTLP");
        };
        assert_eq!(target.url, "https://otel.example/base/v1/logs");
        assert_eq!(target.headers, [("x-a".to_owned(), "b".to_owned())]);
        assert_eq!(target.ca_file, Some("ca.pem".into()));
        assert_eq!(resource[0], ("service.name".to_owned(), "edge".to_owned()));
    }
}
