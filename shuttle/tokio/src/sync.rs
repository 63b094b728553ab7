//! shuttle-tokio's channels, and its `Notify` with owned waits.

pub use shuttle_tokio::sync::{oneshot, watch};

use std::sync::Arc;

/// Waits for a notification.
pub mod futures {
    use std::fmt;
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use super::Notify;

    /// Waits for a notification, and keeps what it waits for.
    pub struct OwnedNotified(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

    impl OwnedNotified {
        pub(super) fn new(notify: Arc<Notify>) -> Self {
            // It queues when it is first polled, as it does for `notify_one` in tokio.
            Self(Box::pin(async move { notify.notified().await }))
        }
    }

    impl Future for OwnedNotified {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.0.as_mut().poll(cx)
        }
    }

    impl fmt::Debug for OwnedNotified {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("OwnedNotified")
        }
    }
}

/// Tells one task at a time.
#[derive(Debug, Default)]
pub struct Notify(shuttle_tokio::sync::Notify);

impl Notify {
    /// Nobody is told yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells one who waits, or the next one who will.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Waits to be told.
    pub fn notified(&self) -> impl Future<Output = ()> + Send + Sync + '_ {
        self.0.notified()
    }

    /// The same, without a borrow.
    #[must_use]
    pub fn notified_owned(self: Arc<Self>) -> futures::OwnedNotified {
        futures::OwnedNotified::new(self)
    }
}
