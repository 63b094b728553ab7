//! What can be changed while the controller runs and is read by producers.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::age::AgeLimits;
use crate::error::BuildError;
use crate::pace::Aim;
use crate::retry::Retry;
use crate::state::Watermarks;
use crate::strategy::Strategy;
use crate::sync::{CachePadded, Mutex, MutexGuard, STRIPES, stripe};

/// What the flusher goes by.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) watermarks: Watermarks,
    /// In `1 ..= capacity`, as it was asked for.
    pub(crate) max_batch: usize,
    /// Of the pace that does not adapt.
    pub(crate) linger: Duration,
    /// Of the one that does.
    pub(crate) aim: Aim,
    pub(crate) is_adaptive: bool,
    pub(crate) retry: Retry,
    /// `Duration::MAX` means never.
    pub(crate) flush_timeout: Duration,
    pub(crate) ages: AgeLimits,
    /// Halves batches that fail for good.
    pub(crate) bisect: bool,
}

impl Settings {
    /// What the pace adapts to, if it does.
    pub(crate) fn aim(&self) -> Option<Aim> {
        let longest = self.ages.longest_linger();
        let Aim { target_latency, min_interval, max_interval } = self.aim;
        let (min_interval, max_interval) = (min_interval.min(longest), max_interval.min(longest));
        self.is_adaptive.then_some(Aim { target_latency, min_interval, max_interval })
    }

    /// Whether they can work with a buffer of `capacity`.
    pub(crate) fn check(&self, capacity: usize) -> Result<(), BuildError> {
        let batch = self.max_batch;
        if batch == 0 {
            return Err(BuildError::BatchZero);
        }
        if batch > capacity {
            return Err(BuildError::BatchAboveCapacity { batch, capacity });
        }
        let Aim { target_latency, min_interval: min, max_interval: max } = self.aim;
        if target_latency.is_zero() {
            return Err(BuildError::TargetLatencyZero);
        }
        if min > max {
            return Err(BuildError::IntervalsCrossed { min, max });
        }
        if self.flush_timeout.is_zero() {
            return Err(BuildError::FlushTimeoutZero);
        }
        self.ages.check()?;
        self.retry.check()
    }

    /// How long a partial batch waits at most.
    pub(super) fn linger(&self) -> Duration {
        self.linger.min(self.ages.longest_linger())
    }
}

/// The strategy, a copy for each stripe of threads: producers that ask it at the same time write no line in common.
pub(super) struct Levers<T> {
    stripes: [CachePadded<Mutex<Arc<Strategy<T>>>>; STRIPES],
    /// Two changes at the same time must not leave a strategy of each. No user code runs while it is held.
    turn: Mutex<()>,
}

impl<T> Levers<T> {
    pub(super) fn new(strategy: &Strategy<T>) -> Self {
        let stripe = |_| CachePadded::new(Mutex::new(Arc::new(strategy.clone())));
        Self { stripes: std::array::from_fn(stripe), turn: Mutex::new(()) }
    }

    /// One change at a time.
    pub(super) fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Sets the strategy; the caller holds the turn, and drops the old ones later.
    pub(super) fn set_strategy(&self, strategy: &Strategy<T>) -> Vec<Arc<Strategy<T>>> {
        let set = |stripe: &CachePadded<Mutex<_>>| mem::replace(&mut *stripe.lock(), Arc::new(strategy.clone()));
        self.stripes.iter().map(set).collect()
    }

    pub(super) fn strategy(&self) -> Arc<Strategy<T>> {
        Arc::clone(&self.stripes[stripe()].lock())
    }
}
