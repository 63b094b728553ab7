//! The SQLite file: a transaction for each batch, a row for each event.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use crate::event::Event;

/// The tables of the file, one for each contender.
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

/// One connection that writes to one table.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    insert: String,
}

impl Store {
    /// Drops the tables of an earlier run, whose rows would be counted as ours, and gives their pages
    /// back, so that every contender grows the file alike.
    pub(crate) fn clear(file: &Path) -> rusqlite::Result<()> {
        let connection = open(file)?;
        for table in Table::ALL {
            connection.execute(&format!("DROP TABLE IF EXISTS {}", table.name()), [])?;
        }
        connection.execute_batch("VACUUM")?;
        checkpoint(&connection)
    }

    /// Makes `table`, which must not be there yet.
    pub(crate) fn create(file: &Path, table: Table) -> rusqlite::Result<Self> {
        let connection = open(file)?;
        let name = table.name();
        connection.execute_batch(&format!(
            "CREATE TABLE {name} (
                 seq       INTEGER PRIMARY KEY,
                 id        INTEGER NOT NULL,
                 service   TEXT    NOT NULL,
                 kind      TEXT    NOT NULL,
                 at_micros INTEGER NOT NULL,
                 value     REAL    NOT NULL,
                 payload   TEXT    NOT NULL
             ) STRICT"
        ))?;
        checkpoint(&connection)?;
        let insert = format!("INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (seq) DO NOTHING");
        Ok(Self { connection, insert })
    }

    /// Writes all `rows`, each an event and its number, or none of them. A row whose number is there
    /// already was written by an attempt that did not live to tell, and is left as it is.
    pub(crate) fn insert<'a>(&mut self, rows: impl Iterator<Item = (u64, &'a Event)>) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert = transaction.prepare_cached(&self.insert)?;
            for (seq, e) in rows {
                insert.execute(params![seq, e.id, e.service, e.kind, e.at_micros, e.value, e.payload])?;
            }
        }
        transaction.commit()
    }
}

/// What a look at the file finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) rows: u64,
    /// How many events the rows are of: fewer than rows if one was written twice.
    pub(crate) events: u64,
}

/// Counts over a connection of its own, which sees only what was committed. It may write, since the
/// last one to leave tidies up the log.
pub(crate) fn count(file: &Path, table: Table) -> rusqlite::Result<Count> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let query = format!("SELECT count(*), count(DISTINCT id) FROM {}", table.name());
    connection.query_row(&query, [], |row| Ok(Count { rows: row.get(0)?, events: row.get(1)? }))
}

/// With `synchronous` at normal a commit survives a crash of the process; a crash of the machine may
/// take the last ones back. It is the same for all contenders.
fn open(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    Ok(connection)
}

/// Moves the log into the file, so that nobody pays for what was written before.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use std::{env, error::Error, fs, iter, process};

    use super::*;
    use crate::event::Events;

    #[test]
    fn a_batch_that_is_written_twice_is_there_once() -> Result<(), Box<dyn Error>> {
        let file = env::temp_dir().join(format!("batch_writer-test-{}.sqlite", process::id()));
        Store::clear(&file)?;
        let mut store = Store::create(&file, Table::Controller)?;
        let events: Vec<Event> = Events::of(1, 10).collect();
        store.insert(iter::zip(0.., &events[..6]))?;
        store.insert(iter::zip(0.., &events))?;

        let count = count(&file, Table::Controller)?;
        assert_eq!((count.rows, count.events), (10, 10));
        drop(store);
        fs::remove_file(&file)?;
        Ok(())
    }
}
