//! A service that ends cleanly, and starts again with what was left.

use std::error::Error;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, Retry};
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Default)]
struct Store {
    rows: Arc<Mutex<Vec<String>>>,
    is_down: Arc<AtomicBool>,
}

impl Store {
    async fn insert(&self, rows: &[String]) -> std::io::Result<()> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if self.is_down.load(Relaxed) {
            return Err(std::io::Error::other("the store is down"));
        }
        self.rows.lock().unwrap().extend_from_slice(rows);
        Ok(())
    }
}

/// Runs until `ctrl_c` resolves. How many items the producers made.
async fn serve(store: Store, spool: &Path, ctrl_c: impl Future<Output = ()>) -> Outcome<usize> {
    let events = BackpressureController::builder(200)
        .retry(Retry::exponential(Duration::from_millis(10), Duration::from_millis(50)))
        .on_loss(|loss| eprintln!("lost {:?}: {}", loss.item, loss.reason))
        .spawn_with(store, |store, batch: Batch<String>| async move { Ok(store.insert(&batch).await?) })?;
    if spool.exists() {
        let left: Vec<String> = fs::read_to_string(spool)?.lines().map(str::to_owned).collect();
        events.push_all(left).await?; // its error has the rest, so it must own what it is made of
        assert!(events.flush().await.all_delivered());
        fs::remove_file(spool)?;
    }
    let mut producers = JoinSet::new();
    for id in 0..3 {
        let events = events.clone();
        producers.spawn(async move {
            for n in 0.. {
                if let Err(error) = events.push(format!("{id}/{n}")).await {
                    println!("producer {id}: {error}");
                    return (n, Some(error.into_inner())); // shut; this one is still ours
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            unreachable!()
        });
    }

    ctrl_c.await;
    let report = events.drain(Duration::from_millis(300)).await; // the producers still run
    let mut left = report.leftovers;
    let mut made = 0;
    while let Some(producer) = producers.join_next().await {
        let (n, own) = producer?;
        made += n + 1;
        left.extend(own);
    }
    println!("{} delivered, {} left, {} not returned", report.totals.delivered, left.len(), report.not_returned);
    assert_eq!(report.not_returned, 0);
    if !left.is_empty() {
        fs::write(spool, left.join("\n"))?;
    }
    Ok(made)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let spool = std::env::temp_dir().join(format!("newcomer-{}", std::process::id()));
    let store = Store::default();
    let going_down = Arc::clone(&store.is_down);
    let made = serve(store.clone(), &spool, async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        going_down.store(true, Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
    })
    .await?;
    let left = fs::read_to_string(&spool)?.lines().count();
    assert!(left > 3);
    assert_eq!(store.rows.lock().unwrap().len() + left, made);

    store.is_down.store(false, Relaxed);
    let more = serve(store.clone(), &spool, tokio::time::sleep(Duration::from_millis(50))).await?;
    let left = fs::read_to_string(&spool)?.lines().count();
    assert_eq!(store.rows.lock().unwrap().len() + left, made + more);
    fs::remove_file(&spool)?;
    Ok(())
}
