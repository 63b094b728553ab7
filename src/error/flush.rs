//! What a sink answers: for a batch, and for each item.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::BoxError;

/// What a sink says of a flush that did not succeed.
///
/// `?` turns any error into [`retry`](Self::retry). For that reason this type does not implement [`Error`] itself.
#[must_use = "it says what is to become of the batch"]
pub struct FlushError {
    pub(crate) verdict: Verdict,
    pub(crate) source: Arc<dyn Error + Send + Sync>,
}

/// What is to be done with the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Retry,
    Throttled(Duration),
    TooLarge,
    Permanent,
}

impl FlushError {
    /// It may work later: the batch is sent again by the retry policy.
    pub fn retry(error: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Retry, error)
    }

    /// The sink asks for a pause: the batch is sent again no sooner than after `after`, from when its call has ended, and until
    /// then nothing else is sent either, also if the batch has failed for good. Calls that are under way go on; of several
    /// pauses the one that ends last counts. Zero names no pause: as [`retry`](Self::retry), while a pace that adapts slows down.
    /// Pulled batches have no sink that could ask.
    pub fn throttled(error: impl Into<BoxError>, after: Duration) -> Self {
        Self::new(Verdict::Throttled(after), error)
    }

    /// The batch is too large for the sink: it is split in two. A single item that is too large has failed. A pace that adapts keeps the
    /// next batches below what was refused, unless as large ones are taken.
    pub fn too_large(error: impl Into<BoxError>) -> Self {
        Self::new(Verdict::TooLarge, error)
    }

    /// It will never work: the items have failed, unless the batch is [bisected](crate::Builder::bisect).
    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Permanent, error)
    }

    /// The error that the sink gave.
    #[must_use]
    pub fn source(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }

    /// Whether it is one of [`retry`](Self::retry).
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.verdict == Verdict::Retry
    }

    /// The pause that it asks for, if it is one of [`throttled`](Self::throttled).
    #[must_use]
    pub fn throttled_for(&self) -> Option<Duration> {
        if let Verdict::Throttled(after) = self.verdict { Some(after) } else { None }
    }

    /// Whether it is one of [`too_large`](Self::too_large).
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.verdict == Verdict::TooLarge
    }

    /// Whether it is one of [`permanent`](Self::permanent).
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.verdict == Verdict::Permanent
    }

    fn new(verdict: Verdict, error: impl Into<BoxError>) -> Self {
        Self { verdict, source: Arc::from(error.into()) }
    }
}

/// What a sink says of one item: see [`Batch::judge`](crate::Batch::judge).
#[derive(Clone, Debug)]
pub enum ItemOutcome {
    /// It is delivered, whatever the flush answers.
    Delivered,
    /// It is to be sent again, also when the flush answers `Ok(())`.
    Retry,
    /// It has failed for good.
    Failed(Arc<dyn Error + Send + Sync>),
}

impl ItemOutcome {
    /// It has failed for good.
    pub fn failed(error: impl Into<BoxError>) -> Self {
        Self::Failed(Arc::from(error.into()))
    }
}

impl<E: Into<BoxError>> From<Result<(), E>> for ItemOutcome {
    /// Delivered, or failed for good.
    fn from(answer: Result<(), E>) -> Self {
        answer.map_or_else(Self::failed, |()| Self::Delivered)
    }
}

/// Not as many outcomes as items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongOutcomes {
    /// Items of the batch.
    pub items: usize,
    /// Outcomes that there were; one more than the items if there were more.
    pub outcomes: usize,
}

impl fmt::Display for WrongOutcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items, outcomes } = self;
        let more = if outcomes > items { " or more" } else { "" };
        write!(f, "{outcomes}{more} outcomes for a batch of {items} items")
    }
}

impl Error for WrongOutcomes {}

impl<E: Into<BoxError>> From<E> for FlushError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Debug for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlushError").field("verdict", &self.verdict).field("source", &self.source).finish()
    }
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)
    }
}

/// The error of a flush that ended by a panic of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkPanicked;

impl fmt::Display for SinkPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sink panicked")
    }
}

impl Error for SinkPanicked {}

/// The error of a flush that was cut off by the flush timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushTimedOut;

impl fmt::Display for FlushTimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the flush timed out")
    }
}

impl Error for FlushTimedOut {}

/// The error of an item that the sink asked to be sent again, once the retry policy gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetriesExhausted;

impl fmt::Display for RetriesExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the retries are used up")
    }
}

impl Error for RetriesExhausted {}
