//! The settings of projects. Statements are in `sql::settings`.

use gantry_model::id::ProjectName;
use serde_json::Value;
use sqlx::types::Json;

use super::servers::ensure_project;
use super::value::column;
use super::writer::Durability;
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::sql::settings as sql;

impl SqliteStore {
    pub(crate) async fn settings(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<(String, Value)>, StoreError> {
        const WHAT: &str = "read the settings of a project";
        let mut reader = self.readers.take(WHAT).await?;
        let query = sqlx::query(sql::OF_PROJECT).bind(project.as_str());
        let rows = query.fetch_all(reader.connection()).await;
        self.decoded(WHAT, rows, |row| {
            let Json(value) = column(row, 1)?;
            Ok((column(row, 0)?, value))
        })
    }

    pub(crate) async fn change_settings(
        &self,
        project: &ProjectName,
        changes: &[(String, Option<Value>)],
    ) -> Result<(), StoreError> {
        const WHAT: &str = "change the settings of a project";
        let failed = |error| self.failed(WHAT, error);
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        ensure_project(&mut transaction, project)
            .await
            .map_err(failed)?;
        for (name, value) in changes {
            let change = match value {
                Some(value) => sqlx::query(sql::PUT)
                    .bind(project.as_str())
                    .bind(name.as_str())
                    .bind(Json(value))
                    .bind(now_ms()),
                None => sqlx::query(sql::REMOVE)
                    .bind(project.as_str())
                    .bind(name.as_str()),
            };
            change.execute(&mut *transaction).await.map_err(failed)?;
        }
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(())
    }
}
