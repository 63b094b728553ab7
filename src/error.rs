//! Every error of the crate, and the closed sets of reasons.

mod flush;

use std::error::Error;
use std::fmt;
use std::time::Duration;

pub(crate) use self::flush::Verdict;
pub use self::flush::{FlushError, FlushTimedOut, ItemOutcome, RetriesExhausted, SinkPanicked, WrongOutcomes};

/// A boxed error of the user's.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why an item was given back to its producer. The same set in errors, snapshots and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefuseReason {
    /// There was no room, and the strategy does not wait.
    Full,
    /// There was no room for as long as the producer was willing to wait.
    TimedOut,
    /// The intake is shut.
    Closed,
    /// Left out by sampling.
    Sampled,
    /// Heavier than an item may be, or than its permit.
    TooLarge,
    /// The sink pushed into its own full controller and would have waited for itself.
    WouldDeadlock,
    /// A push with a time limit had to wait where tokio has no timer.
    NoTimer,
}

impl RefuseReason {
    pub(crate) const COUNT: usize = 7;

    /// The name in snake case, as in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::TimedOut => "timed_out",
            Self::Closed => "closed",
            Self::Sampled => "sampled",
            Self::TooLarge => "too_large",
            Self::WouldDeadlock => "would_deadlock",
            Self::NoTimer => "no_timer",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Full => "the buffer is full",
            Self::TimedOut => "no room came in time",
            Self::Closed => "the intake is shut",
            Self::Sampled => "left out by sampling",
            Self::TooLarge => "the item is too heavy",
            Self::WouldDeadlock => "the sink would wait for room that only it can make",
            Self::NoTimer => "waiting with a time limit needs a tokio runtime with time enabled",
        }
    }
}

impl fmt::Display for RefuseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why an accepted item was not delivered. The same set in hooks, snapshots and metrics, but for [`Refused`](Self::Refused), which only
/// hooks see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The final verdict of the sink or of the retry policy.
    Failed,
    /// Displaced by a newer item.
    Evicted,
    /// Older than [`max_age`](crate::Builder::max_age).
    Expired,
    /// Removed by `purge`.
    Purged,
    /// Left behind at drain's deadline, or when the flusher died.
    Abandoned,
    /// Refused, where no caller could take it back: by an adapter, sampled out of a `push_all`, or heavier than its permit. It counts as refused,
    /// not as lost, since it was never accepted.
    Refused(RefuseReason),
}

impl LossReason {
    /// The name in lower case, as in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Evicted => "evicted",
            Self::Expired => "expired",
            Self::Purged => "purged",
            Self::Abandoned => "abandoned",
            Self::Refused(_) => "refused",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A refused push, with the item.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError<T> {
    /// There is no room, and the strategy does not wait.
    Full(T),
    /// There was no room for as long as the producer was willing to wait.
    TimedOut(T),
    /// The intake is shut.
    Closed(T),
    /// Left out by sampling.
    Sampled(T),
    /// Heavier than an item may be, or than its permit.
    TooLarge(T),
    /// The sink pushed into its own full controller and would have waited for itself.
    WouldDeadlock(T),
    /// A push with a time limit had to wait where tokio has no timer.
    NoTimer(T),
}

impl<T> PushError<T> {
    pub(crate) fn new(reason: RefuseReason, item: T) -> Self {
        match reason {
            RefuseReason::Full => Self::Full(item),
            RefuseReason::TimedOut => Self::TimedOut(item),
            RefuseReason::Closed => Self::Closed(item),
            RefuseReason::Sampled => Self::Sampled(item),
            RefuseReason::TooLarge => Self::TooLarge(item),
            RefuseReason::WouldDeadlock => Self::WouldDeadlock(item),
            RefuseReason::NoTimer => Self::NoTimer(item),
        }
    }

    /// The item, back with its owner.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(item)
            | Self::TimedOut(item)
            | Self::Closed(item)
            | Self::Sampled(item)
            | Self::TooLarge(item)
            | Self::WouldDeadlock(item)
            | Self::NoTimer(item) => item,
        }
    }

    /// Why, without the item.
    #[must_use]
    pub const fn reason(&self) -> RefuseReason {
        match self {
            Self::Full(_) => RefuseReason::Full,
            Self::TimedOut(_) => RefuseReason::TimedOut,
            Self::Closed(_) => RefuseReason::Closed,
            Self::Sampled(_) => RefuseReason::Sampled,
            Self::TooLarge(_) => RefuseReason::TooLarge,
            Self::WouldDeadlock(_) => RefuseReason::WouldDeadlock,
            Self::NoTimer(_) => RefuseReason::NoTimer,
        }
    }
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PushError({:?})", self.reason())
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason().message())
    }
}

impl<T> Error for PushError<T> {}

/// A `push_all` that stopped early, with every item that was not accepted.
pub struct PushAllError<I: Iterator> {
    pub(crate) reason: RefuseReason,
    pub(crate) accepted: usize,
    pub(crate) pulled: Vec<I::Item>,
    /// `None` once it has ended.
    pub(crate) iter: Option<I>,
}

impl<I: Iterator> PushAllError<I> {
    /// Why the first item of the rest was refused.
    #[must_use]
    pub fn reason(&self) -> RefuseReason {
        self.reason
    }

    /// How many items were accepted before.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// The items that were not accepted, in order: first those that had been pulled, then the rest of the iterator.
    pub fn into_rest(self) -> impl Iterator<Item = I::Item> {
        self.pulled.into_iter().chain(self.iter.into_iter().flatten())
    }
}

impl<I: Iterator> fmt::Debug for PushAllError<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushAllError")
            .field("reason", &self.reason)
            .field("accepted", &self.accepted)
            .field("pulled", &self.pulled.len())
            .finish_non_exhaustive()
    }
}

impl<I: Iterator> fmt::Display for PushAllError<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {} accepted items", self.reason.message(), self.accepted)
    }
}

impl<I: Iterator> Error for PushAllError<I> {}

/// A refused reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// There is no room.
    Full,
    /// The intake is shut.
    Closed,
    /// More places than the buffer has.
    TooMany {
        /// The places asked for.
        asked: usize,
        /// The places there are: the capacity at the time, or as many as fit by weight if those are fewer.
        capacity: usize,
    },
    /// More weight than an item may have.
    TooLarge {
        /// The weight asked for.
        asked: u64,
        /// The most that an item may weigh.
        most: u64,
    },
    /// The sink would wait for room that only it can make.
    WouldDeadlock,
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str(RefuseReason::Full.message()),
            Self::Closed => f.write_str(RefuseReason::Closed.message()),
            Self::TooMany { asked, capacity } => {
                write!(f, "{asked} places asked for, where at most {capacity} fit")
            }
            Self::TooLarge { asked, most } => {
                write!(f, "a weight of {asked} asked for, where items weigh {most} at most")
            }
            Self::WouldDeadlock => f.write_str(RefuseReason::WouldDeadlock.message()),
        }
    }
}

impl Error for ReserveError {}

/// A blocking wait on a thread that must not block: one that runs asynchronous tasks, or the sink of this controller.
/// Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldDeadlock;

impl fmt::Display for WouldDeadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this thread runs asynchronous tasks, or the sink, and must not wait for the controller")
    }
}

impl Error for WouldDeadlock {}

/// A setting that cannot work, found when the controller is built, or when it is to be changed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// Capacity 0.
    CapacityZero,
    /// A capacity above [`MAX_CAPACITY`](crate::MAX_CAPACITY), or above the one that the controller was built with.
    CapacityTooLarge {
        /// The largest capacity.
        max: usize,
    },
    /// The memory for the buffer cannot be had.
    OutOfMemory,
    /// Marks other than `0 < low < high <= 1`.
    Watermarks {
        /// The low mark, as given.
        low: f64,
        /// The high mark, as given.
        high: f64,
    },
    /// A batch of 0 items.
    BatchZero,
    /// A batch larger than the buffer.
    BatchAboveCapacity {
        /// The batch, as given.
        batch: usize,
        /// The capacity, as given.
        capacity: usize,
    },
    /// A first batch of 0 items.
    InitialBatchZero,
    /// A first batch that is larger than the largest.
    InitialBatchAboveMax {
        /// The first batch, as given.
        initial: usize,
        /// The largest batch.
        max: usize,
    },
    /// A target latency of 0, which no sink could meet.
    TargetLatencyZero,
    /// A `min_interval` above the `max_interval`.
    IntervalsCrossed {
        /// The shorter one, as given.
        min: Duration,
        /// The longer one, as given.
        max: Duration,
    },
    /// No calls of the sink at once.
    ConcurrencyZero,
    /// More calls of the sink at once than [`MAX_CONCURRENCY`](crate::MAX_CONCURRENCY).
    ConcurrencyTooLarge {
        /// The most.
        max: usize,
    },
    /// A flush timeout of 0, which no sink could keep.
    FlushTimeoutZero,
    /// A largest or critical age, or a largest delay, of 0: every item would be beyond it at once.
    AgeZero,
    /// A retry factor that is not a finite number of at least 1.
    RetryFactor(f64),
    /// At most 0 attempts, so that nothing would ever be sent.
    RetryAttemptsZero,
    /// A sample of 1 in 0.
    SampleRateZero,
    /// A bound by weight without a weigher.
    NoWeigher,
    /// A bound by weight of 0, or above what it may be.
    Weight {
        /// The bound, as given.
        given: u64,
        /// The most it may be.
        most: u64,
    },
    /// Spawning outside a tokio runtime.
    NoRuntime,
    /// Spawning on a tokio runtime without time enabled.
    NoTimer,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CapacityZero => f.write_str("the capacity is 0"),
            Self::CapacityTooLarge { max } => write!(f, "the capacity is above {max}"),
            Self::OutOfMemory => f.write_str("the memory for the buffer cannot be had"),
            Self::Watermarks { low, high } => {
                write!(f, "watermarks must be 0 < low < high <= 1, not {low} and {high}")
            }
            Self::BatchZero => f.write_str("the largest batch is 0"),
            Self::BatchAboveCapacity { batch, capacity } => {
                write!(f, "the largest batch, {batch}, is above the capacity, {capacity}")
            }
            Self::InitialBatchZero => f.write_str("the first batch is 0"),
            Self::InitialBatchAboveMax { initial, max } => {
                write!(f, "the first batch, {initial}, is above the largest, {max}")
            }
            Self::TargetLatencyZero => f.write_str("the target latency is 0"),
            Self::IntervalsCrossed { min, max } => {
                write!(f, "the shortest interval, {min:?}, is above the longest, {max:?}")
            }
            Self::ConcurrencyZero => f.write_str("the most calls of the sink at once are 0"),
            Self::ConcurrencyTooLarge { max } => write!(f, "the most calls of the sink at once are above {max}"),
            Self::FlushTimeoutZero => f.write_str("the flush timeout is 0"),
            Self::AgeZero => f.write_str("a largest or critical age, or a largest delay, is 0"),
            Self::RetryFactor(factor) => {
                write!(f, "the retry factor must be a finite number of at least 1, not {factor}")
            }
            Self::RetryAttemptsZero => f.write_str("the most attempts are 0"),
            Self::SampleRateZero => f.write_str("a sample keeps 1 in 0"),
            Self::NoWeigher => f.write_str("a bound by weight needs a weigher"),
            Self::Weight { given, most } => write!(f, "a bound by weight must be in 1 ..= {most}, not {given}"),
            Self::NoRuntime => f.write_str("there is no tokio runtime here to spawn the flusher on"),
            Self::NoTimer => f.write_str("the tokio runtime has no time enabled"),
        }
    }
}

impl Error for BuildError {}

/// Why a flusher that was driven by hand could not run. As long as no timer of it is set, it may be
/// polled again elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriveError {
    /// Polled outside a tokio runtime.
    NoRuntime,
    /// The tokio runtime has no time enabled. Or it went down while a timer was set: then the controller has ended, as if
    /// the flusher had been dropped.
    NoTimer,
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRuntime => "the flusher must be polled inside a tokio runtime",
            Self::NoTimer => "the flusher needs a tokio runtime with time enabled",
        })
    }
}

impl Error for DriveError {}

/// An identity of [`Snapshot`](crate::Snapshot) that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditError {
    pub(crate) identity: &'static str,
    pub(crate) left: u128,
    pub(crate) right: u128,
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} against {}", self.identity, self.left, self.right)
    }
}

impl Error for AuditError {}
