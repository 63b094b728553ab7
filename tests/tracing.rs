//! Events of the feature `tracing`: what is told, how often, and that it cannot feed itself.

mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, Builder, FlushError, Retry, Strategy, WeakController};
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry;

use self::support::{Gate, HOUR, Log, SEC, failing, gated, hung, idle, ms, now, ok, paused_for, rounds, secs, settled};

/// One event.
#[derive(Clone, Debug, Default)]
struct Line {
    at: Duration,
    level: Option<Level>,
    message: String,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            name => drop(self.fields.insert(name, value.trim_matches('"').to_owned())),
        }
    }
}

impl Line {
    #[track_caller]
    fn number(&self, name: &str) -> u64 {
        self.fields.get(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    fn is_from(&self, from: &str, to: &str) -> bool {
        self.message == "state changed" && self.fields["from"] == from && self.fields["to"] == to
    }
}

/// Remembers the events, and does something at each.
struct Capture {
    start: Instant,
    lines: Arc<Mutex<Vec<Line>>>,
    hook: Box<dyn Fn() + Send + Sync>,
}

impl<S: Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != "backpressure" {
            return;
        }
        let at = self.start.elapsed();
        let mut line = Line { at, level: Some(*event.metadata().level()), ..Line::default() };
        event.record(&mut line);
        assert_eq!(line.fields.get("queue").map(String::as_str), Some("orders"));
        self.lines.lock().unwrap().push(line);
        (self.hook)();
    }
}

#[derive(Clone)]
struct Lines(Arc<Mutex<Vec<Line>>>);

impl Lines {
    fn all(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }

    fn of(&self, message: &str) -> Vec<Line> {
        self.all().into_iter().filter(|line| line.message == message).collect()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Runs a test on a paused clock, on a thread of its own with a subscriber that does `hook` at each event.
fn traced<F: Future<Output = ()>>(
    hook: impl Fn() + Send + Sync + 'static,
    test: impl FnOnce(Lines) -> F + Send + 'static,
) {
    paused_for(60 * SEC, move || async move {
        let lines = Arc::<Mutex<Vec<Line>>>::default();
        let capture = Capture { start: now(), lines: Arc::clone(&lines), hook: Box::new(hook) };
        let _guard = tracing::subscriber::set_default(registry().with(capture));
        test(Lines(lines)).await;
    });
}

fn builder(capacity: usize) -> Builder<u64> {
    BackpressureController::builder(capacity).name("orders").fixed(capacity.min(4), ms(5))
}

/// 1 000 000 items lost with `BACKPRESSURE_FULL=1`.
#[test]
fn s_g09_losses_are_told_first_now_and_then_and_last() {
    let n: u64 = rounds(1_000_000, 100_000);
    traced(
        || (),
        move |lines| async move {
            let told = Arc::new(AtomicU64::new(0));
            let sum = Arc::clone(&told);
            let c = builder(1000)
                .fixed(100, ms(5))
                .strategy(Strategy::DropOldest)
                .spawn(move |batch: Batch<u64>| {
                    sum.fetch_add(batch.lost_before().evicted, Ordering::SeqCst);
                    async move {
                        tokio::time::sleep(ms(300)).await;
                        drop(batch);
                        Ok(())
                    }
                })
                .unwrap();
            (0..1000).for_each(|i| c.try_push(i).unwrap());
            tokio::time::sleep(secs(2)).await;
            assert_eq!(lines.of("items lost").len(), 0);
            let start = now();
            let mut first = None;
            loop {
                let left = n - c.snapshot().evicted;
                if left == 0 {
                    break;
                }
                (0..left.min(n / 20)).for_each(|i| c.try_push(i).unwrap());
                if left <= 1000 {
                    continue; // The sink makes room faster than the last few are lost.
                }
                idle().await;
                if c.snapshot().evicted > 0 {
                    first.get_or_insert(lines.of("items lost").len());
                }
                tokio::time::sleep(ms(300)).await;
            }
            assert_eq!(first, Some(1), "at once, and once");
            let seconds = start.elapsed().as_secs() as usize;
            let report = c.drain(secs(60)).await;
            assert_eq!(report.evicted(), n);
            assert_eq!(told.load(Ordering::SeqCst), n, "lost_before of all batches");

            let losses = lines.of("items lost");
            assert!((seconds..=seconds + 2).contains(&losses.len()), "{} events in {seconds} s", losses.len());
            assert!(losses.windows(2).all(|pair| pair[1].at - pair[0].at >= SEC), "at most one a second");
            assert_eq!(losses.iter().map(|line| line.number("evicted")).sum::<u64>(), n);
            let ends = lines.of("ended, with items lost");
            assert_eq!(ends.len(), 1);
            assert_eq!((ends[0].number("total"), ends[0].number("evicted")), (n, n));
            assert_eq!(ends[0].level, Some(Level::WARN));
        },
    );
}

/// Pushes into the controller that is told of, at each event.
fn feedback() -> (impl Fn() + Send + Sync + 'static, Arc<Mutex<Option<WeakController<u64>>>>) {
    let slot = Arc::<Mutex<Option<WeakController<u64>>>>::default();
    let weak = Arc::clone(&slot);
    let hook = move || {
        let c = weak.lock().unwrap().as_ref().and_then(WeakController::upgrade);
        if let Some(c) = c {
            let _ = c.try_push(u64::MAX);
        }
    };
    (hook, slot)
}

fn check_no_feedback(capacity: usize, strategy: Strategy<u64>, retry: Retry, error: fn() -> FlushError) {
    const PUSHES: usize = 1000;
    let (hook, slot) = feedback();
    traced(hook, move |lines| async move {
        let c = builder(capacity)
            .retry(retry)
            .strategy(strategy)
            .spawn(move |batch: Batch<u64>| {
                drop(batch);
                std::future::ready(Err(error()))
            })
            .unwrap();
        *slot.lock().unwrap() = Some(c.downgrade());
        for i in 0..PUSHES as u64 {
            let _ = c.try_push(i);
            settled().await;
        }
        tokio::time::sleep(SEC + ms(20)).await;
        let told = lines.count();
        assert!(told > 2 && told <= PUSHES + 20, "{told} events of {PUSHES} pushes");
        let activity = (told, c.snapshot().flushes.total(), c.snapshot().offered);
        tokio::time::sleep(HOUR).await;
        assert_eq!(
            (lines.count(), c.snapshot().flushes.total(), c.snapshot().offered),
            activity,
            "it has come to rest"
        );
        let _ = c.drain(SEC).await;
        let told = lines.count();
        assert!(told <= activity.0 + 4, "the end: of each kind what is left to tell, and that it is the end");
        for i in 0..PUSHES as u64 {
            assert!(c.try_push(i).is_err());
            settled().await;
        }
        tokio::time::sleep(HOUR).await;
        assert_eq!(lines.count(), told);
    });
}

#[test]
fn s_l03_events_do_not_feed_themselves_while_all_fails() {
    check_no_feedback(1, Strategy::DropNewest, Retry::default(), || FlushError::permanent("no"));
}

#[test]
fn s_l03_events_do_not_feed_themselves_while_items_are_displaced() {
    check_no_feedback(2, Strategy::DropOldest, Retry::default(), || FlushError::permanent("no"));
}

#[test]
fn s_l03_events_do_not_feed_themselves_while_batches_are_tried_again() {
    check_no_feedback(1, Strategy::DropOldest, Retry::exponential(ms(10), ms(10)).max_attempts(3), || {
        FlushError::retry("down")
    });
}

#[test]
fn changes_of_the_state_are_told_in_order() {
    traced(
        || (),
        |lines| async move {
            let (gate, log) = (Gate::closed(), Log::default());
            let c = builder(10).spawn(gated(&gate, &log)).unwrap();
            for upto in [5, 8, 10] {
                while c.len() < upto {
                    c.try_push(0).unwrap();
                }
                idle().await;
            }
            gate.open();
            tokio::time::sleep(SEC).await;
            let report = c.drain(SEC).await;
            assert!(report.is_clean());
            let changes: Vec<_> = lines.of("state changed");
            let (first, last) = (&changes[..3], &changes[changes.len() - 1]);
            assert!(first[0].is_from("normal", "elevated") && first[0].level == Some(Level::DEBUG), "{changes:?}");
            assert!(first[1].is_from("elevated", "critical") && first[1].level == Some(Level::INFO), "{changes:?}");
            assert!(first[2].is_from("critical", "blocked") && first[2].level == Some(Level::INFO), "{changes:?}");
            assert!(last.is_from("normal", "draining"), "{changes:?}");
            for pair in changes.windows(2) {
                assert_eq!(pair[0].fields["to"], pair[1].fields["from"], "no gap");
            }
            assert_eq!(lines.of("ended").len(), 1);
            assert_eq!(lines.of("ended")[0].number("delivered"), report.delivered());
        },
    );
}

#[test]
fn failed_attempts_are_told_with_their_error_and_not_each() {
    traced(
        || (),
        |lines| async move {
            let retry = Retry::exponential(ms(100), ms(100)).without_jitter();
            let c = builder(4).retry(retry).spawn(failing(25, &Log::default())).unwrap();
            c.try_push(1).unwrap();
            assert!(c.flush().await.all_delivered());
            tokio::time::sleep(SEC).await;
            let failed = lines.of("flush failed");
            let all: u64 = failed.iter().map(|line| line.number("failures")).sum();
            assert_eq!((failed.len(), all), (4, 25), "{failed:?}");
            assert!(failed.windows(2).all(|pair| pair[1].at - pair[0].at >= SEC));
            let first = &failed[0];
            assert_eq!((first.fields["error"].as_str(), first.fields["outcome"].as_str()), ("down", "retry"));
            assert_eq!((first.number("attempt"), first.number("items"), first.at), (1, 1, failed[0].at));
        },
    );
}

#[test]
fn blocked_producers_are_told_of_after_a_second() {
    traced(
        || (),
        |lines| async move {
            let c = builder(4).flush_timeout(HOUR).spawn(hung).unwrap();
            (0..4).for_each(|i| c.try_push(i).unwrap());
            let start = now();
            let push = tokio::spawn({
                let c = c.clone();
                async move { c.push_timeout(5, secs(25)).await }
            });
            assert!(push.await.unwrap().is_err());
            tokio::time::sleep(HOUR / 2).await;
            let blocked = lines.of("producers are blocked");
            let times: Vec<_> = blocked.iter().map(|line| line.at.as_secs()).collect();
            assert_eq!(times, [1, 11, 21], "{start:?}");
            assert_eq!(blocked[0].number("producers"), 1);
        },
    );
}

#[test]
fn each_flush_is_told_to_those_who_want_to_know() {
    traced(
        || (),
        |lines| async move {
            let c = builder(8).spawn(ok(&Log::default())).unwrap();
            (0..6).for_each(|i| c.try_push(i).unwrap());
            tokio::time::sleep(SEC).await;
            c.try_push(6).unwrap();
            assert!(c.flush().await.all_delivered());
            let flushes: Vec<_> = lines
                .of("flush")
                .iter()
                .map(|line| (line.fields["reason"].clone(), line.number("items"), line.level))
                .collect();
            let expected = [("full", 4), ("linger", 2), ("flush", 1)];
            assert_eq!(flushes, expected.map(|(reason, n)| (reason.to_owned(), n, Some(Level::TRACE))));
        },
    );
}

#[test]
fn a_subscriber_that_panics_harms_nobody() {
    traced(
        || panic!("as the test wants it"),
        |_| async move {
            let c = builder(4).strategy(Strategy::DropOldest).spawn(ok(&Log::default())).unwrap();
            (0..10).for_each(|i| c.try_push(i).unwrap());
            let report = c.drain(SEC).await;
            assert_eq!((report.delivered(), report.evicted()), (4, 6));
            assert!(c.snapshot().panics > 0);
        },
    );
}

/// It panics as soon as it is asked whether it listens.
struct Moody;

impl Subscriber for Moody {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        assert_ne!(metadata.target(), "backpressure", "as the test wants it");
        false
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_subscriber_that_panics_when_it_is_asked_harms_nobody() {
    support::paused(|| async {
        let _guard = tracing::subscriber::set_default(Moody);
        let c = builder(4).spawn(ok(&Log::default())).unwrap();
        for i in 0..5 {
            c.push(i).await.unwrap();
            settled().await;
        }
        assert!(c.flush().await.all_delivered());
        assert!(c.snapshot().panics > 0);
        assert_eq!(c.drain(SEC).await.delivered(), 5);
    });
}

#[test]
fn an_idle_controller_tells_nothing() {
    traced(
        || (),
        |lines| async move {
            let c = builder(4).spawn(ok(&Log::default())).unwrap();
            tokio::time::sleep(24 * HOUR).await;
            assert_eq!(lines.count(), 0);
            drop(c);
        },
    );
}

#[test]
fn what_the_pace_has_decided_is_told_with_its_reason() {
    traced(
        || (),
        |lines| async move {
            let calls = AtomicU64::new(0);
            let sink = move |_: Batch<u64>| {
                let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
                std::future::ready(if is_first { Err(FlushError::throttled("slower", SEC)) } else { Ok(()) })
            };
            let c = BackpressureController::builder(100).name("orders").spawn(sink).unwrap();
            c.try_push(1).unwrap();
            idle().await;
            let told = lines.of("pace changed");
            let [line] = &told[..] else { panic!("{told:?}") };
            assert_eq!((line.level, line.fields["reason"].as_str()), (Some(Level::DEBUG), "throttled"));
            let explained = c.explain();
            let decision = explained.decisions[0].decision;
            assert_eq!(
                (line.number("batch"), line.number("calls"), line.number("decisions")),
                (decision.batch, decision.slots, explained.count)
            );
        },
    );
}
