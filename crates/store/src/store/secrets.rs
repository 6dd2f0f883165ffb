//! Sealed values, which go in and come out as they are. Statements are in `sql::secrets`.

use gantry_model::id::ProjectName;

use super::Store;
use super::servers::ensure_project;
use crate::clock::now_ms;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::column;
use crate::error::StoreError;
use crate::row::SealedRow;
use crate::sql::secrets as sql;

impl Store {
    /// Keeps a sealed value, in place of the one of the same scope and name.
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
        // The value of before may be in the log.
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
            })
        });
        sealed.await
    }

    /// Removes a sealed value; tells whether it was there.
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
}
