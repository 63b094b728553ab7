//! A sink that does what the script says, and notes it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backpressure::{Batch, BatchSink, FlushError};

use super::case::{Answer, Edit, Outcome};
use super::world::{Calling, Event, Kept, Token, World};

#[derive(Clone)]
pub struct Sink(pub Arc<World>);

impl BatchSink<Token> for Sink {
    fn flush(&mut self, batch: Batch<Token>) -> impl Future<Output = Result<(), FlushError>> + Send {
        let world = Arc::clone(&self.0);
        assert!((0..batch.len()).map(|i| batch.weight(i)).eq(batch.weighted().map(|(_, weight)| weight)));
        world.note(Event::Called(Calling {
            id: batch.id(),
            seqs: (0..batch.len()).map(|i| batch.seq(i)).collect(),
            items: batch.iter().map(|token| token.id).collect(),
            weights: batch.weighted().map(|(_, weight)| weight).collect(),
            attempt: batch.attempt(),
            reason: batch.reason(),
            lost_before: batch.lost_before().total(),
        }));
        let at_once = |outcome: &Outcome| outcome.answer == Answer::PanicAtOnce;
        let outcome = world.script().outcomes.pop_front_if_stable(at_once);
        if let Some(outcome) = outcome {
            let edit = Edit { marks: None, take: false, keep: false };
            world.note(Event::Acted(batch.seq(0), Outcome { edit, push: false, ..outcome }));
            panic!("expected: a sink that panics at once");
        }
        let (first, len) = (batch.seq(0), batch.len());
        Call { first, len, batch: Some(batch), taken: Vec::new(), is_over: false, is_hung: false, world }
    }
}

/// One call.
struct Call {
    world: Arc<World>,
    batch: Option<Batch<Token>>,
    first: u64,
    len: usize,
    taken: Vec<Token>,
    is_over: bool,
    is_hung: bool,
}

impl Call {
    fn edit(&mut self, edit: Edit) {
        let Some(batch) = &mut self.batch else { return };
        if let Some(marks) = edit.marks {
            for i in 0..self.len {
                match mark(marks, i) {
                    1 => batch.deliver(i),
                    2 => batch.fail(i, "expected"),
                    3 => batch.retry(i),
                    _ => {}
                }
            }
        }
        if edit.take {
            self.taken = batch.take();
        }
        if edit.keep {
            let first = self.first;
            self.world.script().kept.extend(self.batch.take().map(|batch| Kept { batch, first }));
        }
    }
}

/// What `marks` says of the item at `index`.
pub fn mark(marks: u8, index: usize) -> u8 {
    marks >> (2 * (index % 4)) & 3
}

impl Future for Call {
    type Output = Result<(), FlushError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let outcome = {
                let mut script = self.world.script();
                let next = if self.is_hung { None } else { script.outcomes.pop_front().or(script.default) };
                if next.is_none() {
                    script.wakers.push(cx.waker().clone());
                }
                next
            };
            let Some(outcome) = outcome else { return Poll::Pending };
            if outcome.push {
                self.world.push_from_inside(false);
            }
            self.world.note(Event::Acted(self.first, outcome));
            if let Answer::Extend(more) = outcome.answer {
                if let Some(batch) = &self.batch {
                    batch.extend(Duration::from_millis(more));
                }
                continue;
            }
            self.edit(outcome.edit);
            self.is_over = true;
            return Poll::Ready(match outcome.answer {
                Answer::Ok | Answer::Extend(_) => Ok(()),
                Answer::Retry => Err(FlushError::retry("expected")),
                Answer::Throttled(after) => Err(FlushError::throttled("expected", Duration::from_millis(after))),
                Answer::TooLarge => Err(FlushError::too_large("expected")),
                Answer::Permanent => Err(FlushError::permanent("expected")),
                Answer::Panic | Answer::PanicAtOnce => panic!("expected: a sink that panics"),
                Answer::Hang => {
                    (self.is_over, self.is_hung) = (false, true);
                    return Poll::Pending;
                }
            });
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over {
            self.world.note(Event::Cut(self.first));
        }
        self.taken.drain(..).for_each(|token| {
            token.disarm();
        });
    }
}

/// `VecDeque::pop_front_if`, which is younger than this crate's Rust.
trait PopFrontIf<T> {
    fn pop_front_if_stable(&mut self, predicate: impl FnOnce(&T) -> bool) -> Option<T>;
}

impl<T> PopFrontIf<T> for std::collections::VecDeque<T> {
    fn pop_front_if_stable(&mut self, predicate: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.front().is_some_and(predicate) { self.pop_front() } else { None }
    }
}
