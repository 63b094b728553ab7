//! A log that is flooded refuses its debug records first, then its information, and keeps each error.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{Admission, BackpressureController, Batch, PushError, State, Strategy};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Debug,
    Info,
    Error,
}

#[derive(Debug)]
struct Record {
    level: Level,
    text: String,
}

type Counts = Arc<Mutex<BTreeMap<Level, u32>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let by_level = Strategy::custom_from(State::Elevated, |record: &Record, pressure| match record.level {
        Level::Debug => Admission::Refuse,
        Level::Info if pressure.state >= State::Critical => Admission::Refuse,
        Level::Info => Admission::Admit,
        Level::Error => Admission::Wait,
    });
    let written = Counts::default();
    let log = BackpressureController::builder(100)
        .strategy(by_level)
        .on_loss(|loss| panic!("what is accepted is written: {loss:?}"))
        .spawn_with(Arc::clone(&written), |written, batch: Batch<Record>| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            for record in &batch {
                assert!(record.text.starts_with("record"));
                *written.lock().unwrap().entry(record.level).or_default() += 1;
            }
            Ok(())
        })?;

    let mut refused = BTreeMap::<Level, u32>::new();
    for n in 0..3_000 {
        let level = if n % 10 == 0 {
            Level::Error
        } else if n % 2 == 0 {
            Level::Info
        } else {
            Level::Debug
        };
        match log.push(Record { level, text: format!("record {n}") }).await {
            Ok(()) => {}
            Err(PushError::Full(record)) => *refused.entry(record.level).or_default() += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let report = log.drain(Duration::from_secs(5)).await;
    let written = written.lock().unwrap();
    println!("{report}\nwritten {written:?}, refused {refused:?}");

    assert!(report.is_clean());
    assert_eq!(report.totals.panics, 0);
    assert_eq!(written[&Level::Error], 300);
    assert!(!refused.contains_key(&Level::Error));
    for (level, offered) in [(Level::Debug, 1_500), (Level::Info, 1_200)] {
        let (written, refused) = (written.get(&level).copied().unwrap_or(0), refused[&level]);
        assert_eq!(written + refused, offered, "{level:?}");
    }
    assert_eq!(u64::from(refused.values().sum::<u32>()), report.totals.refused.full);
    Ok(())
}
