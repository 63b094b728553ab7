//! The states as a stream.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::watch::Receiver;

use crate::state::State;

/// The states of a buffer as they change: the present one first, then each change, or the last of several.
///
/// It ends after [`State::Draining`], or with the controller. It keeps nothing open.
#[must_use = "streams do nothing unless polled"]
pub struct StateWatch {
    states: Receiver<State>,
    /// The wait for the next change; the receiver is inside meanwhile.
    next: Option<Next>,
    is_started: bool,
    is_over: bool,
}

type Next = Pin<Box<dyn Future<Output = Option<State>> + Send + Sync>>;

impl StateWatch {
    pub(crate) fn new(states: Receiver<State>) -> Self {
        Self { states, next: None, is_started: false, is_over: false }
    }

    /// The state now.
    #[must_use]
    pub fn current(&self) -> State {
        *self.states.borrow()
    }

    /// Waits for a change, or for the last of several since the last call; `None` when it is over. Unlike the stream it does
    /// not begin with the present state: that is [`current`](Self::current).
    ///
    /// # Cancel safety
    ///
    /// Safe: a change that was not returned is returned by the next call.
    pub async fn changed(&mut self) -> Option<State> {
        std::future::poll_fn(|cx| {
            self.is_started = true;
            Pin::new(&mut *self).poll_next(cx)
        })
        .await
    }
}

impl Stream for StateWatch {
    type Item = State;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<State>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        let state = if this.is_started {
            if *this.states.borrow() == State::Draining && this.states.has_changed().is_ok_and(|unseen| !unseen) {
                // The last state was seen: nothing more can come.
                this.is_over = true;
                return Poll::Ready(None);
            }
            let next = this.next.get_or_insert_with(|| Box::pin(change(this.states.clone())));
            let state = ready!(next.as_mut().poll(cx));
            this.next = None;
            // The clone in the future has seen it; this one has to see at most as much.
            state.map(|_| *this.states.borrow_and_update())
        } else {
            this.is_started = true;
            Some(*this.states.borrow_and_update())
        };
        this.is_over = matches!(state, None | Some(State::Draining));
        Poll::Ready(state)
    }
}

async fn change(mut states: Receiver<State>) -> Option<State> {
    states.changed().await.ok()?;
    Some(*states.borrow())
}

impl fmt::Debug for StateWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateWatch").field("current", &self.current()).finish_non_exhaustive()
    }
}
