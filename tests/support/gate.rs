//! A gate that holds calls of a sink.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Holds calls of the sink until the test lets them through.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// For all calls, from now on.
    pub(crate) fn open(&self) {
        self.0.close();
    }

    /// For so many calls.
    pub(crate) fn let_through(&self, calls: usize) {
        self.0.add_permits(calls);
    }

    pub(crate) async fn pass(&self) {
        // A closed semaphore is an open gate.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}
