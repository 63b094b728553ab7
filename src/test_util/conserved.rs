//! Accounts that are checked where a test wants it.

use crate::controller::BackpressureController;
use crate::ledger::{Flushes, Losses, Refused, Snapshot};
use crate::report::DrainReport;
use crate::test_util::Pipeline;

/// Asserts that every item is accounted for: that [`Snapshot::audit`] finds nothing. Figures of the [`Snapshot`] that are
/// named have to be as expected.
///
/// It takes a controller, a [`Pipeline`], a snapshot or a [`DrainReport`]. With feature
/// `test-util`.
///
/// # Panics
///
/// At the line of the caller, with all that is wrong and the whole snapshot.
///
/// # Examples
///
/// ```
/// use backpressure::test_util::{Pipeline, ScriptedSink};
/// use backpressure::{BackpressureController, Strategy, assert_conserved};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = BackpressureController::builder(2).strategy(Strategy::DropOldest);
/// let pipeline = Pipeline::new(builder, ScriptedSink::new())?;
/// for n in 1..=5 {
///     pipeline.controller().try_push(n)?;
///     assert_conserved!(pipeline);
/// }
/// let report = pipeline.block_on(pipeline.controller().drain(std::time::Duration::from_secs(1)));
/// assert_conserved!(report, offered = 5, delivered = 2, evicted = 3, refused = 0, flushes.ok = 2);
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! assert_conserved {
    ($accounts:expr $(, $($name:ident).+ = $expected:expr)* $(,)?) => {{
        let snapshot = $crate::test_util::Accounts::accounts(&$accounts);
        let figures: &[(&str, u64, u64)] = &[$((
            stringify!($($name).+),
            $crate::test_util::Figure::figure(&snapshot.$($name).+),
            $expected,
        )),*];
        $crate::test_util::check(&snapshot, figures);
    }};
}

/// What [`assert_conserved!`](crate::assert_conserved) can look at.
pub trait Accounts {
    /// The figures.
    fn accounts(&self) -> Snapshot;
}

impl Accounts for Snapshot {
    fn accounts(&self) -> Snapshot {
        self.clone()
    }
}

impl<T> Accounts for BackpressureController<T> {
    fn accounts(&self) -> Snapshot {
        self.snapshot()
    }
}

impl<T> Accounts for Pipeline<T> {
    fn accounts(&self) -> Snapshot {
        self.controller().snapshot()
    }
}

impl<T> Accounts for DrainReport<T> {
    fn accounts(&self) -> Snapshot {
        self.totals.clone()
    }
}

impl<A: Accounts + ?Sized> Accounts for &A {
    fn accounts(&self) -> Snapshot {
        (**self).accounts()
    }
}

/// A field of a snapshot, as one number.
pub trait Figure {
    /// The number, or the sum.
    fn figure(&self) -> u64;
}

impl Figure for u64 {
    fn figure(&self) -> u64 {
        *self
    }
}

impl Figure for Refused {
    fn figure(&self) -> u64 {
        self.total()
    }
}

impl Figure for Flushes {
    fn figure(&self) -> u64 {
        self.total()
    }
}

impl Figure for Losses {
    fn figure(&self) -> u64 {
        self.total()
    }
}

/// Panics if the audit finds something, or if a figure (its name, what it is, what it should be) is not as expected.
#[track_caller]
pub fn check(snapshot: &Snapshot, figures: &[(&str, u64, u64)]) {
    let audit = snapshot.audit().err().map(|error| error.to_string());
    let wrong = figures.iter().filter(|(_, is, expected)| is != expected);
    let wrong = wrong.map(|(name, is, expected)| format!("{name} is {is}, not {expected}"));
    let faults: Vec<_> = audit.into_iter().chain(wrong).collect();
    assert!(faults.is_empty(), "{}: {snapshot:#?}", faults.join("; "));
}
