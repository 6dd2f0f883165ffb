//! Keys. Statements are in `sql::keys`.

use gantry_model::caller::{KeyKind, Role};
use gantry_model::id::KeyId;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::SqliteStore;
use super::servers::ensure_agent;
use super::value::{column, parsed, signed, signed_option, unexpected, unsigned, unsigned_option};
use super::writer::Durability;
use crate::error::StoreError;
use crate::row::{GrantRow, KeyRow};
use crate::sql::keys as sql;

impl SqliteStore {
    pub(crate) async fn put_key(&self, row: &KeyRow) -> Result<(), StoreError> {
        const WHAT: &str = "store a key";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        self.insert_key(&mut transaction, row).await?;
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(())
    }

    /// Stores a data folder's first grant and keys, all of them or none.
    pub(crate) async fn put_first(
        &self,
        grant: &GrantRow,
        keys: &[KeyRow],
    ) -> Result<(), StoreError> {
        const WHAT: &str = "store the first keys";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        self.insert_grant(&mut transaction, grant).await?;
        for key in keys {
            self.insert_key(&mut transaction, key).await?;
        }
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(())
    }

    async fn insert_key(
        &self,
        connection: &mut SqliteConnection,
        row: &KeyRow,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "store a key";
        let known = ensure_agent(connection, &row.project, &row.agent).await;
        known.map_err(|error| self.failed(WHAT, error))?;
        let insert = sqlx::query(sql::PUT)
            .bind(row.id.to_string())
            .bind(row.project.as_str())
            .bind(row.agent.as_str())
            .bind(kind_text(row.kind))
            .bind(row.digest.as_slice())
            .bind(row.label.as_str())
            .bind(signed(row.created_ms))
            .bind(signed_option(row.revoked_ms))
            .bind(signed_option(row.expires_ms))
            .bind(row.kind.role().map(Role::as_str))
            .execute(connection);
        let inserted = insert.await.map(drop);
        inserted.map_err(|error| match error.as_database_error() {
            Some(unique) if unique.is_unique_violation() => StoreError::Conflict {
                what: format!("key `{}`", row.id),
            },
            _ => self.failed(WHAT, error),
        })
    }

    pub(crate) async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        const WHAT: &str = "list keys";
        let mut reader = self.readers.take(WHAT).await?;
        let rows = sqlx::query(sql::LIVE).fetch_all(reader.connection()).await;
        self.decoded(WHAT, rows, key)
    }

    pub(crate) async fn revoke_key(&self, id: KeyId, at_ms: u64) -> Result<bool, StoreError> {
        const WHAT: &str = "revoke a key";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let revoke = sqlx::query(sql::REVOKE)
            .bind(id.to_string())
            .bind(signed(at_ms));
        let revoked = revoke.execute(turn.connection()?).await;
        let revoked = revoked.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(revoked.rows_affected() > 0)
    }
}

const fn kind_text(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Admin(_) => "admin",
        KeyKind::Agent => "agent",
    }
}

/// Reads the role of an administrator's key.
fn role(row: &SqliteRow) -> Result<Role, sqlx::Error> {
    let text: &str = column(row, 9)?;
    text.parse().map_err(|_| unexpected("role", text))
}

fn key(row: &SqliteRow) -> Result<KeyRow, sqlx::Error> {
    let digest: &[u8] = column(row, 4)?;
    let kind = match column::<&str, _>(row, 3)? {
        "admin" => KeyKind::Admin(role(row)?),
        "agent" => KeyKind::Agent,
        other => return Err(unexpected("kind of key", other)),
    };
    Ok(KeyRow {
        id: parsed(row, 0)?,
        project: parsed(row, 1)?,
        agent: parsed(row, 2)?,
        kind,
        digest: digest
            .try_into()
            .map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        label: column(row, 5)?,
        created_ms: unsigned(row, 6)?,
        revoked_ms: unsigned_option(row, 7)?,
        expires_ms: unsigned_option(row, 8)?,
    })
}
