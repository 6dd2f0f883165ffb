//! Stored catalogs. Statements are in `sql::catalog`.
//!
//! Saving writes only the differences, so that a start with unchanged servers writes nothing.

use std::collections::{HashMap, HashSet};

use gantry_model::id::ServerId;
use gantry_model::jsonrpc::{Limits, validate};
use gantry_model::pin::{
    ChangeClass, OnFirstList, PINNED_KINDS, PinState, canonical, classify, likely_rename,
};
use sqlx::types::Json;

use super::Store;
use super::pins::{change, state};
use crate::clock::now_ms;
use crate::database::query::query;
use crate::database::row::{Row, column, narrow, unsigned_option};
use crate::database::{Durability, Transaction};
use crate::error::StoreError;
use crate::pin::CatalogPins;
use crate::row::CatalogRow;
use crate::sql::{catalog as sql, pins as pins_sql};

/// An item's stored state before a catalog is saved.
struct StoredItem {
    position: u32,
    hash: String,
    version: u32,
    gone: bool,
    /// Nothing if it was saved before versions were.
    pin: Option<PinState>,
    change: ChangeClass,
    approved_hash: Option<String>,
}

/// How many versions of one thing are remembered, besides the one that is approved.
const MOST_VERSIONS: i64 = 20;
/// How many things that were added or have gone are compared to find what was renamed.
const MOST_COMPARED: usize = 32;

impl Store {
    /// Replaces the stored catalog of a server and returns its rows with their versions.
    ///
    /// The server must be registered. Of two rows with the same kind and name the first counts.
    /// An item that is not among the rows is removed; if it returns, its version numbers continue. Each new
    /// version of a tool, prompt or template is remembered, and judged by `pins`.
    pub async fn save_catalog(
        &self,
        server: ServerId,
        spec_fingerprint: &str,
        hello: &str,
        rows: &[CatalogRow],
        pins: &CatalogPins,
    ) -> Result<Vec<CatalogRow>, StoreError> {
        let id = server.to_string();
        let database = self.database();
        let mut transaction = database
            .begin("save a catalog", Durability::Process)
            .await?;
        let known = query(sql::HEAD).bind(&id);
        let known: Option<String> = transaction.optional(known, |row| column(row, 0)).await?;
        let head = query(sql::PUT_HEAD)
            .bind(&id)
            .bind(spec_fingerprint)
            .bind(hello)
            .bind(now_ms());
        let head = transaction.execute(head).await;
        head.map_err(|error| error.or_not_found(|| format!("server `{server}`")))?;
        let saved = save_items(&mut transaction, (&id, known.is_none()), rows, pins).await?;
        transaction.commit().await?;
        Ok(saved)
    }

    /// Returns the fingerprint, the handshake and the rows that were saved last, by kind and
    /// position.
    pub async fn load_catalog(
        &self,
        server: ServerId,
    ) -> Result<Option<(String, String, Vec<CatalogRow>)>, StoreError> {
        let server = server.to_string();
        // One transaction, so that both belong to the same save.
        let mut transaction = self.database().snapshot("load a catalog").await?;
        let head = query(sql::HEAD).bind(&server);
        let head = transaction.optional(head, |row| Ok((column(row, 0)?, column(row, 1)?)));
        let Some((fingerprint, hello)) = head.await? else {
            transaction.commit().await?;
            return Ok(None);
        };
        let items = query(sql::ITEMS).bind(&server);
        let items = transaction.rows(items, item).await?;
        transaction.commit().await?;
        Ok(Some((fingerprint, hello, items)))
    }
}

async fn save_items(
    transaction: &mut Transaction<'_>,
    (server, is_first): (&str, bool),
    rows: &[CatalogRow],
    pins: &CatalogPins,
) -> Result<Vec<CatalogRow>, StoreError> {
    let known = query(sql::KNOWN).bind(server);
    let known = transaction.rows(known, known_item).await?;
    let mut known: HashMap<_, _> = known.into_iter().collect();
    let now = now_ms();
    let mut saved = Vec::with_capacity(rows.len());
    let mut seen = HashSet::with_capacity(rows.len());
    let mut added = Vec::new();
    for row in rows {
        let key = (row.kind.clone(), row.name.clone());
        let before = known.remove(&key);
        if !seen.insert(key) {
            continue;
        }
        let listed = Listed {
            server,
            row,
            is_first,
        };
        let judged = listed.judge(transaction, before.as_ref(), pins).await?;
        let is_same = before.as_ref().is_some_and(|before| {
            !judged.is_new && before.position == row.position && !before.gone
        });
        if !is_same {
            listed.put(transaction, &judged, now).await?;
        }
        if judged.is_new && is_pinned(&row.kind) {
            listed.put_version(transaction, &judged, pins, now).await?;
            if judged.change == ChangeClass::Added {
                added.push((row, judged.version));
            }
        }
        saved.push(CatalogRow {
            version: judged.version,
            ..row.clone()
        });
    }
    known.retain(|_, item| !item.gone);
    guess_renames(transaction, server, &added, known.keys(), pins).await?;
    for (kind, name) in known.keys() {
        let gone = query(sql::MARK_GONE)
            .bind(server)
            .bind(kind)
            .bind(name)
            .bind(now);
        transaction.execute(gone).await?;
    }
    if !known.is_empty() {
        let forget = query(sql::FORGET_GONE).bind(server);
        transaction.execute(forget).await?;
    }
    Ok(saved)
}

/// Returns whether things of that kind are approved; resources come and go as data does.
fn is_pinned(kind: &str) -> bool {
    PINNED_KINDS.contains(&kind)
}

/// A row of a catalog that is being saved.
struct Listed<'a> {
    server: &'a str,
    row: &'a CatalogRow,
    /// The server was never listed before.
    is_first: bool,
}

/// What was decided of a row.
struct Judged {
    version: u32,
    /// It is not the version that was known.
    is_new: bool,
    change: ChangeClass,
    state: PinState,
    approved_hash: Option<String>,
    definition: String,
}

impl Listed<'_> {
    /// Counts the version, and decides whether it is approved.
    async fn judge(
        &self,
        transaction: &mut Transaction<'_>,
        before: Option<&StoredItem>,
        pins: &CatalogPins,
    ) -> Result<Judged, StoreError> {
        let row = self.row;
        let listed = pins.listed.get(&(row.kind.clone(), row.name.clone()));
        let has_findings = listed.is_some_and(|listed| !listed.findings.is_empty());
        let definition = match listed {
            Some(listed) => listed.canonical.clone(),
            None => canonical_or_as_it_is(&row.definition),
        };
        let judged = |version, is_new, change, state, approved_hash: Option<String>| Judged {
            version,
            is_new,
            change,
            state,
            approved_hash,
            definition: definition.clone(),
        };
        let decided = |version, change, approved_hash: Option<String>, was: Option<PinState>| {
            let state = match (was, is_pinned(&row.kind)) {
                (_, false) => PinState::Approved,
                // Somebody refused this very version before.
                (Some(PinState::Refused), true) => PinState::Refused,
                (_, true) => pins.policy.judge(change, has_findings),
            };
            let approved_hash = match state {
                PinState::Approved => Some(row.hash.clone()),
                PinState::Unapproved | PinState::Refused => approved_hash,
            };
            judged(version, true, change, state, approved_hash)
        };
        let Some(before) = before else {
            let change = match self.is_first {
                true => ChangeClass::First,
                false => ChangeClass::Added,
            };
            return Ok(decided(1, change, None, None));
        };
        let Some(pin) = &before.pin else {
            return self
                .judge_unpinned(transaction, before, &definition, decided)
                .await;
        };
        if before.hash == row.hash {
            let approved = before.approved_hash.clone();
            return Ok(judged(before.version, false, before.change, *pin, approved));
        }
        let version = before.version.saturating_add(1);
        let approved = before.approved_hash.clone();
        let change = match &approved {
            Some(hash) if *hash == row.hash => ChangeClass::Same,
            Some(hash) => match self.with_hash(transaction, hash).await? {
                Some((approved, _)) => classify(&approved, &definition),
                None => ChangeClass::Breaking,
            },
            // Nothing was ever approved: what was new is still new, unless new servers are trusted by
            // now, so that it was offered.
            None if before.change == ChangeClass::First
                && pins.policy.new_servers == OnFirstList::Trust =>
            {
                match self.with_hash(transaction, &before.hash).await? {
                    Some((offered, _)) => classify(&offered, &definition),
                    None => ChangeClass::Breaking,
                }
            }
            None => before.change,
        };
        let was = self.with_hash(transaction, &row.hash).await?;
        Ok(decided(
            version,
            change,
            approved,
            was.map(|(_, state)| state),
        ))
    }

    /// Decides on something that was saved before versions were: it was offered, so that what is still
    /// the same counts as approved.
    async fn judge_unpinned(
        &self,
        transaction: &mut Transaction<'_>,
        before: &StoredItem,
        definition: &str,
        decided: impl Fn(u32, ChangeClass, Option<String>, Option<PinState>) -> Judged,
    ) -> Result<Judged, StoreError> {
        let row = self.row;
        let old = query(sql::DEFINITION)
            .bind(self.server)
            .bind(row.kind.as_str())
            .bind(row.name.as_str());
        let old: Option<String> = transaction.optional(old, |row| column(row, 0)).await?;
        let old = canonical_or_as_it_is(&old.unwrap_or_default());
        if before.hash == row.hash || old == canonical_or_as_it_is(&row.definition) {
            return Ok(decided(before.version, ChangeClass::Same, None, None));
        }
        let now = now_ms();
        let approved = query(pins_sql::PUT_VERSION)
            .bind(self.server)
            .bind(row.kind.as_str())
            .bind(row.name.as_str())
            .bind(before.version)
            .bind(before.hash.as_str())
            .bind(old.as_str())
            .bind(ChangeClass::First.as_str())
            .bind(None::<&str>)
            .bind(Json([(); 0]))
            .bind(now)
            .bind(PinState::Approved.as_str())
            .bind("policy")
            .bind(now);
        transaction.execute(approved).await?;
        let (version, change) = (before.version.saturating_add(1), classify(&old, definition));
        Ok(decided(version, change, Some(before.hash.clone()), None))
    }

    /// Returns the definition and the state of the newest version with a hash.
    async fn with_hash(
        &self,
        transaction: &mut Transaction<'_>,
        hash: &str,
    ) -> Result<Option<(String, PinState)>, StoreError> {
        let version = query(pins_sql::WITH_HASH)
            .bind(self.server)
            .bind(self.row.kind.as_str())
            .bind(self.row.name.as_str())
            .bind(hash);
        let read = |row: &Row| Ok((column(row, 0)?, state(row, 1)?));
        transaction.optional(version, read).await
    }

    async fn put(
        &self,
        transaction: &mut Transaction<'_>,
        judged: &Judged,
        now: i64,
    ) -> Result<(), StoreError> {
        let row = self.row;
        let put = query(sql::PUT_ITEM)
            .bind(self.server)
            .bind(row.kind.as_str())
            .bind(row.name.as_str())
            .bind(row.position)
            .bind(row.definition.as_str())
            .bind(row.hash.as_str())
            .bind(judged.version)
            .bind(now)
            .bind(judged.state.as_str())
            .bind(judged.change.as_str())
            .bind(judged.approved_hash.as_ref());
        transaction.execute(put).await.map(drop)
    }

    async fn put_version(
        &self,
        transaction: &mut Transaction<'_>,
        judged: &Judged,
        pins: &CatalogPins,
        now: i64,
    ) -> Result<(), StoreError> {
        let row = self.row;
        let listed = pins.listed.get(&(row.kind.clone(), row.name.clone()));
        let findings = listed.map_or(&[][..], |listed| &listed.findings);
        let is_decided = judged.state != PinState::Unapproved;
        let put = query(pins_sql::PUT_VERSION)
            .bind(self.server)
            .bind(row.kind.as_str())
            .bind(row.name.as_str())
            .bind(judged.version)
            .bind(row.hash.as_str())
            .bind(judged.definition.as_str())
            .bind(judged.change.as_str())
            .bind(None::<&str>)
            .bind(Json(findings))
            .bind(now)
            .bind(judged.state.as_str())
            .bind(is_decided.then_some("policy"))
            .bind(is_decided.then_some(now));
        transaction.execute(put).await?;
        // Most have few versions, and a statement costs a round trip.
        if i64::from(judged.version) <= MOST_VERSIONS {
            return Ok(());
        }
        let forget = query(pins_sql::FORGET_VERSIONS)
            .bind(self.server)
            .bind(row.kind.as_str())
            .bind(row.name.as_str())
            .bind(i64::from(judged.version) - MOST_VERSIONS)
            .bind(judged.approved_hash.as_deref().unwrap_or(""));
        transaction.execute(forget).await.map(drop)
    }
}

/// Notes of what was added which of the things that have gone it most likely was.
async fn guess_renames(
    transaction: &mut Transaction<'_>,
    server: &str,
    added: &[(&CatalogRow, u32)],
    gone: impl Iterator<Item = &(String, String)>,
    pins: &CatalogPins,
) -> Result<(), StoreError> {
    if added.is_empty() {
        return Ok(());
    }
    let mut old = Vec::new();
    for (kind, name) in gone.filter(|(kind, _)| is_pinned(kind)).take(MOST_COMPARED) {
        let last = query(pins_sql::LAST_DEFINITION)
            .bind(server)
            .bind(kind)
            .bind(name);
        let last: Option<String> = transaction.optional(last, |row| column(row, 0)).await?;
        old.extend(last.map(|definition| (kind, name, definition)));
    }
    for (row, version) in added.iter().take(MOST_COMPARED) {
        let listed = pins.listed.get(&(row.kind.clone(), row.name.clone()));
        let definition = match listed {
            Some(listed) => listed.canonical.clone(),
            None => canonical_or_as_it_is(&row.definition),
        };
        let same_kind = old.iter().filter(|(kind, _, _)| **kind == row.kind);
        let gone = same_kind.map(|(_, name, definition)| (name.as_str(), definition.as_str()));
        if let Some(from) = likely_rename(&definition, gone) {
            let note = query(pins_sql::NOTE_RENAME)
                .bind(server)
                .bind(row.kind.as_str())
                .bind(row.name.as_str())
                .bind(*version)
                .bind(from);
            transaction.execute(note).await?;
        }
    }
    Ok(())
}

/// Returns the canonical form of a stored definition; one that is damaged is taken as it is.
fn canonical_or_as_it_is(definition: &str) -> String {
    match validate(definition, &Limits::default()) {
        Ok(raw) => canonical(raw),
        Err(_) => definition.to_owned(),
    }
}

fn known_item(row: &Row) -> Result<((String, String), StoredItem), sqlx::Error> {
    let pin: String = column(row, 6)?;
    let item = StoredItem {
        position: narrow(row, 2)?,
        hash: column(row, 3)?,
        version: narrow(row, 4)?,
        gone: unsigned_option(row, 5)?.is_some(),
        pin: PinState::parse(&pin),
        change: change(row, 7)?,
        approved_hash: column(row, 8)?,
    };
    Ok(((column(row, 0)?, column(row, 1)?), item))
}

fn item(row: &Row) -> Result<CatalogRow, sqlx::Error> {
    Ok(CatalogRow {
        kind: column(row, 0)?,
        name: column(row, 1)?,
        position: narrow(row, 2)?,
        definition: column(row, 3)?,
        hash: column(row, 4)?,
        version: narrow(row, 5)?,
    })
}
