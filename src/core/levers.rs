//! What can be changed while the controller runs and is read by producers.

use std::sync::Arc;

use crate::strategy::Strategy;
use crate::sync::{CachePadded, Mutex, STRIPES, stripe};

/// The strategy, a copy for each stripe of threads: producers that ask it at the same time write no line in common.
pub(super) struct Levers<T> {
    stripes: [CachePadded<Mutex<Arc<Strategy<T>>>>; STRIPES],
}

impl<T> Levers<T> {
    pub(super) fn new(strategy: &Strategy<T>) -> Self {
        Self { stripes: std::array::from_fn(|_| CachePadded::new(Mutex::new(Arc::new(strategy.clone())))) }
    }

    pub(super) fn strategy(&self) -> Arc<Strategy<T>> {
        Arc::clone(&self.stripes[stripe()].lock())
    }
}
