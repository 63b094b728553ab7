//! Spans of time, tokio's clock, and two ways to let others run.

use std::time::Duration;

use tokio::time::Instant;

pub(crate) const SEC: Duration = secs(1);
/// For ever, as far as most tests go: also a linger that no test waits for.
pub(crate) const HOUR: Duration = secs(3600);
pub(crate) const YEAR: Duration = secs(365 * 24 * 3600);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// tokio's clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets everything run that can run: on a paused clock, time moves only when all tasks wait.
pub(crate) async fn idle() {
    tokio::time::sleep(ms(1)).await;
}

/// Lets the other tasks of this thread run until they wait for something; a paused clock stands still.
pub(crate) async fn settled() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
