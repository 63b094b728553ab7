//! What a controller answers to those whom it has refused.

use std::time::Duration;

use super::BackpressureController;

impl<T> BackpressureController<T> {
    /// When a producer that was refused should come back: when the sink will have made room for it, as fast as it drains now.
    ///
    /// Each call books the next place that comes free below the high mark. So call it once for each refusal, and those who
    /// keep to it come back one after the other, at the rate of the sink: fewer are refused again, and the sink is not left idle.
    /// Nothing is reserved by it: whoever comes meanwhile may have the place. If the sink is failing, nobody is to come back
    /// before its next attempt. What is booked and not used costs the next ones time, and no more than 60 s of it.
    ///
    /// The rate is what the sink has settled a second, in a window of 1 s or four calls, whichever is longer, in which it
    /// always had a batch waiting; the last one that was measured, or else that of single calls. As long as nothing is
    /// known, the answer is 1 s.
    ///
    /// 50 ms to 60 s, give or take 5 % at random. It takes no lock: a look at the clock, and a swap on one word. For the
    /// HTTP header see [`retry_after_secs`](crate::retry_after_secs).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use backpressure::{BackpressureController, Batch, Strategy};
    /// # let sink = |_: Batch<u32>| async { Ok(()) };
    /// # let builder = BackpressureController::builder(1).strategy(Strategy::DropNewest);
    /// # let (events, _flusher) = builder.build(sink)?;
    /// events.try_push(1)?;
    /// if let Err(refused) = events.try_push(2) {
    ///     let wait = events.retry_after();
    ///     assert!(wait >= Duration::from_millis(47) && wait <= Duration::from_secs(63));
    ///     let (_item, _to_its_sender) = (refused.into_inner(), wait);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "it books a place"]
    pub fn retry_after(&self) -> Duration {
        self.core.retry_after(1)
    }

    /// Like [`retry_after`](Self::retry_after), for one who was refused so many items at once.
    #[must_use = "it books places"]
    pub fn retry_after_for(&self, items: usize) -> Duration {
        self.core.retry_after(items as u64)
    }
}
