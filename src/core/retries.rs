//! When a batch is sent again, by the settings as they are at that time.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::{Core, Settings};
use crate::panics::catch;
use crate::retry::{Due, Jitter, Tries};
use crate::time::Tick;

/// The randomness of one consumer's retries.
#[derive(Debug)]
pub(crate) struct Retries {
    /// As they were when the jitter was seeded.
    settings: Arc<Settings>,
    jitter: Jitter,
}

impl Retries {
    pub(crate) fn new<T>(core: &Core<T>) -> Self {
        let settings = core.settings();
        let jitter = settings.retry.jitter(core.nonce());
        Self { settings, jitter }
    }

    /// When the attempt after the one that failed at `at` may start; `None` is the final verdict.
    pub(crate) fn next<T>(&mut self, core: &Core<T>, tries: &mut Tries, at: Tick, asked: Duration) -> Option<Due> {
        let settings = core.settings();
        if !Arc::ptr_eq(&settings, &self.settings) {
            self.jitter = settings.retry.jitter(self.jitter.next());
            let old = mem::replace(&mut self.settings, Arc::clone(&settings));
            // The destructor of a schedule is the user's, too.
            catch(|| drop(old));
        }
        // A schedule may be the user's.
        let due = catch(|| settings.retry.next(tries, at, asked, &mut self.jitter)).flatten();
        match due {
            Some(Due(at)) => core.hold(at),
            // The pause that the sink has asked for is everybody's.
            None if !asked.is_zero() => core.hold(at.after(asked)),
            None => {}
        }
        due
    }
}
