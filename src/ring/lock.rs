//! The head lock: taken by one compare-and-swap, released by a plain store.
//!
//! ```text
//! word    0 free, 1 held
//! wanted  how many wait for it in earnest
//! ```
//!
//! Nobody is parked, so there is nobody to wake, and no wake-up to lose. Whoever waits spins, then gives its turn away, then
//! sleeps, so that a holder that was preempted gets to run, whatever its priority. It is not fair. What keeps a storm of
//! evictions from starving the flusher is that an eviction only *tries* for a while, and a try lets those go first that wait
//! in earnest: without that the flusher waited for 0.4 ms on average while one thread evicted, with it for 3 us.
#![cfg_attr(backpressure_loom, allow(dead_code, reason = "under loom the ring has loom's mutex"))]

#[cfg(not(backpressure_loom))]
use parking_lot::lock_api::{self, GuardNoSend};

use crate::sync::{AtomicU64, Backoff, Fault, Ordering, order, rest};

/// What the head lock guards.
#[cfg(not(backpressure_loom))]
pub(super) type Mutex<T> = lock_api::Mutex<RawLock, T>;
#[cfg(not(backpressure_loom))]
pub(super) type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

const FREE: u64 = 0;
const HELD: u64 = 1;

pub(super) struct RawLock {
    word: AtomicU64,
    /// On the same line, so that a try pays for one line only.
    wanted: AtomicU64,
}

impl RawLock {
    /// Takes it if nobody holds it or waits for it in earnest.
    #[inline(always)]
    fn try_take(&self) -> bool {
        // Ordering: Relaxed, a courtesy.
        self.wanted.load(Ordering::Relaxed) == 0 && self.take_free()
    }

    #[inline(always)]
    fn take(&self) {
        if !self.take_free() {
            self.take_slow();
        }
    }

    #[cold]
    fn take_slow(&self) {
        let mut rests = 0;
        while !self.take_in_earnest() {
            // The holder does not run. Nobody is held up meanwhile.
            rest(rests);
            rests += 1;
        }
    }

    /// Spins for it for a while.
    fn take_in_earnest(&self) -> bool {
        let mut backoff = Backoff::new();
        // Ordering: Relaxed, a courtesy.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let is_taken = loop {
            match self.take_free() {
                false if !backoff.is_exhausted() => backoff.spin(),
                is_taken => break is_taken,
            }
        };
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        is_taken
    }

    #[inline(always)]
    fn take_free(&self) -> bool {
        // Ordering: Acquire, partner of the Release in `release`: what the last holder did is seen.
        let acquire = order(Fault::LockRelaxed, Ordering::Acquire);
        self.word.compare_exchange(FREE, HELD, acquire, Ordering::Relaxed).is_ok()
    }

    /// The caller holds it.
    #[inline(always)]
    fn release(&self) {
        // Ordering: Release, partner of the Acquire in `take_free`.
        self.word.store(FREE, order(Fault::UnlockRelaxed, Ordering::Release));
    }
}

// SAFETY: only the swap from FREE to HELD takes it, and only its holder, as `unlock` asks for, makes it FREE.
#[cfg(not(backpressure_loom))]
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait asks for it")]
    const INIT: Self = Self { word: AtomicU64::new(FREE), wanted: AtomicU64::new(0) };

    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        self.take();
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.try_take()
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        self.release();
    }
}

/// The lock under loom, by itself.
#[cfg(all(test, backpressure_loom))]
mod loom {
    use std::sync::Arc;

    use loom::thread;

    use super::{FREE, RawLock};
    use crate::sync::{AtomicU64, Backoff, Fault, Model, UnsafeCell, explore, must_fail};

    struct Guarded {
        lock: RawLock,
        count: UnsafeCell<u32>,
    }

    impl Guarded {
        fn new() -> Arc<Model<Self>> {
            let lock = RawLock { word: AtomicU64::new(FREE), wanted: AtomicU64::new(0) };
            Model::new(Self { lock, count: UnsafeCell::new(0) })
        }

        /// Loom fails the model if two of these overlap, or if one does not see the other.
        fn add(&self) {
            self.count.with_mut(|count| {
                // SAFETY: loom tells if this is not the only access.
                unsafe { *count += 1 }
            });
            self.lock.release();
        }

        fn add_in_earnest(&self) {
            self.lock.take();
            self.add();
        }

        fn add_last(&self) {
            let mut backoff = Backoff::new();
            while !self.lock.try_take() {
                backoff.spin();
            }
            self.add();
        }
    }

    fn run(others: &'static [fn(&Guarded)], own: fn(&Guarded)) -> impl Fn() + Send + Sync + 'static {
        move || {
            let guarded = Guarded::new();
            let threads: Vec<_> = others
                .iter()
                .map(|other| {
                    let guarded = Arc::clone(&guarded);
                    thread::spawn(move || other(&guarded))
                })
                .collect();
            own(&guarded);
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            guarded.lock.take();
            guarded.count.with_mut(|count| {
                // SAFETY: as above.
                assert_eq!(unsafe { *count }, others.len() as u32 + 1, "each has counted once");
            });
            assert!(!guarded.lock.take_free(), "it is held");
            guarded.lock.release();
            assert!(guarded.lock.try_take(), "nobody holds it or waits for it");
        }
    }

    #[test]
    fn one_holds_it_at_a_time() {
        explore(run(&[Guarded::add_in_earnest], Guarded::add_in_earnest));
        explore(run(&[Guarded::add_last], Guarded::add_last));
        explore(run(&[Guarded::add_in_earnest], Guarded::add_last));
    }

    #[test]
    fn twin_lock_relaxed() {
        must_fail(Fault::LockRelaxed, run(&[Guarded::add_in_earnest], Guarded::add_in_earnest));
        must_fail(Fault::LockRelaxed, run(&[Guarded::add_last], Guarded::add_in_earnest));
    }

    #[test]
    fn twin_unlock_relaxed() {
        must_fail(Fault::UnlockRelaxed, run(&[Guarded::add_in_earnest], Guarded::add_in_earnest));
        must_fail(Fault::UnlockRelaxed, run(&[Guarded::add_last], Guarded::add_in_earnest));
    }
}
