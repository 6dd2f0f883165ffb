//! What happened to servers. Statements are in `sql::events`.

use std::collections::HashSet;

use gantry_model::event::{EventKind, ServerEvent};
use gantry_model::id::{ProjectName, ServerName};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::SqliteStore;
use super::hosting::follow_event;
use super::value::{column, parsed, signed, unsigned};
use super::writer::Durability;
use crate::error::StoreError;
use crate::sql::events as sql;

impl SqliteStore {
    pub(crate) async fn put_events(
        &self,
        events: &[(ProjectName, ServerEvent)],
    ) -> Result<(), StoreError> {
        const WHAT: &str = "write down events";
        if events.is_empty() {
            return Ok(());
        }
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let mut transaction = turn.begin().await?;
        let put = put_events(&mut transaction, events, self.number()).await;
        put.map_err(|error| self.failed(WHAT, error))?;
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn events(
        &self,
        project: &ProjectName,
        server: Option<&ServerName>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, StoreError> {
        const WHAT: &str = "list events";
        let mut reader = self.readers.take(WHAT).await?;
        let statement = if server.is_some() {
            sql::OF_SERVER
        } else {
            sql::OF_PROJECT
        };
        let mut query = sqlx::query(statement)
            .bind(project.as_str())
            .bind(i64::from(limit))
            .bind(before.map_or(i64::MAX, signed));
        if let Some(server) = server {
            query = query.bind(server.as_str());
        }
        let rows = query.fetch_all(reader.connection()).await;
        let rows = rows.map_err(|error| self.failed(WHAT, error))?;
        let events = rows.iter().rev().map(numbered).collect::<Result<_, _>>();
        events.map_err(|error| self.failed(WHAT, error))
    }

    pub(crate) async fn events_after(
        &self,
        project: &ProjectName,
        server: Option<&ServerName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, StoreError> {
        const WHAT: &str = "follow events";
        let mut reader = self.readers.take(WHAT).await?;
        let statement = match server {
            Some(_) => sql::NEXT_OF_SERVER,
            None => sql::NEXT_OF_PROJECT,
        };
        let mut query = sqlx::query(statement)
            .bind(project.as_str())
            .bind(i64::from(limit))
            .bind(signed(after));
        if let Some(server) = server {
            query = query.bind(server.as_str());
        }
        let rows = query.fetch_all(reader.connection()).await;
        let rows = rows.map_err(|error| self.failed(WHAT, error))?;
        let events = rows.iter().map(numbered).collect::<Result<_, _>>();
        events.map_err(|error| self.failed(WHAT, error))
    }
}

async fn put_events(
    connection: &mut SqliteConnection,
    events: &[(ProjectName, ServerEvent)],
    gateway: i64,
) -> Result<(), sqlx::Error> {
    let mut touched = HashSet::new();
    for (project, event) in events {
        let insert = sqlx::query(sql::PUT)
            .bind(project.as_str())
            .bind(event.server.as_str())
            .bind(signed(event.at_ms))
            .bind(event.kind.as_str())
            .bind(event.detail.as_str())
            .bind(gateway);
        insert.execute(&mut *connection).await?;
        follow_event(&mut *connection, project, event).await?;
        touched.insert((project, &event.server));
    }
    for (project, server) in touched {
        let prune = sqlx::query(sql::PRUNE)
            .bind(project.as_str())
            .bind(server.as_str());
        prune.execute(&mut *connection).await?;
    }
    Ok(())
}

fn numbered(row: &SqliteRow) -> Result<(u64, ServerEvent), sqlx::Error> {
    Ok((unsigned(row, 4)?, event(row)?))
}

fn event(row: &SqliteRow) -> Result<ServerEvent, sqlx::Error> {
    let server = match column::<&str, _>(row, 0)? {
        ServerName::NATIVE => ServerName::native(),
        _ => parsed(row, 0)?,
    };
    let word: StrDeserializer<'_, WordError> = column::<&str, _>(row, 2)?.into_deserializer();
    let kind =
        EventKind::deserialize(word).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(ServerEvent {
        at_ms: unsigned(row, 1)?,
        server,
        kind,
        detail: column(row, 3)?,
    })
}
