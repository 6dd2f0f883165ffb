//! The field of an option in a spec, whatever its type: read and written as JSON, durations as
//! text.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::spec::period;

/// A field of a spec.
pub enum Field<'s> {
    /// A duration.
    Period(&'s mut Duration),
    /// An optional duration.
    MaybePeriod(&'s mut Option<Duration>),
    /// Durations.
    Periods(&'s mut Vec<Duration>),
    /// Any type with its own stored form.
    Plain(&'s mut dyn Plain),
    /// A value that is fixed for the kind of server.
    Fixed(&'static str),
}

impl Field<'_> {
    /// Returns the value, `null` if there is none.
    pub(super) fn get(&self) -> Json {
        match self {
            Self::Period(time) => period::show(**time).into(),
            Self::MaybePeriod(time) => time.map(period::show).into(),
            Self::Periods(times) => times.iter().copied().map(period::show).collect(),
            Self::Plain(field) => field.get(),
            Self::Fixed(value) => (*value).into(),
        }
    }

    /// Sets a value.
    pub(super) fn set(self, value: Json) -> Result<(), serde_json::Error> {
        match self {
            Self::Period(time) => *time = period::deserialize(value)?,
            Self::MaybePeriod(time) => *time = period::option::deserialize(value)?,
            Self::Periods(times) => *times = period::list::deserialize(value)?,
            Self::Plain(field) => field.set(value)?,
            Self::Fixed(_) => {}
        }
        Ok(())
    }
}

/// A field whose type has a stored form.
pub trait Plain {
    /// Returns the stored form.
    fn get(&self) -> Json;
    /// Sets the value from its stored form.
    fn set(&mut self, value: Json) -> Result<(), serde_json::Error>;
}

impl<T: Serialize + DeserializeOwned> Plain for T {
    fn get(&self) -> Json {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn set(&mut self, value: Json) -> Result<(), serde_json::Error> {
        *self = serde_json::from_value(value)?;
        Ok(())
    }
}
