//! Events of servers. Statements are in `sql::events`.

use std::collections::HashSet;

use gantry_model::event::{EventKind, ServerEvent};
use gantry_model::id::{ProjectName, ServerName};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};

use super::Store;
use super::hosting::follow_event;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::{Row, column, parsed, signed, unsigned};
use crate::error::StoreError;
use crate::sql::events as sql;

impl Store {
    /// Writes events of servers, keeping the newest thousand of each.
    pub async fn put_events(
        &self,
        events: &[(ProjectName, ServerEvent)],
    ) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let database = self.database();
        let begun = database.begin("write down events", Durability::Process);
        let mut transaction = begun.await?;
        let mut touched = HashSet::new();
        for (project, event) in events {
            let put = query(sql::PUT)
                .bind(project.as_str())
                .bind(event.server.as_str())
                .bind(event.at_ms)
                .bind(event.kind.as_str())
                .bind(event.detail.as_str())
                .bind(self.number());
            transaction.execute(put).await?;
            follow_event(&mut transaction, project, event).await?;
            touched.insert((project, &event.server));
        }
        for (project, server) in touched {
            let prune = query(sql::PRUNE)
                .bind(project.as_str())
                .bind(server.as_str());
            transaction.execute(prune).await?;
        }
        transaction.commit().await
    }

    /// Returns the newest events before one, newest last, each with its number.
    pub async fn events_before(
        &self,
        project: &ProjectName,
        server: Option<&ServerName>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, StoreError> {
        let statement = match server {
            Some(_) => sql::OF_SERVER,
            None => sql::OF_PROJECT,
        };
        let mut list = query(statement)
            .bind(project.as_str())
            .bind(limit)
            .bind(before.map_or(i64::MAX, signed));
        if let Some(server) = server {
            list = list.bind(server.as_str());
        }
        let mut events = self.database().rows("list events", list, numbered).await?;
        events.reverse();
        Ok(events)
    }

    /// Returns the next events after one, oldest first, each with its number.
    pub async fn events_after(
        &self,
        project: &ProjectName,
        server: Option<&ServerName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, StoreError> {
        let statement = match server {
            Some(_) => sql::NEXT_OF_SERVER,
            None => sql::NEXT_OF_PROJECT,
        };
        let mut next = query(statement)
            .bind(project.as_str())
            .bind(limit)
            .bind(after);
        if let Some(server) = server {
            next = next.bind(server.as_str());
        }
        self.database().rows("follow events", next, numbered).await
    }
}

fn numbered(row: &Row) -> Result<(u64, ServerEvent), sqlx::Error> {
    Ok((unsigned(row, 4)?, event(row)?))
}

fn event(row: &Row) -> Result<ServerEvent, sqlx::Error> {
    let server = match column::<&str>(row, 0)? {
        ServerName::NATIVE => ServerName::native(),
        _ => parsed(row, 0)?,
    };
    let word: StrDeserializer<'_, WordError> = column::<&str>(row, 2)?.into_deserializer();
    let kind =
        EventKind::deserialize(word).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(ServerEvent {
        at_ms: unsigned(row, 1)?,
        server,
        kind,
        detail: column(row, 3)?,
    })
}
