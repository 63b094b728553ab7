//! PostgreSQL: a transaction for each batch, its rows by a binary COPY.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{task::JoinHandle, time};
use tokio_postgres::{
    Client, Config, Error, NoTls, Statement, Transaction,
    binary_copy::BinaryCopyInWriter,
    config::Host,
    error::SqlState,
    types::{ToSql, Type},
};

use crate::{
    error::WriteError,
    event::Event,
    store::{Count, Rows, Table},
};

/// How long it may take to connect, unless the options say otherwise: a server that is being restarted may drop packets.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const COLUMNS: [Type; 7] = [Type::INT8, Type::INT8, Type::TEXT, Type::TEXT, Type::INT8, Type::FLOAT8, Type::TEXT];

/// A table, and a connection to it while there is one.
#[derive(Debug)]
pub(crate) struct Store {
    config: Arc<Config>,
    table: Table,
    /// Not here while it is used: a write that fails, or is dropped on the way, leaves the next one to connect anew.
    connection: Option<Connection>,
}

/// A clone has a connection of its own.
impl Clone for Store {
    fn clone(&self) -> Self {
        Self { config: Arc::clone(&self.config), table: self.table, connection: None }
    }
}

impl Store {
    /// Makes `table`, which must not be there yet.
    pub(super) async fn create(config: &Arc<Config>, table: Table) -> Result<Self, WriteError> {
        let session = Session::open(config).await.map_err(WriteError::Connect)?;
        let create = format!(
            "CREATE TABLE {} (
                 seq       BIGINT PRIMARY KEY,
                 id        BIGINT NOT NULL,
                 service   TEXT   NOT NULL,
                 kind      TEXT   NOT NULL,
                 at_micros BIGINT NOT NULL,
                 value     DOUBLE PRECISION NOT NULL,
                 payload   TEXT   NOT NULL
             )",
            table.name()
        );
        session.client.batch_execute(&create).await?;
        let connection = Some(Connection::prepare(session, table).await?);
        Ok(Self { config: Arc::clone(config), table, connection })
    }

    /// Writes all `rows`, or none of them. A row whose number is there already is left as it is.
    pub(super) async fn write(&mut self, rows: &impl Rows) -> Result<(), WriteError> {
        let mut connection = self.connect().await.map_err(WriteError::Connect)?;
        connection.write(rows).await?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Writes one event after the other, each in a statement of its own, and tells how many.
    pub(super) async fn write_singly(
        &mut self,
        events: impl Iterator<Item = Event>,
        delay: Duration,
        until: Instant,
    ) -> Result<u64, WriteError> {
        let connection = self.connect().await.map_err(WriteError::Connect)?;
        let mut rows = 0;
        for event in events {
            if Instant::now() >= until {
                break;
            }
            if !delay.is_zero() {
                time::sleep(delay).await;
            }
            let [seq, id] = numbers(rows, &event)?;
            connection.session.client.execute(&connection.insert, &values(&seq, &id, &event)).await?;
            rows += 1;
        }
        Ok(rows)
    }

    /// The connection of the last write, or a new one.
    async fn connect(&mut self) -> Result<Connection, Error> {
        match self.connection.take() {
            Some(connection) if !connection.session.client.is_closed() => Ok(connection),
            _ => Connection::prepare(Session::open(&self.config).await?, self.table).await,
        }
    }
}

/// A session with the statements that write to one table.
#[derive(Debug)]
struct Connection {
    session: Session,
    copy: Statement,
    insert: Statement,
    table: Table,
}

impl Connection {
    async fn prepare(session: Session, table: Table) -> Result<Self, Error> {
        let name = table.name();
        let copy = session.client.prepare(&format!("COPY {name} FROM STDIN (FORMAT binary)")).await?;
        let insert = format!("INSERT INTO {name} VALUES ($1, $2, $3, $4, $5, $6, $7)");
        let insert = session.client.prepare_typed(&insert, &COLUMNS).await?;
        Ok(Self { session, copy, insert, table })
    }

    /// The answer to a COPY alone would come before its commit has ended, the one to COMMIT comes after.
    async fn write(&mut self, rows: &impl Rows) -> Result<(), WriteError> {
        let transaction = self.session.client.transaction().await?;
        if rows.were_sent_before() {
            merge(&transaction, self.table, rows).await?;
        } else {
            copy(&transaction, &self.copy, rows).await?;
        }
        Ok(transaction.commit().await?)
    }
}

/// Adds the `rows` that an earlier attempt, which did not live to tell, has not written. COPY knows no conflicts, so they
/// go through a table of the transaction's own; only a retry pays for that.
async fn merge(transaction: &Transaction<'_>, table: Table, rows: &impl Rows) -> Result<(), WriteError> {
    let name = table.name();
    transaction.batch_execute(&format!("CREATE TEMPORARY TABLE resent (LIKE {name}) ON COMMIT DROP")).await?;
    let statement = transaction.prepare("COPY resent FROM STDIN (FORMAT binary)").await?;
    copy(transaction, &statement, rows).await?;
    transaction.batch_execute(&format!("INSERT INTO {name} SELECT * FROM resent ON CONFLICT (seq) DO NOTHING")).await?;
    Ok(())
}

async fn copy(transaction: &Transaction<'_>, statement: &Statement, rows: &impl Rows) -> Result<(), WriteError> {
    let mut writer = pin!(BinaryCopyInWriter::new(transaction.copy_in(statement).await?, &COLUMNS));
    for (seq, event) in rows.rows() {
        let [seq, id] = numbers(seq, event)?;
        writer.as_mut().write(&values(&seq, &id, event)).await?;
    }
    writer.finish().await?;
    Ok(())
}

/// PostgreSQL has no unsigned integers.
fn numbers(seq: u64, event: &Event) -> Result<[i64; 2], WriteError> {
    Ok([seq.try_into()?, event.id.try_into()?])
}

fn values<'a>(seq: &'a i64, id: &'a i64, event: &'a Event) -> [&'a (dyn ToSql + Sync); 7] {
    [seq, id, &event.service, &event.kind, &event.at_micros, &event.value, &event.payload]
}

/// A client and the task that drives it, which ends with it at once: a server that has gone silent would keep it for long.
#[derive(Debug)]
struct Session {
    client: Client,
    driver: JoinHandle<()>,
}

impl Session {
    async fn open(config: &Config) -> Result<Self, Error> {
        let (client, connection) = config.connect(NoTls).await?;
        // What the connection ended with is told to the statement that was under way.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { client, driver })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The options of a connection, from a URL or from `key=value` pairs.
pub(super) fn config(text: &str) -> Result<Config, Error> {
    let mut config: Config = text.parse()?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    Ok(config)
}

/// Where it is, without the password.
pub(super) fn place(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(folder) => folder.display().to_string(),
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    format!("{} at {hosts}", config.get_dbname().or(config.get_user()).unwrap_or("the default database"))
}

/// Drops the tables of an earlier run, and lets the server write down what it owes, so that the next contender does not
/// pay for the last one.
pub(super) async fn clear(config: &Config) -> Result<(), WriteError> {
    let session = Session::open(config).await.map_err(WriteError::Connect)?;
    for table in Table::ALL {
        session.client.batch_execute(&format!("DROP TABLE IF EXISTS {}", table.name())).await?;
    }
    match session.client.batch_execute("CHECKPOINT").await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(()),
        other => Ok(other?),
    }
}

/// Counts over a session of its own, which sees only what was committed.
pub(super) async fn count(config: &Config, table: Table) -> Result<Count, WriteError> {
    let session = Session::open(config).await.map_err(WriteError::Connect)?;
    let query = format!("SELECT count(*), count(DISTINCT id) FROM {}", table.name());
    let row = session.client.query_one(&query, &[]).await?;
    Ok(Count { rows: row.try_get::<_, i64>(0)?.try_into()?, events: row.try_get::<_, i64>(1)?.try_into()? })
}

/// Whether the same statement may succeed later: the connection is gone, the server is short of something, stops, starts
/// or gave up for the sake of another transaction. Rows that are there already are merged by the next attempt.
pub(crate) fn may_pass(error: &Error) -> bool {
    let Some(code) = error.code() else { return true };
    *code == SqlState::UNIQUE_VIOLATION || PASSING.contains(&code.code().get(..2).unwrap_or_default())
}

/// Classes of SQLSTATE: connection exception, transaction rollback, insufficient resources, object not in prerequisite
/// state, operator intervention, system error.
const PASSING: [&str; 6] = ["08", "40", "53", "55", "57", "58"];
