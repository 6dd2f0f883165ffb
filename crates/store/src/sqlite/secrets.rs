//! Sealed values, which go in and come out as they are. Statements are in `sql::secrets`.

use gantry_model::id::ProjectName;

use super::value::column;
use super::writer::Durability;
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::row::SealedRow;
use crate::sql::secrets as sql;
use crate::sqlite::servers::ensure_project;

impl SqliteStore {
    pub(crate) async fn put_sealed(&self, row: &SealedRow) -> Result<(), StoreError> {
        const WHAT: &str = "keep a sealed value";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        let known = ensure_project(&mut transaction, &row.project).await;
        known.map_err(|error| self.failed(WHAT, error))?;
        let put = sqlx::query(sql::PUT)
            .bind(row.project.as_str())
            .bind(&row.scope)
            .bind(&row.name)
            .bind(&row.key_id)
            .bind(&row.nonce)
            .bind(&row.ciphertext)
            .bind(now_ms())
            .execute(&mut *transaction)
            .await;
        put.map_err(|error| self.failed(WHAT, error))?;
        transaction
            .commit()
            .await
            .map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        // The value of before may be in the log.
        self.removed().await;
        Ok(())
    }

    pub(crate) async fn sealed(
        &self,
        project: &ProjectName,
        scope: &str,
        name: &str,
    ) -> Result<Option<SealedRow>, StoreError> {
        const WHAT: &str = "read a sealed value";
        let mut reader = self.readers.take(WHAT).await?;
        let query = sqlx::query(sql::ONE)
            .bind(project.as_str())
            .bind(scope)
            .bind(name);
        let row = query.fetch_optional(reader.connection()).await;
        let row = row.map_err(|error| self.failed(WHAT, error))?;
        let read = row.map(|row| {
            Ok(SealedRow {
                project: project.clone(),
                scope: scope.to_owned(),
                name: name.to_owned(),
                key_id: column(&row, 0)?,
                nonce: column(&row, 1)?,
                ciphertext: column(&row, 2)?,
            })
        });
        read.transpose().map_err(|error| self.failed(WHAT, error))
    }

    pub(crate) async fn remove_sealed(
        &self,
        project: &ProjectName,
        scope: &str,
        name: &str,
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "remove a sealed value";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let remove = sqlx::query(sql::REMOVE)
            .bind(project.as_str())
            .bind(scope)
            .bind(name);
        let removed = remove.execute(turn.connection()?).await;
        let removed = removed.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        self.removed().await;
        Ok(removed.rows_affected() > 0)
    }
}
