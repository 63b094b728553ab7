//! The switch between the standard primitives, loom's and shuttle's: the only file that knows either.
//!
//! Under `--cfg backpressure_loom` the atomics, cells and locks are loom's, and a model can weaken the real code at a
//! named [`Fault`], so that every model has a twin that must fail. In an ordinary build [`fault`] is the constant `false`.
//!
//! Under `--cfg backpressure_shuttle`, which only the package in `shuttle/` sets, they are shuttle's, and so are threads
//! and thread-locals: the whole crate runs under its schedules, with tokio's part played by `shuttle/tokio`. There the
//! environment variable `BACKPRESSURE_SHUTTLE_FAULT` names the step that is broken.

use std::ops::{Deref, DerefMut};
#[cfg(not(backpressure_shuttle))]
use std::sync::atomic::AtomicUsize;

#[cfg(backpressure_loom)]
pub(crate) use self::modelled::{AtomicU64, Mutex, MutexGuard, UnsafeCell};
#[cfg(not(any(backpressure_loom, backpressure_shuttle)))]
pub(crate) use self::plain::{AtomicU64, Mutex, MutexGuard};
#[cfg(not(backpressure_loom))]
pub(crate) use self::plain_cell::UnsafeCell;
#[cfg(backpressure_shuttle)]
pub(crate) use self::scheduled::{AtomicU64, Mutex, MutexGuard};

pub(crate) use std::sync::atomic::Ordering;

/// What no loom model looks at: `std`'s also under loom.
#[cfg(not(backpressure_shuttle))]
pub(crate) use std::{sync::atomic, thread, thread_local};

#[cfg(backpressure_shuttle)]
pub(crate) use shuttle::{sync::atomic, thread, thread_local};

/// Keeps its content on cache lines of its own. 128 bytes, because x86 prefetches lines in pairs and some ARM cores
/// have lines of that size.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// How many groups the threads are divided into where they are not to write what others write. Loom has small stacks for large gates.
pub(crate) const STRIPES: usize = if cfg!(backpressure_loom) { 1 } else { 16 };

/// The group of this thread, in `0 .. STRIPES`.
#[cfg(not(backpressure_shuttle))]
pub(crate) fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Ordering: Relaxed, only the numbers matter.
        static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    // A push from the destructor of another thread-local comes after this one is gone.
    // The remainder is taken here, where the compiler sees it: an index that it has to test may panic, with an item at hand.
    STRIPE.try_with(|stripe| *stripe).unwrap_or(0) % STRIPES
}

/// Exponential backoff for a failed compare-and-swap: bounded, never sleeps.
///
/// With it, and with the word that the failed swap returned, a push of two threads costs 3.9 ns; reloading the word
/// after each spin costs 25.7 ns.
#[derive(Debug)]
pub(crate) struct Backoff {
    step: u32,
    /// The step with the longest spin.
    longest: u32,
}

impl Backoff {
    /// At most 64 pauses.
    pub(crate) const fn new() -> Self {
        Self { step: 0, longest: 6 }
    }

    /// From 8 to 256 pauses: long enough for another thread to get several short sections done meanwhile.
    pub(crate) const fn patient() -> Self {
        Self { step: 3, longest: 8 }
    }

    /// Spins for twice as long as the last time.
    #[cold]
    pub(crate) fn spin(&mut self) {
        #[cfg(backpressure_loom)]
        loom::thread::yield_now();
        #[cfg(backpressure_shuttle)]
        thread::yield_now();
        #[cfg(not(any(backpressure_loom, backpressure_shuttle)))]
        for _ in 0..1_u32 << self.step.min(self.longest) {
            std::hint::spin_loop();
        }
        self.step += 1;
    }

    /// Whether spinning longer would be a waste: the caller should give its thread away.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.step >= self.longest + 2
    }
}

/// A step of the protocol that a model can break on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(all(test, backpressure_loom)), allow(dead_code, reason = "only models break the protocol"))]
pub(crate) enum Fault {
    /// The claim on `tail` neither acquires nor releases.
    ClaimRelaxed,
    /// `limit` is published without releasing the vacated slots.
    LimitRelaxed,
    /// A slot is marked as written without releasing its content.
    TurnRelaxed,
    /// `limit` is published before the tail change that it pays for.
    LimitBeforeTail,
    /// Room ends at the take: `limit` is published before the items are moved out.
    RoomBeforeTake,
    /// Full is tested by equality.
    FullByEquality,
    /// The displaced tail step is a plain store although permits are out.
    StoreWithPermits,
    /// A permit is sent in two steps: its place is given back, and one is claimed.
    SendInTwoSteps,
    /// A claim that has seen the intake open ignores that it was shut since, as if the bit were in a word of its own.
    ClosedSeenOnce,
    /// Close sets its bit outside the head lock.
    CloseUnlocked,
    /// The flusher re-reads `tail` by a load before it sleeps.
    SleepByLoad,
    /// The flusher arms the alarm, and does not look again.
    SleepWithoutLook,
    /// The alarm is read before the claim.
    AlarmBeforeClaim,
    /// Whoever raises the alarm takes whatever alarm is set by then.
    AlarmTakenBlind,
    /// The alarm's target may lie beyond `limit`.
    TargetBeyondLimit,
    /// A bulk claim tests its first ticket against the alarm.
    FirstTicket,
    /// Enqueueing does not wake a sleeping flusher.
    EnqueueSilent,
    /// Free room is published without handing it to the waiters.
    ServeNobody,
    /// A permit's place is given back to everyone before it is handed to a waiter.
    ReleaseToAll,
    /// A cancelled grant keeps its place.
    CancelKeepsGrant,
    /// An eviction ignores the closed bit.
    EvictIgnoresClosed,
    /// A claimed and unwritten victim is read anyway.
    EvictUnwritten,
    /// An item is put in the place of one that is claimed and not written.
    ExchangeUnwritten,
    /// An item shares a place although the intake is shut.
    MergeIgnoresClosed,
    /// Whoever takes the head lock leaves the credit of evictions alone.
    CreditKept,
    /// The credit is called in by a load and a store.
    CreditByLoad,
    /// The limit that was lent is left published until the credit has been called in.
    CreditLimitKept,
    /// Figures take the limit that was lent for that of the room.
    CreditAsRoom,
    /// Claims do not see what came before the end of the credit.
    CreditRelaxed,
    /// Credit is extended on items that are not written yet.
    CreditUnwritten,
    /// Whoever takes the head lock leaves prepaid places alone.
    PrepaidKept,
    /// Prepaid places end by a load and a store.
    PrepaidByLoad,
    /// An item in a prepaid place looks as if it had brought its own weight.
    PrepaidUnmarked,
    /// More is paid for than somebody wants to know of.
    PrepaidAboveAlarm,
    /// Items are moved out before their prepaid places count by their sizes.
    PrepaidUnsettled,
    /// Places are prepaid while somebody waits.
    PrepaidForWaiters,
    /// `len` and `depth` are not clamped.
    LenUnclamped,
    /// Drained is judged from two separate loads.
    FiguresByTwoLoads,
    /// The last permit given back after close does not wake the flusher.
    LastPermitSilent,
    /// A tail that is full by the present limit is taken for frozen, although the limit was higher.
    FrozenByLimit,
    /// The room of a larger capacity is published before the waiters are served.
    GrowSilent,
    /// A smaller capacity leaves the published limit where it is.
    ShrinkUnpublished,
    /// A place given back above the capacity is handed on.
    ReleaseAboveCapacity,
    /// A figure is made of a capacity and the limit of a later one.
    CapacityReadOnce,
    /// A reservation is queued by the capacity that it saw before the lock.
    UnfitQueued,
    /// Room is given free as if all that was taken before the settled items were settled, too.
    RoomByPosition,
    /// A barrier is complete once its last item is settled.
    BarrierByPosition,
    /// The flusher looks for woken slots before it says whom to wake.
    SlotsBeforeTask,
    /// A woken slot is marked without releasing what came before.
    SlotRelaxed,
    /// A size that found no place is given back outside the lock, and nobody is served.
    SizeReturnSilent,
    /// A push takes a size in although somebody waits.
    ShutIgnored,
    /// What leaves and what comes for it are taken out and in by two steps.
    SizeSwapInTwoSteps,
    /// A size is taken in without the comparison with what is inside by then.
    SizeClaimedBlind,
    /// Something that does not fit wakes nobody.
    ShortSilent,
    /// The alarm by size is read before the place is claimed.
    VolumeAlarmEarly,
}

/// Whether the running model has broken this step.
#[cfg(not(any(backpressure_loom, backpressure_shuttle)))]
#[inline(always)]
pub(crate) const fn fault(_: Fault) -> bool {
    false
}

/// `right`, unless the running model has weakened this step.
#[cfg(not(any(backpressure_loom, backpressure_planted_race)))]
#[inline(always)]
pub(crate) const fn order(_: Fault, right: Ordering) -> Ordering {
    right
}

/// `right`, but for the one order that is weakened to show that ThreadSanitizer would see it.
#[cfg(all(backpressure_planted_race, not(backpressure_loom)))]
#[inline(always)]
pub(crate) const fn order(at: Fault, right: Ordering) -> Ordering {
    if matches!(at, Fault::TurnRelaxed) { Ordering::Relaxed } else { right }
}

/// A step at which a model may switch threads, although loom does not see that it matters.
///
/// Loom looks for a reason to switch in the last access to an object, and a thread's own load before its swap hides what
/// others did to the word before that.
#[cfg(not(backpressure_loom))]
#[inline(always)]
pub(crate) const fn mark() {}

#[cfg(all(test, backpressure_loom))]
pub(crate) use self::modelled::{Model, explore, explore_wide, must_fail};

#[cfg(backpressure_loom)]
pub(crate) use self::modelled::{fault, mark, order};

#[cfg(backpressure_shuttle)]
pub(crate) use self::scheduled::{fault, stripe};

#[cfg(not(any(backpressure_loom, backpressure_shuttle)))]
mod plain {
    pub(crate) use std::sync::atomic::AtomicU64;

    pub(crate) use parking_lot::{Mutex, MutexGuard};
}

#[cfg(not(backpressure_loom))]
mod plain_cell {
    /// `std`'s cell behind the interface of loom's.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[cfg(backpressure_shuttle)]
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(backpressure_shuttle)]
mod scheduled {
    use std::sync::OnceLock;

    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic::AtomicU64;

    /// shuttle's mutex behind the interface of parking_lot's. Not the one of shuttle-parking_lot: that one is handed over
    /// in the order of arrival, which leaves out the schedules in which somebody comes in between.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// By the task: the same each time that a schedule is replayed.
    pub(crate) fn stripe() -> usize {
        usize::from(shuttle::current::me()) % super::STRIPES
    }

    pub(crate) fn fault(fault: super::Fault) -> bool {
        // The same in all executions, so it may outlive them.
        static NAME: OnceLock<Option<String>> = OnceLock::new();
        let name = NAME.get_or_init(|| std::env::var("BACKPRESSURE_SHUTTLE_FAULT").ok());
        name.as_ref().is_some_and(|name| *name == format!("{fault:?}"))
    }
}

#[cfg(backpressure_loom)]
mod modelled {
    use std::cell::Cell;

    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::AtomicU64;

    use super::{Fault, Ordering};

    /// loom's mutex behind the interface of parking_lot's.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    thread_local! {
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    pub(crate) fn fault(fault: Fault) -> bool {
        FAULT.get() == Some(fault)
    }

    pub(crate) fn order(at: Fault, right: Ordering) -> Ordering {
        if fault(at) { Ordering::Relaxed } else { right }
    }

    loom::lazy_static! {
        /// What the marked steps touch, so that they depend on each other: Relaxed, so that they order nothing.
        static ref STEPS: AtomicU64 = AtomicU64::new(0);
    }

    pub(crate) fn mark() {
        STEPS.fetch_add(1, Ordering::Relaxed);
    }

    /// What a model looks at. It is not dropped by a model that has failed: to unwind through the destructors of loom's
    /// objects would abort.
    #[cfg(test)]
    pub(crate) struct Model<T>(Option<T>);

    #[cfg(test)]
    impl<T> Model<T> {
        pub(crate) fn new(value: T) -> std::sync::Arc<Self> {
            std::sync::Arc::new(Self(Some(value)))
        }
    }

    #[cfg(test)]
    impl<T> std::ops::Deref for Model<T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("until it is dropped")
        }
    }

    #[cfg(test)]
    impl<T> Drop for Model<T> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::mem::forget(self.0.take());
            }
        }
    }

    /// Explores the interleavings of `model` with up to 3 preemptions each, or up to 2 in the short form, which the
    /// environment variable `BACKPRESSURE_LOOM_SHORT` asks for.
    #[cfg(test)]
    pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
        let is_short = std::env::var_os("BACKPRESSURE_LOOM_SHORT").is_some();
        explore_within(if is_short { 2 } else { 3 }, model);
    }

    /// The same with up to 2 preemptions in both forms: for models of three threads that take long.
    #[cfg(test)]
    pub(crate) fn explore_wide(model: impl Fn() + Send + Sync + 'static) {
        explore_within(2, model);
    }

    /// Runs `model` with the protocol broken at `fault`: some interleaving with up to 2 preemptions must fail.
    #[cfg(test)]
    pub(crate) fn must_fail(fault: Fault, model: impl Fn() + Send + Sync + 'static) {
        FAULT.set(Some(fault));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore_within(2, model)));
        FAULT.set(None);
        assert!(result.is_err(), "the model cannot see {fault:?}");
    }

    #[cfg(test)]
    fn explore_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 10_000;
        builder.check(move || {
            // Made before there is a second thread, so that its making orders nothing.
            mark();
            model();
        });
    }
}
