//! Time that passes when a schedule says so: a task of its own goes from one armed moment to the next.
//!
//! Any two steps may so lie any time apart, as on a machine that is busy elsewhere. While no timer is armed time stands
//! still, and a wake-up that is lost is a deadlock, which shuttle reports.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub use std::time::Duration;

/// Later than the zero of a clock, so that a deadline that is added to it and cannot be represented is one.
const BEGINNING: Duration = Duration::from_secs(1000);

thread_local! {
    // shuttle's tasks are all on one thread, and an execution begins with `start`.
    static WHEEL: RefCell<Wheel> = const { RefCell::new(Wheel::new()) };
}

struct Wheel {
    now: Duration,
    next: u64,
    /// Armed timers by moment, and in the order of arming.
    armed: BTreeMap<(Duration, u64), Option<Waker>>,
    /// The clock, when it has nothing to wait for.
    clock: Option<Waker>,
}

impl Wheel {
    const fn new() -> Self {
        Self { now: BEGINNING, next: 0, armed: BTreeMap::new(), clock: None }
    }
}

/// Starts the clock of an execution, as a task that nobody waits for.
pub fn start() {
    let before = WHEEL.replace(Wheel::new());
    drop(before);
    drop(crate::spawn(async {
        loop {
            crate::task::yield_now().await;
            poll_fn(tick).await;
        }
    }));
}

/// Goes to the next armed moment, once there is one.
fn tick(cx: &mut Context<'_>) -> Poll<()> {
    let fired = WHEEL.with_borrow_mut(|wheel| {
        let Some(((at, _), waker)) = wheel.armed.pop_first() else {
            wheel.clock = Some(cx.waker().clone());
            return None;
        };
        wheel.now = wheel.now.max(at);
        Some(waker)
    });
    let Some(waker) = fired else { return Poll::Pending };
    if let Some(waker) = waker {
        waker.wake();
    }
    Poll::Ready(())
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The moment at which time stands.
    #[must_use]
    pub fn now() -> Self {
        Self(WHEEL.with_borrow(|wheel| wheel.now))
    }

    /// `None` if it cannot be represented.
    #[must_use]
    pub fn checked_add(self, wait: Duration) -> Option<Self> {
        self.0.checked_add(wait).map(Self)
    }

    /// Zero if `earlier` is later.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Waits for a moment.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    deadline: Instant,
    /// Its place in the wheel, once it was polled.
    key: Option<(Duration, u64)>,
}

/// Waits for so long.
pub fn sleep(wait: Duration) -> Sleep {
    sleep_until(Instant::now().checked_add(wait).unwrap_or(Instant(Duration::MAX)))
}

/// Waits for a moment.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, key: None }
}

impl Sleep {
    /// The moment.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it has come.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_elapsed() {
            return Poll::Ready(());
        }
        let (key, clock) = WHEEL.with_borrow_mut(|wheel| {
            let key = self.key.unwrap_or((self.deadline.0, wheel.next));
            wheel.next += 1;
            wheel.armed.insert(key, Some(cx.waker().clone()));
            (key, wheel.clock.take())
        });
        self.key = Some(key);
        if let Some(clock) = clock {
            clock.wake();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let waker = WHEEL.try_with(|wheel| wheel.try_borrow_mut().ok().and_then(|mut wheel| wheel.armed.remove(&key)));
        drop(waker);
    }
}
