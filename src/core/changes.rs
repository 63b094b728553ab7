//! What can be changed while a controller runs, all at once.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::{AgeLimits, Core, Settings, check_capacity};
use crate::error::BuildError;
use crate::pace::Aim;
use crate::retry::Retry;
use crate::state::Watermarks;
use crate::strategy::Strategy;

/// Settings to be changed while the controller runs, see [`reconfigure`](crate::BackpressureController::reconfigure).
/// What is not named stays.
#[must_use = "changes change nothing by themselves"]
pub struct Changes<T> {
    capacity: Option<usize>,
    strategy: Option<Strategy<T>>,
    watermarks: Option<Watermarks>,
    max_batch: Option<usize>,
    linger: Option<Duration>,
    is_adaptive: Option<bool>,
    target_latency: Option<Duration>,
    min_interval: Option<Duration>,
    max_interval: Option<Duration>,
    flush_timeout: Option<Duration>,
    retry: Option<Retry>,
    max_age: Option<Duration>,
    critical_age: Option<Duration>,
    max_delay: Option<Duration>,
}

impl<T> Changes<T> {
    pub(crate) const fn new() -> Self {
        Self {
            capacity: None,
            strategy: None,
            watermarks: None,
            max_batch: None,
            linger: None,
            is_adaptive: None,
            target_latency: None,
            min_interval: None,
            max_interval: None,
            flush_timeout: None,
            retry: None,
            max_age: None,
            critical_age: None,
            max_delay: None,
        }
    }

    /// The capacity, in `1 ..= max_capacity`, as [`set_capacity`](crate::BackpressureController::set_capacity) has it.
    pub fn capacity(mut self, items: usize) -> Self {
        self.capacity = Some(items);
        self
    }

    /// What happens to an item that finds no room. Producers that wait already go on waiting as they were told.
    pub fn strategy(mut self, strategy: Strategy<T>) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// The marks of the states Elevated and Critical. The state follows at once.
    pub fn watermarks(mut self, watermarks: Watermarks) -> Self {
        self.watermarks = Some(watermarks);
        self
    }

    /// The most items of a batch, in `1 ..= max_capacity`; from the next batch on.
    pub fn max_batch(mut self, items: usize) -> Self {
        self.max_batch = Some(items);
        self
    }

    /// How long a partial batch may wait, from its oldest item; for what is buffered already, too. That switches adapting off,
    /// as [`fixed`](Self::fixed) does.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger);
        self.is_adaptive = Some(false);
        self
    }

    /// Switches adapting off: batches of up to so many items, in `1 ..= max_capacity`, and such a linger.
    pub fn fixed(self, batch: usize, linger: Duration) -> Self {
        self.max_batch(batch).linger(linger)
    }

    /// Switches adapting on again; it begins where it stood. Of this and [`fixed`](Self::fixed) the last one counts. A
    /// controller that is pulled from does not adapt.
    pub fn adaptive(mut self) -> Self {
        self.is_adaptive = Some(true);
        self
    }

    /// The [target latency](crate::Builder::target_latency), above zero. What was measured counts no longer, and the batch
    /// goes on from where it is.
    pub fn target_latency(mut self, target: Duration) -> Self {
        self.target_latency = Some(target);
        self
    }

    /// The [shortest interval](crate::Builder::min_interval), at most the longest.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = Some(interval);
        self
    }

    /// The [longest interval](crate::Builder::max_interval), at least the shortest; for what is buffered already, too.
    pub fn max_interval(mut self, interval: Duration) -> Self {
        self.max_interval = Some(interval);
        self
    }

    /// How long one call of the sink may take, above zero; from the next call on.
    pub fn flush_timeout(mut self, limit: Duration) -> Self {
        self.flush_timeout = Some(limit);
        self
    }

    /// When a failed batch is sent again; from the next failure on. A batch that was given a moment for its next attempt
    /// keeps it.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How old an item may become, above zero; `Duration::MAX` means that none is too old. What is inside already is judged by
    /// it, too; what was taken into a batch before any age was set is never too old.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// The age of the state Critical, above zero; `Duration::MAX` for never. The state follows after an interval.
    pub fn critical_age(mut self, age: Duration) -> Self {
        self.critical_age = Some(age);
        self
    }

    /// How long a queue may be, above zero, as [`Builder::max_delay`](crate::Builder::max_delay) has it; `Duration::MAX` gives the
    /// whole capacity back at once, anything else works from the next measurement on.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = Some(delay);
        self
    }
}

impl<T> fmt::Debug for Changes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("capacity", &self.capacity)
            .field("strategy", &self.strategy)
            .field("watermarks", &self.watermarks)
            .field("max_batch", &self.max_batch)
            .field("linger", &self.linger)
            .field("is_adaptive", &self.is_adaptive)
            .field("target_latency", &self.target_latency)
            .field("min_interval", &self.min_interval)
            .field("max_interval", &self.max_interval)
            .field("flush_timeout", &self.flush_timeout)
            .field("retry", &self.retry)
            .field("max_age", &self.max_age)
            .field("critical_age", &self.critical_age)
            .field("max_delay", &self.max_delay)
            .finish()
    }
}

impl<T> Changes<T> {
    /// The settings as they will be.
    fn apply(&self, settings: &Settings) -> Settings {
        Settings {
            watermarks: self.watermarks.unwrap_or(settings.watermarks),
            max_batch: self.max_batch.unwrap_or(settings.max_batch),
            linger: self.linger.unwrap_or(settings.linger),
            aim: Aim {
                target_latency: self.target_latency.unwrap_or(settings.aim.target_latency),
                min_interval: self.min_interval.unwrap_or(settings.aim.min_interval),
                max_interval: self.max_interval.unwrap_or(settings.aim.max_interval),
            },
            is_adaptive: self.is_adaptive.unwrap_or(settings.is_adaptive),
            flush_timeout: self.flush_timeout.unwrap_or(settings.flush_timeout),
            bisect: settings.bisect,
            retry: self.retry.as_ref().unwrap_or(&settings.retry).clone(),
            ages: AgeLimits {
                max_age: self.max_age.unwrap_or(settings.ages.max_age),
                critical_age: self.critical_age.or(settings.ages.critical_age),
                max_delay: self.max_delay.unwrap_or(settings.ages.max_delay),
            },
        }
    }
}

impl<T> Core<T> {
    /// Makes the changes, all or none.
    pub(crate) fn reconfigure(&self, changes: Changes<T>) -> Result<(), BuildError> {
        if let Some(items) = changes.capacity {
            check_capacity(items, self.max_capacity())?;
        }
        if let Some(strategy) = &changes.strategy {
            strategy.check()?;
        }
        // A strategy may be the user's: it is asked before any lock is taken.
        let posture = changes.strategy.as_ref().map(Strategy::posture);
        let turn = self.levers.take_turn();
        let settings = changes.apply(&self.settings());
        settings.check(self.max_capacity())?;
        let strategy = changes.strategy.map_or_else(|| self.levers.strategy(), Arc::new);

        let mut locked = self.gate.lock();
        let limit = |capacity| strategy.batch_limit(settings.max_batch, capacity);
        let max_batch = locked.ask(changes.capacity, settings.ages.max_delay, limit);
        locked.set_levels(settings.watermarks, max_batch);
        if let Some(posture) = posture {
            locked.set_posture(posture);
        }
        locked.set_aging(settings.ages.is_set());
        let hangar = &mut locked.desk().rest;
        hangar.sample_rates = strategy.sample_rates();
        let old =
            (mem::replace(&mut hangar.settings, Arc::new(settings)), mem::replace(&mut hangar.max_batch, max_batch));
        // A shorter linger, a smaller batch: the flusher may have slept too long already.
        locked.rouse();
        let effects = locked.finish();
        let old_strategies = posture.map(|_| self.levers.set_strategy(&strategy));
        drop(turn);

        // Wakers, and the destructors of a schedule and of a strategy, are the user's.
        self.apply(effects);
        self.guard(|| drop(old));
        self.drop_items(old_strategies.into_iter().flatten().chain([strategy]));
        Ok(())
    }
}
