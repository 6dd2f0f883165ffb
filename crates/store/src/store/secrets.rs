//! Encrypted values and named secrets, stored unchanged, and the id of the master key that encrypts
//! them. Statements are in `sql::secrets`. Nothing here can decrypt a value.

use gantry_model::id::{ProjectName, ServerName};
use sqlx::types::Json;

use super::Store;
use super::servers::ensure_project;
use crate::clock::now_ms;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::{column, narrow, parsed, unsigned, unsigned_option};
use crate::error::StoreError;
use crate::row::{SealedRow, SecretRow, ServerRow};
use crate::sql::secrets as sql;
use crate::sql::servers::RESEAL as RESEAL_SERVER;

impl Store {
    /// Stores an encrypted value, replacing the one of the same scope and name.
    pub async fn put_sealed(&self, row: &SealedRow) -> Result<(), StoreError> {
        const WHAT: &str = "keep a sealed value";
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        ensure_project(&mut transaction, &row.project).await?;
        let put = query(sql::PUT)
            .bind(row.project.as_str())
            .bind(&row.scope)
            .bind(&row.name)
            .bind(&row.key_id)
            .bind(&row.nonce)
            .bind(&row.ciphertext)
            .bind(now_ms());
        transaction.execute(put).await?;
        transaction.commit().await?;
        // The previous value may be in the log.
        self.database().removed().await;
        Ok(())
    }

    /// Returns a sealed value.
    pub async fn sealed(
        &self,
        project: &ProjectName,
        scope: &str,
        name: &str,
    ) -> Result<Option<SealedRow>, StoreError> {
        let one = query(sql::ONE)
            .bind(project.as_str())
            .bind(scope)
            .bind(name);
        let sealed = self.database().optional("read a sealed value", one, |row| {
            Ok(SealedRow {
                project: project.clone(),
                scope: scope.to_owned(),
                name: name.to_owned(),
                key_id: column(row, 0)?,
                nonce: column(row, 1)?,
                ciphertext: column(row, 2)?,
                version: narrow(row, 3)?,
            })
        });
        sealed.await
    }

    /// Removes an encrypted value; returns whether it existed.
    pub async fn remove_sealed(
        &self,
        project: &ProjectName,
        scope: &str,
        name: &str,
    ) -> Result<bool, StoreError> {
        let remove = query(sql::REMOVE)
            .bind(project.as_str())
            .bind(scope)
            .bind(name);
        let database = self.database();
        let removed = database.execute("remove a sealed value", Durability::Power, remove);
        let removed = removed.await?;
        database.removed().await;
        Ok(removed > 0)
    }

    /// Stores a named secret, replacing its version `before`, 0 for none; false if another version
    /// exists.
    pub async fn put_secret(&self, row: &SecretRow, before: u32) -> Result<bool, StoreError> {
        let database = self.database();
        let mut transaction = database.begin("keep a secret", Durability::Power).await?;
        let sealed = &row.sealed;
        ensure_project(&mut transaction, &sealed.project).await?;
        let put = query(sql::PUT_NAMED)
            .bind(sealed.project.as_str())
            .bind(&sealed.name)
            .bind(&sealed.key_id)
            .bind(&sealed.nonce)
            .bind(&sealed.ciphertext)
            .bind(sealed.version)
            .bind(&row.fingerprint)
            .bind(now_ms())
            .bind(before);
        let put = transaction.execute(put).await?;
        transaction.commit().await?;
        database.removed().await;
        Ok(put > 0)
    }

    /// Returns a project's named secrets, by name.
    pub async fn secrets(&self, project: &ProjectName) -> Result<Vec<SecretRow>, StoreError> {
        let all = query(sql::NAMED).bind(project.as_str());
        let secrets = self.database().rows("list secrets", all, |row| {
            Ok(SecretRow {
                sealed: SealedRow {
                    project: project.clone(),
                    scope: String::new(),
                    name: column(row, 0)?,
                    key_id: column(row, 1)?,
                    nonce: column(row, 2)?,
                    ciphertext: column(row, 3)?,
                    version: narrow(row, 4)?,
                },
                fingerprint: column::<Option<String>>(row, 5)?.unwrap_or_default(),
                created_ms: unsigned(row, 6)?,
                updated_ms: unsigned(row, 7)?,
                used_ms: unsigned_option(row, 8)?,
                used_by: column(row, 9)?,
            })
        });
        secrets.await
    }

    /// Records which server received secrets, and when.
    pub async fn note_secrets_used(
        &self,
        project: &ProjectName,
        names: &[String],
        server: &ServerName,
        at_ms: u64,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "note the use of secrets";
        let mut transaction = self.database().begin(WHAT, Durability::Process).await?;
        for name in names {
            let used = query(sql::USED)
                .bind(project.as_str())
                .bind(name)
                .bind(at_ms)
                .bind(server.as_str());
            transaction.execute(used).await?;
        }
        transaction.commit().await
    }

    /// Returns the sealed values of all projects.
    pub async fn all_sealed(&self) -> Result<Vec<SealedRow>, StoreError> {
        let all = query(sql::ALL_SEALED);
        let sealed = self.database().rows("list sealed values", all, |row| {
            Ok(SealedRow {
                project: parsed(row, 0)?,
                scope: column(row, 1)?,
                name: column(row, 2)?,
                key_id: column(row, 3)?,
                nonce: column(row, 4)?,
                ciphertext: column(row, 5)?,
                version: narrow(row, 6)?,
            })
        });
        sealed.await
    }

    /// Writes values, their fingerprints and specs that were encrypted with another key, and
    /// records that key, in one transaction.
    pub async fn reseal(
        &self,
        rows: &[(SealedRow, Option<String>)],
        servers: &[ServerRow],
        key_id: &str,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "encrypt everything with another key";
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        for (row, fingerprint) in rows {
            let reseal = query(sql::RESEAL)
                .bind(row.project.as_str())
                .bind(&row.scope)
                .bind(&row.name)
                .bind(&row.key_id)
                .bind(&row.nonce)
                .bind(&row.ciphertext)
                .bind(fingerprint.as_deref());
            transaction.execute(reseal).await?;
        }
        for row in servers {
            let reseal = query(RESEAL_SERVER)
                .bind(row.id.to_string())
                .bind(Json(&row.spec));
            transaction.execute(reseal).await?;
        }
        let retire = query(sql::RETIRE_MASTER_KEYS).bind(now_ms());
        transaction.execute(retire).await?;
        let put = query(sql::USE_MASTER_KEY).bind(key_id).bind(now_ms());
        transaction.execute(put).await?;
        transaction.commit().await?;
        self.database().removed().await;
        Ok(())
    }

    /// Returns whether there are encrypted values in any project.
    pub async fn has_sealed(&self) -> Result<bool, StoreError> {
        const WHAT: &str = "look for sealed values";
        let any = query(sql::ANY_SEALED);
        self.database().one(WHAT, any, |row| column(row, 0)).await
    }

    /// Returns the id of the master key that encrypts the values, if one was recorded.
    pub async fn master_key(&self) -> Result<Option<String>, StoreError> {
        const WHAT: &str = "read the id of the master key";
        let key = query(sql::MASTER_KEY);
        let database = self.database();
        database.optional(WHAT, key, |row| column(row, 0)).await
    }

    /// Records a master key, unless there is one.
    pub async fn put_master_key(&self, key_id: &str) -> Result<(), StoreError> {
        const WHAT: &str = "keep the id of the master key";
        let put = query(sql::PUT_MASTER_KEY).bind(key_id).bind(now_ms());
        let put = self.database().execute(WHAT, Durability::Power, put);
        put.await.map(drop)
    }
}
