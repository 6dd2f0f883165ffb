//! The settings of projects. Statements are in `sql::settings`.

use gantry_model::id::ProjectName;
use serde_json::Value;
use sqlx::types::Json;

use super::Store;
use super::servers::ensure_project;
use crate::clock::now_ms;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::column;
use crate::error::StoreError;
use crate::sql::settings as sql;

impl Store {
    /// Returns the settings of a project that are not at their default, by name.
    pub async fn settings(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<(String, Value)>, StoreError> {
        const WHAT: &str = "read the settings of a project";
        let all = query(sql::OF_PROJECT).bind(project.as_str());
        let settings = self.database().rows(WHAT, all, |row| {
            let Json(value) = column(row, 1)?;
            Ok((column(row, 0)?, value))
        });
        settings.await
    }

    /// Changes settings of a project, all of them or none; without a value one is at its default again.
    pub async fn change_settings(
        &self,
        project: &ProjectName,
        changes: &[(String, Option<Value>)],
    ) -> Result<(), StoreError> {
        const WHAT: &str = "change the settings of a project";
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        ensure_project(&mut transaction, project).await?;
        for (name, value) in changes {
            let change = match value {
                Some(value) => query(sql::PUT)
                    .bind(project.as_str())
                    .bind(name.as_str())
                    .bind(Json(value))
                    .bind(now_ms()),
                None => query(sql::REMOVE)
                    .bind(project.as_str())
                    .bind(name.as_str()),
            };
            transaction.execute(change).await?;
        }
        transaction.commit().await
    }
}
