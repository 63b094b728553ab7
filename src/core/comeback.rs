//! When refused producers should come back: what they read without a lock, and the one word that they write.

use std::time::Duration;

use super::Core;
use crate::retry_after::Refusal;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::time::Tick;

#[derive(Debug, Default)]
pub(super) struct Comeback {
    /// The slot that was booked last, in nanoseconds: in a line of its own, since each refusal that asks writes it.
    slot: CachePadded<AtomicU64>,
    /// Items that the sink settles in a second: the bits of an `f64`, 0 as long as that is not known.
    rate: AtomicU64,
    /// No batch is sent before, in nanoseconds.
    hold: AtomicU64,
}

impl<T> Core<T> {
    /// When somebody who was refused so many items should come back. Books a slot.
    pub(crate) fn retry_after(&self, items: u64) -> Duration {
        // Ordering: Relaxed, figures that say nothing of other memory.
        let rate = f64::from_bits(self.comeback.rate.load(Ordering::Relaxed));
        let refusal = Refusal {
            now: self.now(),
            items,
            excess: self.gate.excess(items),
            rate: (rate > 0.0).then_some(rate),
            hold: Tick::from_nanos(self.comeback.hold.load(Ordering::Relaxed)),
        };
        let mut last = self.comeback.slot.load(Ordering::Relaxed);
        loop {
            let slot = refusal.book(last);
            match self.comeback.slot.compare_exchange_weak(last, slot, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return refusal.wait(slot, self.nonce),
                Err(now) => last = now,
            }
        }
    }

    /// The sink has failed, and is not called before this moment; `None` is never.
    pub(super) fn hold(&self, until: Option<Tick>) {
        self.gate.lock().desk().rest.drain_rate.rest();
        // Ordering: Relaxed, as above.
        self.comeback.hold.store(until.map_or(u64::MAX, Tick::nanos), Ordering::Relaxed);
    }

    /// The sink drains at this rate.
    pub(super) fn drains_at(&self, rate: Option<f64>) {
        // Ordering: Relaxed, as above.
        self.comeback.rate.store(rate.unwrap_or(0.0).to_bits(), Ordering::Relaxed);
    }
}
