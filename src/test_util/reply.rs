//! What a scripted sink answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::FlushError;

/// One line of the script of a [`ScriptedSink`](crate::test_util::ScriptedSink): what it answers, when, and how often.
///
/// By default it answers at once, to one call.
#[must_use = "a reply does nothing until it is in a script"]
pub struct Reply<T> {
    pub(super) kind: Kind<T>,
    pub(super) delay: Duration,
    /// To how many calls; `None` means to all.
    pub(super) times: Option<usize>,
}

pub(super) enum Kind<T> {
    Ok,
    Error(Arc<dyn Fn() -> FlushError + Send + Sync>),
    Partial(Arc<dyn Fn(&T) -> Verdict + Send + Sync>),
    Panic,
    Hang,
}

/// What a sink says of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is delivered.
    Deliver,
    /// It has failed for good.
    Fail,
    /// It is to be sent again.
    Retry,
}

impl<T> Reply<T> {
    /// All items are delivered.
    pub fn ok() -> Self {
        Self::new(Kind::Ok)
    }

    /// [`FlushError::retry`]: the batch is sent again.
    pub fn retry(error: &'static str) -> Self {
        Self::error(move || FlushError::retry(error))
    }

    /// [`FlushError::throttled`]: the batch is sent again no sooner than after `after`.
    pub fn throttled(error: &'static str, after: Duration) -> Self {
        Self::error(move || FlushError::throttled(error, after))
    }

    /// [`FlushError::too_large`]: the batch is split in two.
    pub fn too_large(error: &'static str) -> Self {
        Self::error(move || FlushError::too_large(error))
    }

    /// [`FlushError::permanent`]: the items have failed.
    pub fn permanent(error: &'static str) -> Self {
        Self::error(move || FlushError::permanent(error))
    }

    /// Each item is judged by itself, and the answer is `Ok(())`.
    pub fn partial(judge: impl Fn(&T) -> Verdict + Send + Sync + 'static) -> Self {
        Self::new(Kind::Partial(Arc::new(judge)))
    }

    /// The sink panics; the batch goes home and is sent again.
    pub fn panic() -> Self {
        Self::new(Kind::Panic)
    }

    /// No answer ever comes: only the flush timeout or drain's deadline ends the call.
    pub fn hang() -> Self {
        Self::new(Kind::Hang)
    }

    /// It takes so long, on the controller's clock, until the answer comes.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The answer to `n` calls, one after the other. Zero leaves it out.
    pub fn times(mut self, n: usize) -> Self {
        self.times = Some(n);
        self
    }

    /// The answer to all calls from then on.
    pub fn forever(mut self) -> Self {
        self.times = None;
        self
    }

    fn new(kind: Kind<T>) -> Self {
        Self { kind, delay: Duration::ZERO, times: Some(1) }
    }

    fn error(error: impl Fn() -> FlushError + Send + Sync + 'static) -> Self {
        Self::new(Kind::Error(Arc::new(error)))
    }
}

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        let kind = match &self.kind {
            Kind::Ok => Kind::Ok,
            Kind::Error(error) => Kind::Error(Arc::clone(error)),
            Kind::Partial(judge) => Kind::Partial(Arc::clone(judge)),
            Kind::Panic => Kind::Panic,
            Kind::Hang => Kind::Hang,
        };
        Self { kind, ..*self }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind: &dyn fmt::Debug = match &self.kind {
            Kind::Ok => &"ok",
            Kind::Error(error) => &error(),
            Kind::Partial(_) => &"partial",
            Kind::Panic => &"panic",
            Kind::Hang => &"hang",
        };
        f.debug_struct("Reply").field("kind", kind).field("delay", &self.delay).field("times", &self.times).finish()
    }
}
