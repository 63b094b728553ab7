//! The futures of a run, each with a waker of its own.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use backpressure::{
    BackpressureController, Delivery, DrainReport, FlushReport, Permit, PushError, RefuseReason, ReserveError,
};

use super::case::{Limit, Millis};
use super::oracle::Fid;
use super::world::{Flag, Id, Token, World, given_back};

type Controller = BackpressureController<Token>;

/// What a future has answered.
#[allow(clippy::large_enum_variant, reason = "there are few of them, and a report is the last one")]
pub enum Done {
    Pushed(Result<(), RefuseReason>),
    Tracked(Result<Delivery<Token>, RefuseReason>),
    All(Result<usize, (RefuseReason, usize, Vec<Id>)>),
    Reserved(Result<Vec<Permit<Token>>, ReserveError>),
    Flushed(FlushReport),
    Drained(Box<DrainReport<Token>>),
    Panicked,
}

pub struct Slot {
    pub fid: Fid,
    pub flag: Arc<Flag>,
    pub is_polled: bool,
    future: Option<Pin<Box<dyn Future<Output = Done>>>>,
}

impl Slot {
    fn new(fid: Fid, future: impl Future<Output = Done> + 'static) -> Self {
        Self { fid, flag: Arc::default(), is_polled: false, future: Some(Box::pin(future)) }
    }

    pub fn push(fid: Fid, handle: Controller, token: Token, limit: Limit) -> Self {
        let done = |result: Result<(), PushError<Token>>| Done::Pushed(result.map_err(given_back));
        match limit {
            Limit::None => Self::new(fid, async move { done(handle.push(token).await) }),
            Limit::At(limit) => Self::new(fid, async move { done(handle.push_timeout(token, duration(limit)).await) }),
        }
    }

    pub fn push_tracked(fid: Fid, handle: Controller, token: Token) -> Self {
        Self::new(fid, async move { Done::Tracked(handle.push_tracked(token).await.map_err(given_back)) })
    }

    pub fn push_all(fid: Fid, handle: Controller, source: Source) -> Self {
        Self::new(fid, async move {
            Done::All(match handle.push_all(source).await {
                Ok(accepted) => Ok(accepted),
                Err(error) => {
                    let (reason, accepted) = (error.reason(), error.accepted());
                    let mut rest = error.into_rest();
                    // The rest of an iterator that panics later is not asked for.
                    let rest = std::iter::from_fn(|| catch_unwind(AssertUnwindSafe(|| rest.next())).ok().flatten());
                    Err((reason, accepted, rest.map(Token::disarm).collect()))
                }
            })
        })
    }

    pub fn reserve(fid: Fid, handle: Controller, places: usize) -> Self {
        Self::new(fid, async move {
            Done::Reserved(if places == 1 {
                handle.reserve().await.map(|permit| vec![permit])
            } else {
                handle.reserve_many(places).await.map(Iterator::collect)
            })
        })
    }

    pub fn flush(fid: Fid, handle: Controller) -> Self {
        Self::new(fid, async move { Done::Flushed(handle.flush().await) })
    }

    pub fn drain(fid: Fid, handle: Controller, limit: Millis) -> Self {
        Self::new(fid, async move { Done::Drained(Box::new(handle.drain(duration(limit)).await)) })
    }

    pub fn poll(&mut self) -> Poll<Done> {
        self.is_polled = true;
        self.flag.take();
        let waker = Waker::from(Arc::clone(&self.flag));
        let Some(future) = &mut self.future else { panic!("it has answered") };
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))))
            .unwrap_or(Poll::Ready(Done::Panicked))
    }

    /// Drops the future. Whether an item panicked out of it: only one that was never offered may.
    pub fn cancel(mut self) -> bool {
        let future = self.future.take();
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(future))).is_err();
        assert!(!panicked || !self.is_polled, "a cancelled push lets its item's panic through");
        panicked
    }
}

pub fn duration(limit: Millis) -> Duration {
    limit.map_or(Duration::MAX, Duration::from_millis)
}

/// An iterator of tokens that are made as they are pulled.
pub struct Source {
    pub world: Arc<World>,
    pub next: Id,
    pub end: Id,
    pub panics_at: Option<Id>,
}

impl Iterator for Source {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        if self.next == self.end {
            return None;
        }
        assert!(self.panics_at != Some(self.next), "expected: an iterator that panics");
        self.next += 1;
        Some(self.world.token(self.next - 1))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // A wrong hint is no fault.
        (0, Some((self.end - self.next) as usize / 2))
    }
}
