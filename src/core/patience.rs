//! How long one waits for another thread to write what it has claimed.

use crate::sync::{Backoff, thread};

/// Spins, then gives its thread away, for some milliseconds in all: the other one may have lost its processor. Bounded, since
/// the thread that waits may be a worker of a runtime.
pub(super) struct Patience {
    backoff: Backoff,
    yields: u32,
}

impl Patience {
    /// Of half a microsecond at least. A scheduler of models has no time slices.
    const MOST_YIELDS: u32 = if cfg!(any(backpressure_loom, backpressure_shuttle)) { 200 } else { 10_000 };

    pub(super) const fn new() -> Self {
        Self { backoff: Backoff::new(), yields: 0 }
    }

    pub(super) const fn is_exhausted(&self) -> bool {
        self.yields >= Self::MOST_YIELDS
    }

    #[cold]
    pub(super) fn wait(&mut self) {
        if self.backoff.is_exhausted() {
            self.yields += 1;
            thread::yield_now();
        } else {
            self.backoff.spin();
        }
    }
}
