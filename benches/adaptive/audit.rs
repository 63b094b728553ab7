//! I1 after each flush.

use std::sync::Arc;

use backpressure::BackpressureController;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A task that looks at the books whenever a flush has ended.
///
/// The flusher settles a flush in the same breath in which the sink's answer comes, and this task runs after it.
#[derive(Debug)]
pub(crate) struct Auditor(JoinHandle<()>);

impl Auditor {
    /// `check` panics if something is wrong.
    pub(crate) fn start(ended: Arc<Notify>, check: impl Fn() + Send + 'static) -> Self {
        Self(tokio::spawn(async move {
            loop {
                ended.notified().await;
                check();
            }
        }))
    }

    /// Of a controller of the crate, by its own audit.
    pub(crate) fn of<T: Send + 'static>(ended: &Arc<Notify>, controller: &BackpressureController<T>) -> Self {
        let controller = controller.clone();
        Self::start(Arc::clone(ended), move || audit(&controller))
    }

    /// To be called now and then, and at the end.
    pub(crate) fn has_found_nothing(&self) {
        assert!(!self.0.is_finished(), "the books are not in order");
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) fn audit<T>(controller: &BackpressureController<T>) {
    controller.snapshot().audit().expect("the books are in order");
}
