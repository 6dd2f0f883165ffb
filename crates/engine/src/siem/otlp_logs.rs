//! Events as log records of OTLP: their values are attributes under `gantry.`, those that
//! OpenTelemetry has names for under these, too. Entry point: [`OtlpLogs::send`].

use std::sync::Arc;

use gantry_store::unix_ms;

use super::message::rfc3339;
use super::record::{Field, Record};
use crate::http_client::Clients;
use crate::otlp::{Attribute, LogRecord, OtlpTarget, SendError, Sender, Signal, Value};

/// Sends log records to an endpoint.
pub(super) struct OtlpLogs {
    sender: Sender,
    resource: Vec<(String, String)>,
}

impl OtlpLogs {
    pub(super) fn new(
        target: OtlpTarget,
        mut resource: Vec<(String, String)>,
        gateway: String,
        clients: Arc<Clients>,
    ) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        resource.retain(|(name, _)| !matches!(&**name, "service.version" | "service.instance.id"));
        resource.push(("service.version".to_owned(), version));
        resource.push(("service.instance.id".to_owned(), gateway));
        Self {
            sender: Sender::new(target, clients),
            resource,
        }
    }

    /// Sends events; returns how many were rejected.
    pub(super) async fn send(&self, records: &[Record]) -> Result<u64, SendError> {
        let encoding = self.sender.target.encoding;
        let observed_ns = unix_ms().saturating_mul(1_000_000);
        let encoded: Vec<Vec<u8>> = records
            .iter()
            .map(|record| {
                let names: Vec<String> = record
                    .fields
                    .iter()
                    .map(|(name, _)| format!("gantry.{}.{name}", record.kind))
                    .collect();
                encoding.log(&log(record, &names, observed_ns))
            })
            .collect();
        let resource = self.resource.iter();
        let resource: Vec<Attribute<'_>> = resource
            .map(|(name, value)| (name.as_str(), Value::Text(value)))
            .collect();
        let body = encoding.request(Signal::Logs, &resource, &encoded);
        self.sender.send(body).await
    }
}

fn log<'a>(record: &'a Record, names: &'a [String], observed_ns: u64) -> LogRecord<'a> {
    let mut attributes: Vec<Attribute<'a>> = Vec::with_capacity(names.len() + 6);
    for (name, (short, field)) in names.iter().zip(&record.fields) {
        let value = match field {
            Field::Text(text) | Field::Json(text) => Value::Text(text),
            Field::Number(number) => Value::Number(*number),
            Field::Time(at_ms) => Value::Owned(rfc3339(*at_ms)),
        };
        if let Some(known) = known(short) {
            attributes.push((known, value.clone()));
        }
        attributes.push((name, value));
    }
    LogRecord {
        at_ns: record.at_ms.saturating_mul(1_000_000),
        observed_ns,
        severity: record.severity.otlp(),
        severity_text: record.severity.as_str(),
        event: match record.kind {
            "call" => "gantry.call",
            _ => "gantry.act",
        },
        body: &record.summary,
        attributes,
        trace: record.trace,
        span: record.span,
    }
}

/// Returns OpenTelemetry's name of a value, if it has one.
fn known(name: &str) -> Option<&'static str> {
    Some(match name {
        "user" => "user.id",
        "session" => "session.id",
        "method" => "mcp.method.name",
        "code" => "error.type",
        "address" => "client.address",
        _ => return None,
    })
}
