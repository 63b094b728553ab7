//! For tests of what is built on this crate, with feature `test-util`: a clock that stands still, a pipeline that is
//! stepped by hand, a sink that follows a script, and accounts that are checked.
//!
//! Nothing here needs a tokio runtime, and nothing waits in real time: the same test gives the same run each time. The
//! guide *Testing* has examples.

mod conserved;
mod pipeline;
mod reply;
mod sink;

#[doc(hidden)]
pub use self::conserved::{Accounts, Figure, check};
pub use self::pipeline::{Pipeline, Step};
pub use self::reply::{Reply, Verdict};
pub use self::sink::{Call, ScriptedSink};
pub use crate::time::{ManualClock, ManualSleep};
