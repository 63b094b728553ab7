//! SQLite: a transaction for each batch, on a thread that may block.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{
    Connection, Error,
    ErrorCode::{
        DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OperationInterrupted, OutOfMemory,
        SystemIoFailure,
    },
    OpenFlags, TransactionBehavior, params,
};
use tokio::task;

use crate::{
    error::WriteError,
    event::Event,
    store::{Count, Rows, Table},
};

/// One connection that writes to one table. Its clones share it: SQLite has one writer at a time.
#[derive(Debug, Clone)]
pub(crate) struct Store(Arc<Mutex<Writer>>);

impl Store {
    /// Makes `table`, which must not be there yet.
    pub(super) async fn create(file: &Path, table: Table) -> Result<Self, WriteError> {
        let writer = blocking(file, move |file| Writer::create(file, table)).await?;
        Ok(Self(Arc::new(Mutex::new(writer))))
    }

    /// Writes all `rows`, or none of them, and gives them back.
    pub(super) async fn write<R: Rows>(&self, rows: R) -> Result<R, WriteError> {
        self.work(move |writer| writer.insert(rows.rows()).map(|()| rows)).await
    }

    /// Writes one event after the other, each in a transaction of its own, and tells how many.
    pub(super) async fn write_singly(
        &self,
        events: impl Iterator<Item = Event> + Send + 'static,
        delay: Duration,
        until: Instant,
    ) -> Result<u64, WriteError> {
        self.work(move |writer| {
            let mut rows = 0;
            for event in events.take_while(|_| Instant::now() < until) {
                thread::sleep(delay);
                writer.insert([(rows, &event)].into_iter())?;
                rows += 1;
            }
            Ok(rows)
        })
        .await
    }

    async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, WriteError> {
        let writer = Arc::clone(&self.0);
        let work = task::spawn_blocking(move || {
            // A panic under the lock rolled its transaction back: the connection is as good as before.
            work(&mut writer.lock().unwrap_or_else(PoisonError::into_inner))
        });
        Ok(work.await??)
    }
}

#[derive(Debug)]
struct Writer {
    connection: Connection,
    insert: String,
}

impl Writer {
    fn create(file: &Path, table: Table) -> Result<Self, Error> {
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

    /// A row whose number is there already was written by an attempt that did not live to tell, and is left as it is.
    fn insert<'a>(&mut self, rows: impl Iterator<Item = (u64, &'a Event)>) -> Result<(), Error> {
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

/// Drops the tables of an earlier run, whose rows would be counted as ours, and gives their pages
/// back, so that every contender grows the file alike.
pub(super) async fn clear(file: &Path) -> Result<(), WriteError> {
    blocking(file, |file| {
        let connection = open(file)?;
        for table in Table::ALL {
            connection.execute(&format!("DROP TABLE IF EXISTS {}", table.name()), [])?;
        }
        connection.execute_batch("VACUUM")?;
        checkpoint(&connection)
    })
    .await
}

/// Counts over a connection of its own, which sees only what was committed. It may write, since the
/// last one to leave tidies up the log.
pub(super) async fn count(file: &Path, table: Table) -> Result<Count, WriteError> {
    blocking(file, move |file| {
        let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let query = format!("SELECT count(*), count(DISTINCT id) FROM {}", table.name());
        connection.query_row(&query, [], |row| Ok(Count { rows: row.get(0)?, events: row.get(1)? }))
    })
    .await
}

/// Whether the same statement may succeed later.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            DatabaseBusy
                | DatabaseLocked
                | DiskFull
                | FileLockingProtocolFailed
                | OperationInterrupted
                | OutOfMemory
                | SystemIoFailure
        )
    )
}

async fn blocking<R: Send + 'static>(
    file: &Path,
    work: impl FnOnce(&Path) -> Result<R, Error> + Send + 'static,
) -> Result<R, WriteError> {
    let file: PathBuf = file.to_owned();
    Ok(task::spawn_blocking(move || work(&file)).await??)
}

/// With `synchronous` at normal a commit survives a crash of the process; a crash of the machine may
/// take the last ones back. It is the same for all contenders.
fn open(file: &Path) -> Result<Connection, Error> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    Ok(connection)
}

/// Moves the log into the file, so that nobody pays for what was written before.
fn checkpoint(connection: &Connection) -> Result<(), Error> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;
    use crate::{event::Events, sink::Chunk};

    #[tokio::test]
    async fn a_batch_that_is_written_twice_is_there_once() -> anyhow::Result<()> {
        let file = env::temp_dir().join(format!("batch_writer-test-{}.sqlite", process::id()));
        clear(&file).await?;
        let store = Store::create(&file, Table::Controller).await?;
        let chunk = |share| Chunk { first: 0, events: Events::of(1, share).collect() };
        store.write(chunk(6)).await?;
        store.write(chunk(10)).await?;

        let count = count(&file, Table::Controller).await?;
        assert_eq!((count.rows, count.events), (10, 10));
        drop(store);
        fs::remove_file(&file)?;
        Ok(())
    }
}
