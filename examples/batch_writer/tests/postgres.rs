//! Runs the program into a PostgreSQL server. It is `.ci/postgres.sh` that starts one, says in the environment where it is
//! and how to stop it, and asks for these tests, which are ignored otherwise.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tokio::time;
use tokio_postgres::{Client, NoTls};

use program::{balances, command};

mod program;

/// There is one server, whose tables all tests use, and one of them stops it.
static TURN: Mutex<()> = Mutex::new(());

struct Server {
    url: String,
    _turn: MutexGuard<'static, ()>,
}

impl Server {
    fn take() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self { url: variable("BATCH_WRITER_POSTGRES"), _turn: turn }
    }

    /// `pg_ctl` with these arguments.
    fn control(arguments: &[&str]) -> io::Result<()> {
        let status = Command::new(variable("BATCH_WRITER_POSTGRES_CTL")).args(arguments).status()?;
        assert!(status.success(), "pg_ctl {arguments:?}: {status}");
        Ok(())
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run .ci/postgres.sh"))
}

/// A run that something happens to.
struct Run {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Run {
    /// Starts the program and waits until it has written something; also gives a session on the server.
    async fn start(url: &str, options: &str) -> anyhow::Result<(Self, Client)> {
        let mut child = command(url, options).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().map(BufReader::new).context("there is no output")?;
        let mut run = Self { child, stdout };
        // It says what it will do once the tables of the last run are gone.
        run.stdout.read_line(&mut String::new())?;
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        while !client.query("SELECT FROM batch_writer LIMIT 1", &[]).await.is_ok_and(|rows| !rows.is_empty()) {
            ensure!(run.child.try_wait()?.is_none(), "the run was over before it had written anything");
            time::sleep(Duration::from_millis(20)).await;
        }
        Ok((run, client))
    }

    /// Waits for its end and gives what was printed, if ledger, producers and table agreed.
    fn end(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        assert!(self.child.wait()?.success() && !text.contains("WRONG"), "{text}");
        Ok(text)
    }
}

/// The next test has the tables for itself.
impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it has ended, unless the test has failed
        let _ = self.child.wait();
    }
}

/// How many events were sent again.
fn resent(text: &str) -> u64 {
    let (before, _) = text.split_once(" events were sent again").unwrap_or_default();
    let digits: String = before.rsplit(", ").next().unwrap_or_default().split(' ').collect();
    digits.parse().unwrap_or_else(|_| panic!("the ledger does not say it: {text}"))
}

#[test]
#[ignore = "needs a server: .ci/postgres.sh"]
fn every_strategy_balances() -> io::Result<()> {
    let server = Server::take();
    for strategy in ["block", "block-for:1ms", "drop-oldest", "drop-newest"] {
        for rest in ["", "--fail-for 200ms --capacity 100", "--capacity 1 --events 50"] {
            balances(&server.url, &format!("--events 5000 --no-peers --strategy {strategy} {rest}"))?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs a server: .ci/postgres.sh"]
fn the_peers_write_the_same() -> io::Result<()> {
    let text = balances(&Server::take().url, "--events 500")?;
    assert!(text.contains("one row per transaction") && text.contains("(500 rows in"), "{text}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs a server: .ci/postgres.sh"]
async fn a_server_that_crashes_under_way_loses_nothing() -> anyhow::Result<()> {
    let server = Server::take();
    let options = "--events 400000 --capacity 4000 --slots 2 --sink-delay 10ms --no-peers";
    let (mut run, _client) = Run::start(&server.url, options).await?;
    for _ in 0..3 {
        time::sleep(Duration::from_millis(700)).await;
        Server::control(&["stop", "-m", "immediate"])?;
        let ended = run.child.try_wait()?;
        time::sleep(Duration::from_millis(300)).await;
        Server::control(&["start"])?;
        assert!(ended.is_none(), "the run was over before the server was stopped: {ended:?}");
    }
    let text = run.end()?;
    assert!(text.contains("400 000 in the table, 400 000 delivered"), "{text}");
    assert!(resent(&text) > 0, "{text}");
    Ok(())
}

/// A deferred trigger lets each COPY pass and its commit fail, for a while.
#[tokio::test]
#[ignore = "needs a server: .ci/postgres.sh"]
async fn a_commit_that_fails_delivers_nothing() -> anyhow::Result<()> {
    let server = Server::take();
    let options = "--events 100000 --capacity 1000 --sink-delay 5ms --no-peers";
    let (run, client) = Run::start(&server.url, options).await?;
    client
        .batch_execute(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
                 AS $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = 'serialization_failure'; END $$;
             CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON batch_writer DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await?;
    time::sleep(Duration::from_millis(500)).await;
    client.batch_execute("DROP TRIGGER refuse ON batch_writer").await?;
    let text = run.end()?;
    assert!(text.contains("100 000 in the table, 100 000 delivered"), "{text}");
    assert!(resent(&text) > 0, "{text}");
    Ok(())
}

#[test]
#[ignore = "needs a server: .ci/postgres.sh"]
fn a_commit_whose_answer_is_lost_doubles_nothing() -> anyhow::Result<()> {
    let server = Server::take();
    let (user, rest) = server.url.rsplit_once('@').context("the URL names no user")?;
    let (address, database) = rest.split_once('/').context("the URL names no database")?;
    let proxy = Proxy::start(address.parse().context("the URL names no address and port")?)?;
    let url = format!("{user}@{}/{database}", proxy.address);
    let text = balances(&url, "--events 20000 --capacity 1000 --slots 2 --no-peers")?;
    let lost = proxy.commits.load(Ordering::Relaxed) / EVERY; // Relaxed: the program has ended
    assert!(text.contains("20 000 in the table, 20 000 delivered"), "{text}");
    assert!(lost >= 10 && resent(&text) > 0, "{lost} answers were lost: {text}");
    Ok(())
}

/// The answer to every third commit is lost.
const EVERY: u64 = 3;

/// Stands between the program and the server.
struct Proxy {
    address: SocketAddr,
    commits: Arc<AtomicU64>,
}

impl Proxy {
    /// Its threads end with the connections, the first one with the process.
    fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = Self { address: listener.local_addr()?, commits: Arc::default() };
        let commits = Arc::clone(&proxy.commits);
        thread::spawn(move || {
            for client in listener.incoming() {
                if let Err(error) = client.and_then(|client| relay(client, server, &commits)) {
                    eprintln!("no connection: {error}");
                }
            }
        });
        Ok(proxy)
    }
}

/// Relays both ways. The client sends nothing between its COMMIT and the answer, so what comes next is that answer.
fn relay(mut client: TcpStream, server: SocketAddr, commits: &Arc<AtomicU64>) -> io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut to_client, mut from_server) = (client.try_clone()?, server.try_clone()?);
    let (commits, cut) = (Arc::clone(commits), Arc::new(AtomicBool::new(false)));
    let is_cut = Arc::clone(&cut);
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            if buffer[..length].ends_with(b"COMMIT\0") && commits.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1 {
                cut.store(true, Ordering::SeqCst);
            }
            if server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both); // it may be down already
    });
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(length @ 1..) = from_server.read(&mut buffer) {
            if is_cut.load(Ordering::SeqCst) || to_client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both); // it may be down already
    });
    Ok(())
}
