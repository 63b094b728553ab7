//! Items that are counted as long as they live.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// An item that is known to be alive.
#[derive(Debug)]
pub(crate) struct Token {
    living: Arc<Living>,
}

/// How many tokens there are.
#[derive(Debug, Default)]
pub(crate) struct Living {
    now: AtomicI64,
    peak: AtomicI64,
}

impl Living {
    #[cfg(test)]
    pub(crate) fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The most that there ever were at once.
    pub(crate) fn peak(&self) -> i64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Token {
    pub(crate) fn new(living: &Arc<Living>) -> Self {
        let now = living.now.fetch_add(1, Ordering::Relaxed) + 1;
        living.peak.fetch_max(now, Ordering::Relaxed);
        Self { living: Arc::clone(living) }
    }
}

impl Clone for Token {
    fn clone(&self) -> Self {
        Self::new(&self.living)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.living.now.fetch_sub(1, Ordering::Relaxed);
    }
}
