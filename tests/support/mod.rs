//! What the scenario tests share: sinks that do as they are told, what they remember, tokens with a ledger of drops,
//! guards against hanging.

#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]
#![allow(clippy::disallowed_methods, reason = "tests read tokio's clock, which they own")]

mod closures;
mod dice;
mod drops;
mod gate;
mod guard;
mod log;
mod sink;
mod time;
mod wakes;

pub(crate) use self::closures::{Answer, failing, gated, hung, ok};
pub(crate) use self::dice::Dice;
pub(crate) use self::drops::{Drops, Token, ids};
pub(crate) use self::gate::Gate;
pub(crate) use self::guard::{GUARD, paused, paused_for, real, within, workers};
pub(crate) use self::log::{Line, Log, Losses};
pub(crate) use self::sink::{Call, Key, Sink};
pub(crate) use self::time::{HOUR, SEC, YEAR, idle, ms, now, secs, settled};
pub(crate) use self::wakes::{Wakes, poll_once};

/// The full number where `BACKPRESSURE_FULL=1` is set, else one that takes a few seconds in a debug build.
pub(crate) fn rounds<N>(full: N, short: N) -> N {
    if std::env::var_os("BACKPRESSURE_FULL").is_some_and(|value| value == "1") { full } else { short }
}
