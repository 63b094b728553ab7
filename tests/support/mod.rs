//! What the scenario tests share: a scripted sink, tokens with a ledger of drops, guards against hanging.

#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]
#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod drops;
mod guard;
mod sink;
mod wakes;

pub(crate) use self::drops::{Drops, Token};
pub(crate) use self::guard::{LIMIT, guarded, guarded_for, paused, paused_for, real};
pub(crate) use self::sink::{Call, Key, Sink};
pub(crate) use self::wakes::Wakes;

use std::time::Duration;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// For ever, as far as these tests go: also a linger that no test waits for.
pub(crate) const HOUR: Duration = secs(3600);

/// The full number where `BACKPRESSURE_FULL=1` is set, else one that takes a few seconds in a debug build.
pub(crate) fn rounds(full: u64, short: u64) -> u64 {
    if std::env::var_os("BACKPRESSURE_FULL").is_some_and(|value| value == "1") { full } else { short }
}

/// Lets the other tasks of this thread run until they wait for something.
pub(crate) async fn settled() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// A small generator of repeatable choices (splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In `0 ..= most`.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        self.next() % (most + 1)
    }
}
