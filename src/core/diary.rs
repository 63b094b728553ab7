//! What the head lock guards for those who watch: when something was told last, and what is to be told.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::events::Reporter;
use crate::health::Memory;
use crate::pace::Log;
use crate::telemetry::Meters;
use crate::time::{Tick, sooner};

#[derive(Debug)]
pub(crate) struct Diary {
    pub(super) meters: Meters,
    pub(super) schedule: Schedule,
    pub(super) reporter: Reporter,
    pub(super) echo: Echo,
    pub(super) health: Memory,
    /// What the pace has decided.
    pub(super) log: Log,
    /// When a call of the sink last answered `Ok(())`.
    pub(super) last_success: Option<Tick>,
    /// What the sink said when a call last failed.
    pub(super) last_error: Option<Arc<dyn Error + Send + Sync>>,
    /// When the flusher looked last.
    pub(super) looked: Option<Tick>,
    /// The flusher has ended while the intake was open.
    pub(super) is_gone: bool,
    /// That it has ended was told.
    pub(super) is_end_told: bool,
}

impl Diary {
    pub(super) fn new() -> Self {
        Self {
            meters: Meters::default(),
            schedule: Schedule::default(),
            reporter: Reporter::new(),
            echo: Echo::default(),
            health: Memory::default(),
            log: Log::new(),
            last_success: None,
            last_error: None,
            looked: None,
            is_gone: false,
            is_end_told: false,
        }
    }
}

/// After a settle the figures are published at most so often.
const QUICK: Duration = Duration::from_millis(250);
/// While anything is outstanding they are published so often.
pub(super) const SLOW: Duration = Duration::from_secs(1);
/// So many publications follow the last one that something from outside has caused.
const ECHOES: u8 = 3;

/// When the figures are to be published; lives under the head lock.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    last: Option<Tick>,
    /// How much had moved by then.
    moves: u64,
    /// Since when something is outstanding.
    busy_since: Option<Tick>,
    /// Publications since something came from outside.
    echoes: u8,
}

impl Schedule {
    /// When to publish next; `None` while there is nothing to tell.
    ///
    /// If that is now, it counts as done.
    pub(super) fn due(&mut self, now: Tick, is_busy: bool, is_outside: bool, moves: u64) -> Option<Tick> {
        self.busy_since = if is_busy { self.busy_since.or(Some(now)) } else { None };
        let quick = match self.last {
            _ if moves == self.moves => None,
            None => Some(now),
            Some(_) => self.quiet_until(),
        };
        let slow = self.busy_since.max(self.last).filter(|_| is_busy).and_then(|since| since.after(SLOW));
        let due = sooner(quick, slow)?;
        if is_outside {
            self.echoes = 0;
        } else if self.echoes == ECHOES {
            return None;
        }
        if due <= now {
            self.echoes += u8::from(!is_outside);
            self.note(now, moves);
        }
        Some(due)
    }

    /// Nothing is due before.
    pub(super) fn quiet_until(&self) -> Option<Tick> {
        self.last?.after(QUICK)
    }

    pub(super) fn note(&mut self, now: Tick, moves: u64) {
        (self.last, self.moves) = (Some(now), moves);
    }
}

/// What came in while this controller told something: perhaps by what it told, if a recorder or a subscriber pushes into it.
/// What may be an echo of itself causes no more to be told, so that it cannot feed itself.
#[derive(Debug, Default)]
pub(super) struct Echo {
    /// Positions before this one, and at or after `outside`, may be echoes.
    end: u64,
    /// The last item that came from outside for sure is before this position.
    outside: u64,
    /// The oldest item that was outstanding when something of each kind was told last.
    first: [u64; 2],
}

/// What is told: each kind comes to rest by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Figures,
    Events,
}

impl Echo {
    /// Whether something from outside is outstanding, or was when something of this kind was told last.
    pub(super) fn is_outside(&mut self, kind: Kind, end: u64) -> bool {
        self.first[kind as usize] < self.outside(end)
    }

    /// Items before this position came from outside, as far as one knows; `end` is the next position.
    pub(super) fn outside(&mut self, end: u64) -> u64 {
        if end > self.end {
            self.outside = end;
        }
        self.outside
    }

    pub(super) fn open(&mut self, kind: Kind, end: u64, first: u64) {
        self.outside(end);
        self.first[kind as usize] = first;
    }

    pub(super) fn close(&mut self, end: u64) {
        self.end = end;
    }
}
