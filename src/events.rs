//! Events: the one file that names `tracing`. Without the feature of that name there are none, and what leads to them is
//! constant and compiles to nothing.
//!
//! The flusher emits them, outside all locks. Each kind is limited in time, and what a subscriber pushes into the same
//! controller while it is told something leads to no further event, so that the events cannot feed themselves.

use std::error::Error;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Losses;
use crate::pace::{Decision, FlushReason};
use crate::state::State;
use crate::time::Tick;

/// What is told.
#[derive(Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "nobody is told"))]
pub(crate) enum Event {
    State { from: State, to: State },
    Lost { since: Losses, total: u64 },
    Failed { failure: Failure, failures: u64, error: Option<Arc<dyn Error + Send + Sync>> },
    Flush { reason: FlushReason, items: usize },
    Blocked { producers: u64, longest: Duration },
    Decided { decision: Decision, decisions: u64 },
    Ended { delivered: u64, lost: Losses },
}

/// A call of the sink that did not deliver its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "nobody is told"))]
pub(crate) struct Failure {
    pub(crate) outcome: &'static str,
    pub(crate) attempt: u32,
    pub(crate) items: u64,
}

/// Losses, failed attempts: the first at once, then at most so often.
const EACH: Duration = Duration::from_secs(1);
/// Producers that have waited for so long are told of.
const BLOCKED: Duration = Duration::from_secs(1);
/// And as long as there are any, so often.
const BLOCKED_AGAIN: Duration = Duration::from_secs(10);
/// So many changes of the state may come in a row, and then one a second.
const CHANGES: u64 = 8;

/// What the reporter looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) now: Tick,
    pub(crate) state: State,
    pub(crate) losses: Losses,
    pub(crate) producers: u64,
    pub(crate) oldest_wait: Option<Tick>,
    /// The last decision of the pace, and how many there were.
    pub(crate) decision: Option<Decision>,
    pub(crate) decisions: u64,
}

/// Decides what is told, and when.
#[derive(Debug)]
pub(crate) struct Reporter {
    state: State,
    changes: u64,
    refilled: Tick,
    lost: Limited,
    /// The losses that were told.
    told: Losses,
    /// As many as these lead to no event any more: told, or perhaps caused by what was told.
    seen: u64,
    failed: Limited,
    failures: u64,
    failure: Option<Failure>,
    blocked: Option<Tick>,
    decided: Limited,
    /// Decisions that were told.
    decisions: u64,
}

/// Something that is told once in a while.
#[derive(Debug, Default)]
struct Limited {
    last: Option<Tick>,
}

impl Limited {
    /// When it may be told.
    fn due(&self, now: Tick) -> Option<Tick> {
        self.last.map_or(Some(now), |last| last.after(EACH))
    }
}

impl Reporter {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Normal,
            changes: CHANGES,
            refilled: Tick::default(),
            lost: Limited::default(),
            told: Losses::default(),
            seen: 0,
            failed: Limited::default(),
            failures: 0,
            failure: None,
            blocked: None,
            decided: Limited::default(),
            decisions: 0,
        }
    }

    /// An attempt has failed.
    pub(crate) fn note_failure(&mut self, failure: Failure) {
        self.failures += 1;
        self.failure = Some(failure);
    }

    /// What was lost in between was perhaps lost by what was told.
    pub(crate) fn absorb(&mut self, before: &Losses, now: &Losses) {
        self.seen = now.unasked().min(self.seen + now.unasked() - before.unasked());
    }

    /// What is to be told now, without errors, and when to look again for what is not.
    pub(crate) fn look(&mut self, sight: &Sight, events: &mut Vec<Event>) -> Option<Tick> {
        let dues = [
            self.look_at_state(sight, events),
            self.look_at_failures(sight, events),
            self.look_at_losses(sight, events),
            self.look_at_producers(sight, events),
            self.look_at_decisions(sight, events),
        ];
        dues.into_iter().flatten().min()
    }

    fn look_at_state(&mut self, sight: &Sight, events: &mut Vec<Event>) -> Option<Tick> {
        let more = sight.now.since(self.refilled).as_secs();
        if more > 0 {
            self.changes = CHANGES.min(self.changes.saturating_add(more));
            self.refilled = sight.now;
        }
        if sight.state == self.state {
            return None;
        }
        if self.changes == 0 {
            return self.refilled.after(EACH);
        }
        self.changes -= 1;
        events.push(Event::State { from: mem::replace(&mut self.state, sight.state), to: sight.state });
        None
    }

    fn look_at_failures(&mut self, sight: &Sight, events: &mut Vec<Event>) -> Option<Tick> {
        let failure = self.failure?;
        let due = self.failed.due(sight.now)?;
        if due > sight.now {
            return Some(due);
        }
        self.failed.last = Some(sight.now);
        self.failure = None;
        events.push(Event::Failed { failure, failures: mem::take(&mut self.failures), error: None });
        None
    }

    fn look_at_losses(&mut self, sight: &Sight, events: &mut Vec<Event>) -> Option<Tick> {
        if sight.losses.unasked() <= self.seen {
            return None;
        }
        let due = self.lost.due(sight.now)?;
        if due > sight.now {
            return Some(due);
        }
        self.lost.last = Some(sight.now);
        self.seen = sight.losses.unasked();
        let since = sight.losses.since(&mem::replace(&mut self.told, sight.losses));
        events.push(Event::Lost { since, total: sight.losses.total() });
        None
    }

    fn look_at_producers(&mut self, sight: &Sight, events: &mut Vec<Event>) -> Option<Tick> {
        let since = sight.oldest_wait?;
        let again = self.blocked.and_then(|last| last.after(BLOCKED_AGAIN));
        let due = since.after(BLOCKED)?.max(again.unwrap_or_default());
        if due > sight.now {
            return Some(due);
        }
        self.blocked = Some(sight.now);
        events.push(Event::Blocked { producers: sight.producers, longest: sight.now.since(since) });
        sight.now.after(BLOCKED_AGAIN)
    }

    fn look_at_decisions(&mut self, sight: &Sight, events: &mut Vec<Event>) -> Option<Tick> {
        let decision = sight.decision.filter(|_| sight.decisions > self.decisions)?;
        let due = self.decided.due(sight.now)?;
        if due > sight.now {
            return Some(due);
        }
        self.decided.last = Some(sight.now);
        let decisions = sight.decisions - mem::replace(&mut self.decisions, sight.decisions);
        events.push(Event::Decided { decision, decisions });
        None
    }
}

#[cfg(feature = "tracing")]
pub(crate) use self::live::{emit, is_on, is_tracing_flushes, may_trace_flushes};
#[cfg(not(feature = "tracing"))]
pub(crate) use self::none::{emit, is_on, is_tracing_flushes, may_trace_flushes};

#[cfg(feature = "tracing")]
mod live {
    use tracing::level_filters::LevelFilter;
    use tracing::{Level, debug, enabled, info, trace, warn};

    use super::{Event, State};

    /// Whether anybody may listen.
    pub(crate) fn is_on() -> bool {
        LevelFilter::current() != LevelFilter::OFF
    }

    /// Whether anybody may listen to single flushes; nobody is asked.
    pub(crate) fn may_trace_flushes() -> bool {
        LevelFilter::current() >= LevelFilter::TRACE
    }

    /// Whether the subscriber of this thread listens to single flushes.
    pub(crate) fn is_tracing_flushes() -> bool {
        enabled!(target: "backpressure", Level::TRACE)
    }

    /// Tells the subscriber of this thread.
    pub(crate) fn emit(queue: &str, event: &Event) {
        match event {
            Event::State { from, to } => {
                let (from, to) = (from.as_str(), to.as_str());
                if matches!(event, Event::State { to: State::Critical | State::Blocked, .. }) {
                    info!(target: "backpressure", queue, from, to, "state changed");
                } else {
                    debug!(target: "backpressure", queue, from, to, "state changed");
                }
            }
            Event::Lost { since: s, total } => warn!(
                target: "backpressure",
                queue, failed = s.failed, evicted = s.evicted, expired = s.expired, purged = s.purged,
                abandoned = s.abandoned, total, "items lost"
            ),
            Event::Failed { failure, failures, error } => {
                let (outcome, attempt, items) = (failure.outcome, failure.attempt, failure.items);
                let error = error.as_ref().map(tracing::field::display);
                warn!(target: "backpressure", queue, outcome, attempt, items, failures, error, "flush failed");
            }
            Event::Flush { reason, items } => {
                trace!(target: "backpressure", queue, reason = reason.as_str(), items = *items as u64, "flush");
            }
            Event::Blocked { producers, longest } => {
                let longest_seconds = longest.as_secs_f64();
                warn!(target: "backpressure", queue, producers, longest_seconds, "producers are blocked");
            }
            Event::Decided { decision: d, decisions } => debug!(
                target: "backpressure",
                queue, reason = d.reason.as_str(), batch = d.batch, calls = d.slots, rate = d.rate, decisions, "pace changed"
            ),
            Event::Ended { delivered, lost: l } if l.total() > 0 => warn!(
                target: "backpressure",
                queue, delivered, failed = l.failed, evicted = l.evicted, expired = l.expired, purged = l.purged,
                abandoned = l.abandoned, total = l.total(), "ended, with items lost"
            ),
            Event::Ended { delivered, .. } => info!(target: "backpressure", queue, delivered, "ended"),
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod none {
    use super::Event;

    pub(crate) const fn is_on() -> bool {
        false
    }

    pub(crate) const fn may_trace_flushes() -> bool {
        false
    }

    pub(crate) const fn is_tracing_flushes() -> bool {
        false
    }

    pub(crate) const fn emit(_: &str, _: &Event) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::DecisionReason;

    fn at(millis: u64) -> Tick {
        Tick::at(Duration::from_millis(millis))
    }

    fn sight(millis: u64, evicted: u64, state: State) -> Sight {
        let losses = Losses { evicted, ..Losses::default() };
        Sight { now: at(millis), state, losses, producers: 0, oldest_wait: None, decision: None, decisions: 0 }
    }

    fn look(reporter: &mut Reporter, sight: Sight) -> (String, Option<Tick>) {
        let mut events = Vec::new();
        let due = reporter.look(&sight, &mut events);
        let names = events.iter().map(|event| match event {
            Event::State { from, to } => format!("{from}-{to}"),
            Event::Lost { since, total } => format!("{} of {total}", since.total()),
            Event::Failed { failure, failures, .. } => format!("{}x{failures}", failure.outcome),
            Event::Blocked { producers, longest } => format!("{producers} for {longest:?}"),
            Event::Decided { decision, decisions } => format!("{}x{decisions}", decision.reason),
            other => format!("{other:?}"),
        });
        (names.collect::<Vec<_>>().join(", "), due)
    }

    #[test]
    fn the_first_loss_is_told_at_once_and_then_one_event_a_second() {
        let mut reporter = Reporter::new();
        let mut at = |millis, evicted| look(&mut reporter, sight(millis, evicted, State::Normal));
        assert_eq!(at(5, 0), (String::new(), None));
        assert_eq!(at(10, 1), ("1 of 1".to_owned(), None));
        assert_eq!(at(11, 3), (String::new(), Tick::at(Duration::from_millis(1010)).into()));
        assert_eq!(at(1009, 50), (String::new(), Tick::at(Duration::from_millis(1010)).into()));
        assert_eq!(at(1010, 60), ("59 of 60".to_owned(), None));
        assert_eq!(at(5000, 60), (String::new(), None));
        let lost = |evicted| Losses { evicted, ..Losses::default() };
        reporter.absorb(&lost(60), &lost(61));
        let mut at = |millis, evicted| look(&mut reporter, sight(millis, evicted, State::Normal));
        assert_eq!(at(6000, 61), (String::new(), None), "an echo");
        assert_eq!(at(7000, 62), ("2 of 62".to_owned(), None), "counted all the same");
    }

    #[test]
    fn changes_of_the_state_come_in_order_and_not_without_end() {
        let mut reporter = Reporter::new();
        let mut told = 0;
        for millis in 0..1000 {
            let state = if millis % 2 == 0 { State::Blocked } else { State::Normal };
            told += usize::from(!look(&mut reporter, sight(millis, 0, state)).0.is_empty());
        }
        assert_eq!(told, 8);
        let (none, due) = look(&mut reporter, sight(999, 0, State::Critical));
        assert_eq!((none.as_str(), due), ("", Some(at(1000))));
        assert_eq!(look(&mut reporter, sight(1000, 0, State::Critical)).0, "normal-critical");
        assert_eq!(look(&mut reporter, sight(9000, 0, State::Normal)).0, "critical-normal");
    }

    #[test]
    fn failures_are_gathered() {
        let failure = |attempt| Failure { outcome: "retry", attempt, items: 1 };
        let mut reporter = Reporter::new();
        reporter.note_failure(failure(1));
        assert_eq!(look(&mut reporter, sight(0, 0, State::Normal)).0, "retryx1");
        (2..5).for_each(|attempt| reporter.note_failure(failure(attempt)));
        assert_eq!(look(&mut reporter, sight(500, 0, State::Normal)), (String::new(), Some(at(1000))));
        assert_eq!(look(&mut reporter, sight(1000, 0, State::Normal)), ("retryx3".to_owned(), None));
        assert_eq!(look(&mut reporter, sight(9000, 0, State::Normal)), (String::new(), None));
    }

    #[test]
    fn decisions_are_gathered() {
        let decided = |millis, reason, decisions| Sight {
            decision: Some(Decision { at: at(millis), reason, batch: 1, slots: 1, rate: None }),
            decisions,
            ..sight(millis, 0, State::Normal)
        };
        let mut reporter = Reporter::new();
        assert_eq!(look(&mut reporter, decided(0, DecisionReason::Grow, 1)).0, "growx1");
        let soon = decided(400, DecisionReason::Shrink, 4);
        assert_eq!(look(&mut reporter, soon), (String::new(), Some(at(1000))));
        assert_eq!(look(&mut reporter, decided(1000, DecisionReason::Failed, 5)).0, "failedx4");
        assert_eq!(look(&mut reporter, decided(9000, DecisionReason::Failed, 5)), (String::new(), None));
    }

    #[test]
    fn producers_are_told_of_after_a_second_and_then_every_ten() {
        let mut reporter = Reporter::new();
        let waits = |millis| Sight { producers: 3, oldest_wait: Some(at(100)), ..sight(millis, 0, State::Normal) };
        assert_eq!(look(&mut reporter, waits(100)), (String::new(), Some(at(1100))));
        assert_eq!(look(&mut reporter, waits(1100)), ("3 for 1s".to_owned(), Some(at(11_100))));
        assert_eq!(look(&mut reporter, waits(5000)), (String::new(), Some(at(11_100))));
        assert_eq!(look(&mut reporter, waits(11_100)).0, "3 for 11s");
    }
}
