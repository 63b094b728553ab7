//! Why rows were not written, and whether that may pass.

use std::{error::Error, fmt, num::TryFromIntError};

use backpressure::FlushError;
use tokio::task::JoinError;

use crate::store::{postgres, sqlite};

#[derive(Debug)]
pub(crate) enum WriteError {
    /// As the command line asked for.
    Away,
    Sqlite(rusqlite::Error),
    Postgres(tokio_postgres::Error),
    /// There is no connection: of the rows nothing was said.
    Connect(tokio_postgres::Error),
    Thread(JoinError),
    Number(TryFromIntError),
}

impl WriteError {
    /// What may pass is tried again; a statement that the store refuses would be refused forever.
    pub(crate) fn verdict(self) -> FlushError {
        let may_pass = match &self {
            Self::Away | Self::Connect(_) | Self::Thread(_) => true,
            Self::Sqlite(error) => sqlite::may_pass(error),
            Self::Postgres(error) => postgres::may_pass(error),
            Self::Number(_) => false,
        };
        if may_pass { FlushError::retry(self) } else { FlushError::permanent(self) }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Away => "the store is away",
            Self::Sqlite(_) | Self::Postgres(_) => "the store refused",
            Self::Connect(_) => "the store cannot be reached",
            Self::Thread(_) => "the writing thread failed",
            Self::Number(_) => "a number does not fit into its column",
        })
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Away => None,
            Self::Sqlite(error) => Some(error),
            Self::Postgres(error) | Self::Connect(error) => Some(error),
            Self::Thread(error) => Some(error),
            Self::Number(error) => Some(error),
        }
    }
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<tokio_postgres::Error> for WriteError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

impl From<JoinError> for WriteError {
    fn from(error: JoinError) -> Self {
        Self::Thread(error)
    }
}

impl From<TryFromIntError> for WriteError {
    fn from(error: TryFromIntError) -> Self {
        Self::Number(error)
    }
}
