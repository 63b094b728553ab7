//! Who lost what: each number ends in exactly one place, and the report has the same figures.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, DrainReport, Fate, LossReason, PushError, Strategy};

/// Where the numbers are, by whoever has them.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<BTreeMap<u32, String>>>);

impl Book {
    fn write(&self, number: u32, place: impl fmt::Display) {
        let before = self.0.lock().unwrap().insert(number, place.to_string());
        assert_eq!(before, None, "{number} is in two places");
    }

    fn count(&self, place: &str) -> u64 {
        self.0.lock().unwrap().values().filter(|at| at.starts_with(place)).count() as u64
    }
}

/// Takes all but multiples of 7, until it hangs.
async fn store(mut batch: Batch<u32>, book: Book, hangs: bool) {
    if hangs {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
    for i in 0..batch.len() {
        if batch[i] % 7 == 0 {
            batch.fail(i, "a multiple of seven");
        } else {
            book.write(batch[i], "delivered");
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let book = Book::default();
    let is_down = Arc::new(AtomicBool::new(false));
    let hook = book.clone();
    let numbers = BackpressureController::builder(20)
        .strategy(Strategy::DropOldest)
        .on_loss(move |loss| {
            let error = loss.error.map(|error| format!(": {error}")).unwrap_or_default();
            let number = loss.item.expect("the sink moves nothing out");
            hook.write(number, format_args!("{}{error}", loss.reason));
        })
        .spawn_with((book.clone(), Arc::clone(&is_down)), |(book, is_down), batch: Batch<u32>| async move {
            store(batch, book, is_down.load(Relaxed)).await;
            Ok(())
        })?;

    for n in 1..=1_000 {
        numbers.push(n).await?; // never waits: the oldest makes room
        if n % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(numbers.push_tracked(1_001).await?.await.loss() == Some(LossReason::Failed)); // 7 * 143
    match numbers.push_tracked(1_002).await?.await {
        Fate::Delivered => {}
        lost => panic!("{lost}"),
    }

    is_down.store(true, Relaxed);
    numbers.push_all(1_003..=1_010).await?;
    let report = numbers.drain(Duration::from_millis(100)).await;
    for number in &report.leftovers {
        book.write(*number, "left over");
    }
    match numbers.push(1_011).await {
        Err(PushError::Closed(number)) => book.write(number, "refused"),
        other => panic!("{other:?}"),
    }
    for (number, place) in book.0.lock().unwrap().iter().filter(|(n, place)| *place != "delivered" && **n > 970) {
        println!("{number}: {place}");
    }
    println!("{report}");
    adds_up(&book, &report);
    let last = numbers.snapshot();
    last.audit()?;
    assert_eq!((last.offered, last.refused.closed), (1_011, 1));
    Ok(())
}

fn adds_up(book: &Book, report: &DrainReport<u32>) {
    assert!(book.0.lock().unwrap().keys().copied().eq(1..=1_011), "a number is missing");
    assert_eq!(book.count("delivered"), report.delivered());
    assert_eq!(book.count("evicted"), report.evicted());
    assert_eq!(book.count("failed"), report.failed());
    assert_eq!(book.count("left over"), report.abandoned());
    assert!(report.evicted() > 0 && report.failed() > 0);
    assert_eq!((report.leftovers.len(), report.not_returned), (8, 0));
    assert_eq!(report.delivered() + report.evicted() + report.failed() + report.abandoned(), report.totals.accepted);
}
