//! Fetches the lists of a server: all pages, with limits on pages, items and bytes.
//!
//! Secrets of the server are redacted. An unusable item is left out with a reason; the server stays
//! connected. A list of tools that cannot be fetched is an error (row 2.6); for prompts or
//! resources it is only recorded. Entry points: [`fetch`], and [`Listing::from_rows`] for a stored
//! listing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::Era;
use gantry_model::era::meta::{Identity, upstream_params};
use gantry_model::jsonrpc::{ErrorBody, Limits, METHOD_NOT_FOUND, Raw, RawBuf, validate};
use gantry_model::mcp::{ListKind, Page, ShapeError, next_cursor_params};
use gantry_model::pin::{Finding, MOST_FINDINGS, canonical, find_in_definition, hash_of};
use gantry_model::secret::Redactor;
use gantry_model::spec::{ToolFilter, period};
use gantry_store::{CatalogRow, ListedDefinition};
use tokio::time::Instant;
use tracing::warn;

use super::catalog::ServerCatalog;
use super::handshake::{HandshakeInfo, trusted};
use super::link::Link;
use super::pending::{Answer, Failure};
use crate::config::EngineLimits;
use crate::pins::PinKind;
use crate::tool::{Item, Tool, shown_name};

/// The maximum number of bytes of one list, all its pages together.
const MOST_BYTES: usize = 16 << 20;
/// The maximum number of bytes of definitions that are kept per list.
const MOST_KEPT_BYTES: usize = 16 << 20;
/// The most omitted items that are reported.
const MOST_EXCLUDED: usize = 100;
/// Time limit for compiling all schemas of a server; the rest is compiled on use.
const MOST_COMPILING: Duration = Duration::from_secs(10);
/// How many tools have their schemas compiled in advance; each takes memory that is often never
/// needed.
const MOST_COMPILED: usize = 1024;
/// Beyond [`EngineLimits::pages`], pages are requested only if they have at least this many items
/// on average.
const ITEMS_PER_PAGE: usize = 8;
/// The factor by which [`EngineLimits::pages`] may be exceeded then.
const MORE_PAGES: usize = 16;
/// The maximum number of characters of a server's own message that are shown.
const LONGEST_MESSAGE: usize = 200;

/// Checks the definition of a tool.
type Admit = fn(Raw<'_>, String, usize) -> Result<Tool, String>;

/// The checked lists of a server.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<Tool>,
    pub(crate) prompts: Vec<Item>,
    pub(crate) resources: Vec<Item>,
    pub(crate) templates: Vec<Item>,
    /// Omitted items, and why.
    pub(crate) excluded: Vec<(String, String)>,
    /// How many listed tools cannot be offered.
    pub(crate) refused: usize,
    /// What was on the wire, by kind and name, until it is saved.
    pub(crate) listed: HashMap<(String, String), ListedDefinition>,
    /// What in texts a person should look at, with the name of what it was found in.
    pub(crate) findings: Vec<(String, Finding)>,
}

/// Why a list could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListingError {
    #[error("did not answer `{method}` within {}", period::about(*waited))]
    Silent {
        method: &'static str,
        waited: Duration,
    },
    #[error("answered `{method}` with error {code}: {message}")]
    Refused {
        method: &'static str,
        code: i64,
        message: String,
    },
    #[error("the link was cut during `{method}`: {}", describe(failure))]
    Cut {
        method: &'static str,
        failure: Failure,
    },
    #[error("its response to `{method}` is not a list: {source}")]
    Shape {
        method: &'static str,
        source: ShapeError,
    },
    #[error("its tools could not be read")]
    Unreadable,
}

impl ListingError {
    /// Returns whether the server is still usable, and the list can be requested again.
    pub(crate) fn leaves_server(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Shape { .. } | Self::Unreadable => true,
            Self::Cut { failure, .. } => {
                matches!(failure, Failure::Protocol(_) | Failure::TooLarge(_))
            }
            Self::Silent { .. } => false,
        }
    }
}

/// Fetches all lists that the server declared.
pub(crate) async fn fetch(
    link: &Arc<Link>,
    handshake: &HandshakeInfo,
    limits: &EngineLimits,
    within: Duration,
) -> Result<Listing, ListingError> {
    let until = Instant::now() + within;
    let redactor = Arc::clone(&link.logs.redactor());
    let mut listing = Listing::default();
    for kind in ListKind::ALL {
        if !handshake.has(kind.capability()) {
            continue;
        }
        match pages(link, handshake, kind, limits, until).await {
            Ok(paging) => listing = judge(listing, paging, *limits, &redactor).await?,
            Err(error) if kind == ListKind::Tools => return Err(error),
            // Many servers have resources but no templates, and do not know the method.
            Err(ListingError::Refused {
                code: METHOD_NOT_FOUND,
                ..
            }) if kind == ListKind::ResourceTemplates => {}
            Err(error) => {
                let why = error.to_string();
                let why = redactor.redact(&why).into_owned();
                warn!(
                    list = kind.method().as_str(),
                    error = why,
                    "a list is missing"
                );
                listing.exclude(kind.method().as_str().to_owned(), why);
            }
        }
    }
    Ok(listing)
}

/// Requests one page after the other.
async fn pages(
    link: &Arc<Link>,
    handshake: &HandshakeInfo,
    kind: ListKind,
    limits: &EngineLimits,
    until: Instant,
) -> Result<Paging, ListingError> {
    let method = kind.method().as_str();
    let begun = Instant::now();
    let mut paging = Paging::new(kind);
    loop {
        let params = params(handshake, paging.cursor.as_deref());
        let left = until.saturating_duration_since(Instant::now());
        let cut = |failure| ListingError::Cut { method, failure };
        let result = match link.ask(method, params.as_ref(), left).await {
            Ok(Answer::Result(result)) => result.into_parts().0,
            Ok(Answer::Error(error)) => return Err(refused(method, &error)),
            Ok(Answer::Failed(failure)) | Err(Some(failure)) => return Err(cut(failure)),
            Err(None) => {
                return Err(ListingError::Silent {
                    method,
                    waited: begun.elapsed(),
                });
            }
        };
        let taken = paging.take(result, limits);
        if !taken.map_err(|source| ListingError::Shape { method, source })? {
            return Ok(paging);
        }
    }
}

fn params(handshake: &HandshakeInfo, cursor: Option<&str>) -> Option<RawBuf> {
    let cursor = cursor.map(next_cursor_params);
    match handshake.era {
        Era::Handshake => cursor,
        Era::Stateless => {
            let identity = Identity::gantry();
            let own = cursor.as_ref().map(RawBuf::as_raw);
            Some(upstream_params(handshake.version, own, &identity).to_buf())
        }
    }
}

/// The received pages of one list.
struct Paging {
    kind: ListKind,
    pages: Vec<Bytes>,
    cursor: Option<String>,
    seen: HashSet<String>,
    items: usize,
    bytes: usize,
    /// Why not all pages were requested.
    stopped: Option<String>,
}

impl Paging {
    fn new(kind: ListKind) -> Self {
        Self {
            kind,
            pages: Vec::new(),
            cursor: None,
            seen: HashSet::new(),
            items: 0,
            bytes: 0,
            stopped: None,
        }
    }

    /// Adds a page; returns true if there is another one to request.
    fn take(&mut self, result: Bytes, limits: &EngineLimits) -> Result<bool, ShapeError> {
        let page = Page::read(self.kind, trusted(&result))?;
        self.items += page.items().count();
        self.bytes += result.len();
        let next = page.next_cursor.map(|cursor| cursor.into_owned());
        self.pages.push(result);
        let Some(next) = next else { return Ok(false) };
        let stopped = if !self.seen.insert(next.clone()) {
            Some("the same cursor came twice".to_owned())
        } else if self.pages.len() >= limits.pages && self.items < ITEMS_PER_PAGE * self.pages.len()
            || self.pages.len() >= MORE_PAGES * limits.pages
        {
            Some(format!("there are more than {} pages", self.pages.len()))
        } else if self.items >= limits.tools {
            Some(format!("there are more than {}", limits.tools))
        } else if self.bytes >= MOST_BYTES {
            Some(format!("there are more than {} MiB", MOST_BYTES >> 20))
        } else {
            None
        };
        self.cursor = Some(next);
        self.stopped = stopped;
        Ok(self.stopped.is_none())
    }
}

/// Checks a whole list on a blocking thread: compiling schemas takes time.
async fn judge(
    mut listing: Listing,
    paging: Paging,
    limits: EngineLimits,
    redactor: &Arc<Redactor>,
) -> Result<Listing, ListingError> {
    let redactor = Arc::clone(redactor);
    let judging = tokio::task::spawn_blocking(move || {
        listing.take(&paging, &limits, &redactor);
        listing
    });
    judging.await.map_err(|_panicked| ListingError::Unreadable)
}

impl Listing {
    /// Checks each item of a list.
    fn take(&mut self, paging: &Paging, limits: &EngineLimits, redactor: &Redactor) {
        let kind = paging.kind;
        let begun = Instant::now();
        let (mut known, mut kept) = (HashSet::new(), 0);
        let pages = paging
            .pages
            .iter()
            .filter_map(|page| Page::read(kind, trusted(page)).ok());
        let mut items = pages.flat_map(|page| page.items());
        for raw in items.by_ref().take(limits.tools) {
            let clean = redactor.redact_json(raw.text());
            let shown = Raw::trusted(&clean);
            let admitted = if begun.elapsed() > 2 * MOST_COMPILING {
                Err("the schemas of its server take too long to compile".to_owned())
            } else if kept + shown.text().len() > MOST_KEPT_BYTES {
                let most = MOST_KEPT_BYTES >> 20;
                Err(format!(
                    "the definitions of its server take more than {most} MiB"
                ))
            } else if !is_same(kind, raw, shown) {
                Err("its name contains a secret of its server".to_owned())
            } else {
                let is_early = begun.elapsed() < MOST_COMPILING && known.len() < MOST_COMPILED;
                let admit = if is_early {
                    Tool::admit_listed
                } else {
                    Tool::admit_uncompiled
                };
                self.admit((kind, admit), shown, limits.definition_bytes, &mut known)
            };
            match admitted {
                Ok(()) => kept += shown.text().len(),
                Err(reason) => {
                    self.refused += usize::from(kind == ListKind::Tools);
                    self.exclude(shown_name(kind, shown), reason);
                }
            }
        }
        let method = kind.method().as_str();
        let left = items.count();
        if left > 0 {
            if kind == ListKind::Tools {
                self.refused += left;
            }
            let why = format!("there are {left} more than the limit of {}", limits.tools);
            self.exclude(method.to_owned(), why);
        } else if let Some(why) = &paging.stopped {
            self.exclude(method.to_owned(), format!("the rest is not offered: {why}"));
        }
    }

    fn admit(
        &mut self,
        (kind, admit): (ListKind, Admit),
        raw: Raw<'_>,
        longest: usize,
        known: &mut HashSet<Arc<str>>,
    ) -> Result<(), String> {
        let mut is_new = |name: &Arc<str>| match known.insert(Arc::clone(name)) {
            true => Ok(()),
            false => Err("it was listed before under the same name".to_owned()),
        };
        // Once for all that needs it, since a list may be long; what is too long is refused anyway.
        let canonical = match raw.text().len() > longest {
            true => String::new(),
            false => canonical(raw),
        };
        let hash = hash_of(&canonical);
        let name = match kind {
            ListKind::Tools => {
                let tool = admit(raw, hash, longest)?;
                is_new(&tool.name)?;
                let name = Arc::clone(&tool.name);
                self.tools.push(tool);
                name
            }
            ListKind::Prompts | ListKind::Resources | ListKind::ResourceTemplates => {
                let item = Item::admit(kind, raw, hash, longest)?;
                is_new(&item.name)?;
                let name = Arc::clone(&item.name);
                self.items(kind).push(item);
                name
            }
        };
        self.look_at(kind, &name, raw, canonical);
        Ok(())
    }

    /// Searches a definition for instructions to models (fault L1), and keeps it until it is saved.
    fn look_at(&mut self, kind: ListKind, name: &str, raw: Raw<'_>, canonical: String) {
        let findings = find_in_definition(raw);
        let room = MOST_FINDINGS.saturating_sub(self.findings.len());
        let noted = findings.iter().take(room);
        let noted = noted.map(|finding| (name.escape_debug().to_string(), finding.clone()));
        self.findings.extend(noted);
        if PinKind::of(kind).is_some() {
            let listed = ListedDefinition {
                canonical,
                findings,
            };
            let key = (kind_name(kind).to_owned(), name.to_owned());
            self.listed.insert(key, listed);
        }
    }

    /// Returns the list of this kind; not for tools.
    fn items(&mut self, kind: ListKind) -> &mut Vec<Item> {
        match kind {
            ListKind::Prompts => &mut self.prompts,
            ListKind::Resources => &mut self.resources,
            ListKind::ResourceTemplates | ListKind::Tools => &mut self.templates,
        }
    }

    /// Removes the tools that the filter excludes, each with its reason.
    pub(crate) fn filtered(mut self, filter: &ToolFilter) -> Self {
        if filter.is_empty() {
            return self;
        }
        let tools = std::mem::take(&mut self.tools);
        for tool in tools {
            match filter.leaves_out(&tool.name) {
                Some(why) => self.exclude(tool.name.escape_debug().to_string(), why),
                None => self.tools.push(tool),
            }
        }
        self
    }

    fn exclude(&mut self, what: String, why: String) {
        if self.excluded.len() < MOST_EXCLUDED {
            self.excluded.push((what, why));
        }
    }

    /// Returns the rows to store.
    pub(crate) fn to_rows(&self) -> Vec<CatalogRow> {
        let tools = self.tools.iter().map(|tool| {
            (
                ListKind::Tools,
                &tool.name,
                &tool.definition,
                &tool.hash,
                tool.version,
            )
        });
        let items = |kind, items: &'_ [Item]| -> Vec<_> {
            let of =
                |item: &Item| row(kind, &item.name, &item.definition, &item.hash, item.version);
            items.iter().map(of).collect()
        };
        let mut rows: Vec<CatalogRow> = tools
            .map(|(kind, name, definition, hash, version)| {
                row(kind, name, definition, hash, version)
            })
            .collect();
        rows.extend(items(ListKind::Prompts, &self.prompts));
        rows.extend(items(ListKind::Resources, &self.resources));
        rows.extend(items(ListKind::ResourceTemplates, &self.templates));
        for (position, row) in (0..).zip(&mut rows) {
            row.position = position;
        }
        rows
    }

    /// Adds the version numbers that the store assigned.
    pub(crate) fn with_versions(mut self, rows: &[CatalogRow]) -> Self {
        let versions: HashMap<(&str, &str), u32> = rows
            .iter()
            .map(|row| ((&*row.kind, &*row.name), row.version))
            .collect();
        let version = |kind, name: &str| versions.get(&(kind_name(kind), name)).copied();
        for tool in &mut self.tools {
            tool.version = version(ListKind::Tools, &tool.name).unwrap_or(tool.version);
        }
        for kind in [
            ListKind::Prompts,
            ListKind::Resources,
            ListKind::ResourceTemplates,
        ] {
            for item in self.items(kind) {
                item.version = version(kind, &item.name).unwrap_or(item.version);
            }
        }
        self
    }

    /// Takes over the versions of what is the same in a catalog that was counted before.
    pub(crate) fn with_versions_of(mut self, known: &ServerCatalog) -> Self {
        let all = known.tools.iter();
        let versions: HashMap<_, _> = all
            .map(|known| ((&*known.name, &*known.hash), known.version))
            .collect();
        for tool in self.tools.iter_mut().filter(|tool| tool.version == 0) {
            let same = versions.get(&(&*tool.name, &*tool.hash)).copied();
            tool.version = same.unwrap_or(0);
        }
        for (items, known) in [
            (&mut self.prompts, &known.prompts),
            (&mut self.resources, &known.resources),
            (&mut self.templates, &known.templates),
        ] {
            let versions: HashMap<_, _> = known
                .iter()
                .map(|known| ((&*known.name, &*known.hash), known.version))
                .collect();
            for item in items.iter_mut().filter(|item| item.version == 0) {
                let same = versions.get(&(&*item.name, &*item.hash)).copied();
                item.version = same.unwrap_or(0);
            }
        }
        self
    }

    /// Restores a stored listing, with current secrets redacted; unreadable rows are skipped.
    pub(crate) fn from_rows(rows: &[CatalogRow], redactor: &Redactor) -> Self {
        let mut listing = Self::default();
        let mut rows: Vec<&CatalogRow> = rows.iter().collect();
        rows.sort_by_key(|row| row.position);
        for row in rows {
            let Ok(raw) = validate(&row.definition, &Limits::default()) else {
                continue;
            };
            let clean = redactor.redact_json(raw.text());
            let shown = Raw::trusted(&clean);
            let kind = ListKind::ALL
                .into_iter()
                .find(|kind| kind_name(*kind) == row.kind);
            match kind.filter(|kind| is_same(*kind, raw, shown)) {
                Some(ListKind::Tools) => {
                    listing
                        .tools
                        .extend(Tool::recall(shown, &row.hash, row.version));
                }
                Some(kind) => {
                    let item = Item::recall(kind, shown, &row.hash, row.version);
                    listing.items(kind).extend(item);
                }
                None => {}
            }
        }
        listing
    }
}

/// Returns whether a definition keeps its name after redaction.
fn is_same(kind: ListKind, raw: Raw<'_>, shown: Raw<'_>) -> bool {
    raw.text() == shown.text() || kind.identity(raw).ok() == kind.identity(shown).ok()
}

fn row(kind: ListKind, name: &str, definition: &RawBuf, hash: &str, version: u32) -> CatalogRow {
    CatalogRow {
        kind: kind_name(kind).to_owned(),
        name: name.to_owned(),
        position: 0,
        definition: definition.text().to_owned(),
        hash: hash.to_owned(),
        version,
    }
}

fn kind_name(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "tool",
        ListKind::Prompts => "prompt",
        ListKind::Resources => "resource",
        ListKind::ResourceTemplates => "template",
    }
}

fn refused(method: &'static str, error: &[u8]) -> ListingError {
    let (code, message) = match ErrorBody::read(trusted(error)) {
        Some(body) => {
            let message = body.message.chars().take(LONGEST_MESSAGE);
            (body.code, message.flat_map(char::escape_debug).collect())
        }
        None => (0, "it has no code and message".to_owned()),
    };
    ListingError::Refused {
        method,
        code,
        message,
    }
}

/// Describes why there is no response.
pub(crate) fn describe(failure: &Failure) -> String {
    match failure {
        Failure::Protocol(detail) => format!("it sent an invalid response: {detail}"),
        Failure::TooLarge(limit) => format!("its answer is over {} MiB", limit >> 20),
        Failure::Undelivered(full) => full.to_string(),
        Failure::Exited(how) => how.clone(),
        Failure::NotReading => "it does not read its input".to_owned(),
        Failure::Remote(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
