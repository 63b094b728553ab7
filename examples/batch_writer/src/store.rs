//! Where the rows go: a database, a table of it, a row for each event.

use std::{
    env,
    fmt::{self, Display},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail};
use tokio_postgres::Config;

use crate::{error::WriteError, event::Event};

pub(crate) mod postgres;
pub(crate) mod sqlite;

/// Events and the numbers under which they are stored.
pub(crate) trait Rows: Send + Sync + 'static {
    fn rows(&self) -> impl Iterator<Item = (u64, &Event)> + Send;

    /// Some of them may be stored already, by an attempt that did not live to tell.
    fn were_sent_before(&self) -> bool;
}

/// The tables of a database, one for each contender.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table {
    Controller,
    Channel,
    Singly,
}

impl Table {
    const ALL: [Self; 3] = [Self::Controller, Self::Channel, Self::Singly];

    fn name(self) -> &'static str {
        match self {
            Self::Controller => "batch_writer",
            Self::Channel => "batch_writer_channel",
            Self::Singly => "batch_writer_singly",
        }
    }
}

/// A database that can be named on a command line.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite(PathBuf),
    Postgres(Arc<Config>),
}

impl Database {
    /// Drops the tables of an earlier run.
    pub(crate) async fn clear(&self) -> Result<(), WriteError> {
        match self {
            Self::Sqlite(file) => sqlite::clear(file).await,
            Self::Postgres(config) => postgres::clear(config).await,
        }
    }

    /// Makes `table`, which must not be there yet.
    pub(crate) async fn create(&self, table: Table) -> Result<Store, WriteError> {
        Ok(match self {
            Self::Sqlite(file) => Store::Sqlite(sqlite::Store::create(file, table).await?),
            Self::Postgres(config) => Store::Postgres(postgres::Store::create(config, table).await?),
        })
    }

    /// Counts what was committed.
    pub(crate) async fn count(&self, table: Table) -> Result<Count, WriteError> {
        match self {
            Self::Sqlite(file) => sqlite::count(file, table).await,
            Self::Postgres(config) => postgres::count(config, table).await,
        }
    }
}

impl Default for Database {
    fn default() -> Self {
        Self::Sqlite(env::temp_dir().join("batch_writer.sqlite"))
    }
}

impl FromStr for Database {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':') {
            Some(("sqlite", file)) if !file.is_empty() => Ok(Self::Sqlite(file.into())),
            Some(("postgres", rest)) => {
                // A URL begins with the same word.
                let options = if rest.starts_with("//") { text } else { rest };
                let config = postgres::config(options).map_err(|error| anyhow!("{:#}", anyhow::Error::new(error)))?;
                Ok(Self::Postgres(Arc::new(config)))
            }
            _ => bail!("try sqlite:FILE or postgres://USER@HOST:PORT/DATABASE"),
        }
    }
}

/// Without a password.
impl Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.display()),
            Self::Postgres(config) => write!(f, "postgres:{}", postgres::place(config)),
        }
    }
}

/// What writes to one table.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    Sqlite(sqlite::Store),
    Postgres(postgres::Store),
}

impl Store {
    /// Writes all `rows` in one transaction, or none of them, and gives them back. A row whose number is there already is
    /// left as it is.
    ///
    /// On an error the rows are dropped here, also by a panic.
    pub(crate) async fn write<R: Rows>(&mut self, rows: R) -> Result<R, WriteError> {
        match self {
            Self::Sqlite(store) => store.write(rows).await,
            Self::Postgres(store) => store.write(&rows).await.map(|()| rows),
        }
    }

    /// Writes one event after the other until they end, or it is time, each in a transaction of its own; tells how many.
    pub(crate) async fn write_singly(
        &mut self,
        events: impl Iterator<Item = Event> + Send + 'static,
        delay: Duration,
        until: Instant,
    ) -> Result<u64, WriteError> {
        match self {
            Self::Sqlite(store) => store.write_singly(events, delay, until).await,
            Self::Postgres(store) => store.write_singly(events, delay, until).await,
        }
    }
}

/// What a look at a table finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) rows: u64,
    /// How many events the rows are of: fewer than rows if one was written twice.
    pub(crate) events: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_without_its_password() {
        let shown = |text: &str| text.parse::<Database>().ok().map(|database| database.to_string());
        assert_eq!(shown("sqlite:a b.sqlite"), Some("sqlite:a b.sqlite".to_owned()));
        for options in ["//me:secret@localhost:5433/events", "host=localhost dbname=events user=me password=secret"] {
            assert_eq!(shown(&format!("postgres:{options}")), Some("postgres:events at localhost".to_owned()));
        }
        for wrong in ["events.sqlite", "sqlite:", "mysql://localhost", "postgres://localhost:port"] {
            assert!(wrong.parse::<Database>().is_err(), "{wrong}");
        }
    }
}
