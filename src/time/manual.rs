//! A clock that stands still until it is moved.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::panics::catch;
use crate::sync::Mutex;

/// A clock that a test moves by hand: no time passes but by [`advance`](Self::advance).
///
/// Clones are the same clock. Given to [`Builder::clock`](crate::Builder::clock), all times of a controller come from it:
/// linger, retries, flush timeout, the time limits of pushes, and drain's deadline. The controller then needs no tokio
/// runtime. What blocks a thread ([`blocking_push_timeout`](crate::BackpressureController::blocking_push_timeout)) keeps
/// to the machine's clock.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use backpressure::test_util::ManualClock;
///
/// let clock = ManualClock::new();
/// clock.clone().advance(Duration::from_secs(5));
/// assert_eq!(clock.now(), Duration::from_secs(5));
/// ```
#[derive(Clone)]
pub struct ManualClock {
    dial: Arc<Mutex<Dial>>,
}

struct Dial {
    now: Duration,
    /// Who waits for a moment; in the order of their moments, and within one in the order of arrival.
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
    next_seed: u64,
}

impl ManualClock {
    /// A clock at zero.
    #[must_use]
    pub fn new() -> Self {
        let dial = Dial { now: Duration::ZERO, timers: BTreeMap::new(), next_timer: 0, next_seed: 0 };
        Self { dial: Arc::new(Mutex::new(dial)) }
    }

    /// Moves the time on, at most to `Duration::MAX`, and wakes all whose moment has come, in the order of their moments.
    ///
    /// The time moves in one step: whoever is woken sees it at its end. To have each act at its own moment, use
    /// [`Pipeline::advance`](crate::test_util::Pipeline::advance).
    pub fn advance(&self, by: Duration) {
        let mut dial = self.dial.lock();
        dial.now = dial.now.saturating_add(by);
        let now = dial.now;
        let later = dial.timers.split_off(&(now, u64::MAX));
        let due = mem::replace(&mut dial.timers, later);
        drop(dial);
        for waker in due.into_values() {
            catch(|| waker.wake());
        }
    }

    /// The time since the clock was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.dial.lock().now
    }

    /// The first moment that somebody waits for; later than [`now`](Self::now).
    #[must_use]
    pub fn next_timer(&self) -> Option<Duration> {
        self.dial.lock().timers.keys().next().map(|(at, _)| *at)
    }

    /// Waits for a time on this clock, counted from the call: for sinks and producers that a test writes itself.
    pub fn sleep(&self, time: Duration) -> ManualSleep {
        // A moment that cannot be represented never comes.
        ManualSleep { timer: self.now().checked_add(time).map(|at| self.timer(at)) }
    }

    pub(crate) fn timer(&self, at: Duration) -> ManualTimer {
        let id = {
            let mut dial = self.dial.lock();
            dial.next_timer += 1;
            dial.next_timer
        };
        ManualTimer { clock: self.clone(), key: (at, id) }
    }

    /// A number for each controller on this clock, the same in each run.
    pub(crate) fn seed(&self) -> u64 {
        let mut dial = self.dial.lock();
        dial.next_seed += 1;
        dial.next_seed
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dial = self.dial.lock();
        let timers = dial.timers.len();
        f.debug_struct("ManualClock").field("now", &dial.now).field("timers", &timers).finish_non_exhaustive()
    }
}

/// A moment on a manual clock. Somebody waits for it from the first poll on.
#[derive(Debug)]
pub(crate) struct ManualTimer {
    clock: ManualClock,
    key: (Duration, u64),
}

impl ManualTimer {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut dial = self.clock.dial.lock();
        let (poll, stale) = if self.key.0 <= dial.now {
            (Poll::Ready(()), Some(waker))
        } else {
            (Poll::Pending, dial.timers.insert(self.key, waker))
        };
        drop(dial);
        // Wakers are user code: none is dropped under the lock.
        drop(stale);
        poll
    }
}

impl Drop for ManualTimer {
    fn drop(&mut self) {
        let waker = self.clock.dial.lock().timers.remove(&self.key);
        drop(waker);
    }
}

/// The future of [`ManualClock::sleep`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ManualSleep {
    /// `None` means never.
    timer: Option<ManualTimer>,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().map_or(Poll::Pending, |timer| timer.poll(cx))
    }
}

#[cfg(all(test, not(backpressure_loom)))]
mod tests {
    use std::pin::pin;
    use std::sync::Mutex;
    use std::task::Wake;

    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    /// Writes its name, and what the clock says, when it is woken; looks at the clock while it is cloned or dropped too.
    struct Note {
        name: &'static str,
        clock: ManualClock,
        notes: Arc<Mutex<Vec<(&'static str, Duration)>>>,
    }

    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            self.notes.lock().expect("no panic").push((self.name, self.clock.now()));
            assert_ne!(self.name, "bad", "as asked");
        }
    }

    impl Drop for Note {
        fn drop(&mut self) {
            let _ = self.clock.now();
        }
    }

    #[test]
    fn timers_fire_in_the_order_of_their_moments_outside_the_lock_whatever_they_do() {
        let (clock, notes) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
        let wait = |name, time| {
            let mut sleep = Box::pin(clock.sleep(time));
            // The second waker displaces the first one, of which it is the last trace.
            for _ in 0..2 {
                let waker = Waker::from(Arc::new(Note { name, clock: clock.clone(), notes: Arc::clone(&notes) }));
                assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            sleep
        };
        let (mut late, _bad) = (wait("late", 3 * SEC), wait("bad", SEC));
        let (_early, _never) = (wait("early", SEC), wait("never", Duration::MAX));
        drop(wait("gone", SEC));
        assert_eq!(clock.next_timer(), Some(SEC));
        clock.advance(2 * SEC);
        assert_eq!(*notes.lock().expect("no panic"), [("bad", 2 * SEC), ("early", 2 * SEC)]);
        assert_eq!(clock.next_timer(), Some(3 * SEC));
        clock.advance(SEC);
        assert_eq!(notes.lock().expect("no panic").last(), Some(&("late", 3 * SEC)));
        assert!(late.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(clock.next_timer(), Some(Duration::MAX));
    }

    #[test]
    fn the_end_of_time_is_reached_and_not_passed() {
        let clock = ManualClock::new();
        clock.advance(SEC);
        let mut never = pin!(clock.sleep(Duration::MAX));
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Duration::MAX);
        assert!(never.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
