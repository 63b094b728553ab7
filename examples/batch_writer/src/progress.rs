//! The progress bar, which also audits every snapshot that it shows.

use std::time::{Duration, Instant};

use backpressure::{Snapshot, WeakController};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::{task::JoinHandle, time};

use crate::{event::Event, report::grouped};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(200);

/// How many snapshots were audited in the midst of the run, and what the first bad one said.
#[derive(Debug, Default)]
pub(crate) struct Audits {
    pub(crate) done: u64,
    pub(crate) first_error: Option<String>,
}

/// The task that moves the bar for as long as there is a controller.
#[derive(Debug)]
pub(crate) struct Progress(JoinHandle<Audits>);

impl Progress {
    /// Starts a bar over `events`; it stays hidden where standard error is not a terminal.
    pub(crate) fn start(controller: WeakController<Event>, events: u64) -> Self {
        Self(tokio::spawn(show(controller, bar(events))))
    }

    /// Waits for the bar to notice that the controller is gone.
    pub(crate) async fn end(self) -> Audits {
        let failed = |error| Audits { done: 0, first_error: Some(format!("the bar failed: {error}")) };
        self.0.await.unwrap_or_else(failed)
    }
}

fn bar(events: u64) -> ProgressBar {
    let template = "{elapsed:>4} {bar:30} {msg}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(events).with_style(style)
}

async fn show(controller: WeakController<Event>, bar: ProgressBar) -> Audits {
    let mut audits = Audits::default();
    let (mut then, mut delivered) = (Instant::now(), 0);
    let mut ticks = time::interval(TICK);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(snapshot) = controller.upgrade().map(|controller| controller.snapshot()) else {
            break;
        };
        audits.done += 1;
        if let Err(error) = snapshot.audit() {
            audits.first_error.get_or_insert_with(|| error.to_string());
        }
        let seconds = then.elapsed().as_secs_f64();
        let rate = (snapshot.delivered - delivered) as f64 / seconds.max(f64::MIN_POSITIVE);
        (then, delivered) = (Instant::now(), snapshot.delivered);
        let decided = decided(&snapshot);
        bar.set_message(format!(
            "{} events, {}, depth {} of {}, {} rows/s",
            grouped(decided),
            snapshot.state,
            grouped(snapshot.depth),
            grouped(snapshot.capacity),
            grouped(rate as u64),
        ));
        bar.set_position(decided);
    }
    bar.finish_and_clear();
    audits
}

/// Events whose fate is known.
fn decided(snapshot: &Snapshot) -> u64 {
    snapshot.offered - snapshot.waiting - snapshot.buffered - snapshot.in_flight
}
