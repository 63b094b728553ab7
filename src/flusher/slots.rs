//! The calls of the sink that are under way: a slot for each, with a sink of its own.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::wakes::Wakes;
use super::{Call, Ended};
use crate::batch::Batch;
use crate::panics::catch;
use crate::retry::Tries;
use crate::sink::BatchSink;
use crate::sync::Mutex;
use crate::time::Tick;

/// All slots of a flusher. What they need is allocated once.
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// Slots without a call.
    free: Vec<usize>,
    /// Slots that are to be polled, each once, in turn.
    ready: VecDeque<usize>,
    wakes: Arc<Wakes>,
}

struct Slot<T> {
    /// Makes each call that comes in the mail, and never ends.
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
    mail: Arc<Mutex<Mail<T>>>,
    waker: Waker,
    /// It stands in the queue of those to be polled.
    is_ready: bool,
    call: Option<Call>,
}

/// Between a slot and its block.
struct Mail<T> {
    /// For the next call.
    next: Option<Batch<T>>,
    /// The time of the call is over.
    is_cut: bool,
    ended: Option<Ended>,
}

impl<T: Send + 'static> Slots<T> {
    /// A slot for each of the sinks, at most [`MAX_CONCURRENCY`](super::MAX_CONCURRENCY).
    pub(super) fn new<S: BatchSink<T> + 'static>(sinks: Vec<S>) -> Self {
        let wakes = Arc::<Wakes>::default();
        let slot = |(i, sink)| {
            let mail = Arc::new(Mutex::new(Mail { next: None, is_cut: false, ended: None }));
            let run = Box::pin(run(sink, Arc::clone(&mail)));
            Slot { run, mail, waker: wakes.waker(i), is_ready: false, call: None }
        };
        let slots: Vec<_> = sinks.into_iter().enumerate().map(slot).collect();
        let (free, ready) = ((0..slots.len()).rev().collect(), VecDeque::with_capacity(slots.len()));
        Self { slots, free, ready, wakes }
    }
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Slots that are taken.
    pub(super) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Begins a call, if a slot is free; it is polled when the slots are.
    pub(super) fn begin(&mut self, call: Call, batch: Batch<T>) {
        let Some(index) = self.free.pop() else { return };
        if let Some(slot) = self.slots.get_mut(index) {
            slot.call = Some(call);
            let mut mail = slot.mail.lock();
            (mail.next, mail.is_cut) = (Some(batch), false);
        }
        self.make_ready(index);
    }

    /// Polls the slots that were woken until a call has ended; the rest of them comes with the next call. That slot stays
    /// taken until it is [released](Self::release).
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<usize> {
        if self.taken() == 0 {
            return Poll::Pending;
        }
        self.wakes.listen(cx.waker());
        let Self { slots, ready, wakes, .. } = self;
        wakes.take(|index| make_ready(slots, ready, index));
        while let Some(index) = ready.pop_front() {
            let Some(slot) = slots.get_mut(index) else { continue };
            slot.is_ready = false;
            let Some(call) = slot.call.as_mut().filter(|call| call.ended.is_none()) else { continue };
            let _ = slot.run.as_mut().poll(&mut Context::from_waker(&slot.waker));
            call.ended = slot.mail.lock().ended.take();
            if call.ended.is_some() {
                return Poll::Ready(index);
            }
        }
        Poll::Pending
    }

    /// The call of a slot.
    pub(super) fn call(&mut self, index: usize) -> Option<&mut Call> {
        self.slots.get_mut(index)?.call.as_mut()
    }

    /// What the schedule remembers of the batch of a call that has ended.
    pub(super) fn take_tries(&mut self, index: usize) -> Tries {
        self.call(index).map(|call| mem::take(&mut call.attempt.tries)).unwrap_or_default()
    }

    /// The slot of a call that has ended takes the next one.
    pub(super) fn release(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        // The error of the call is the user's.
        catch(|| slot.call = None);
        self.free.push(index);
    }

    /// When the time of the first call is over.
    pub(super) fn timeout(&self) -> Option<Tick> {
        self.slots.iter().filter_map(|slot| slot.call.as_ref()?.timeout()).min()
    }

    /// Ends the calls whose time is over by now, unless they are ready when they are polled once more. `extra` is how much
    /// more time a call has been given.
    pub(super) fn cut(&mut self, now: Tick, extra: impl Fn(&Call) -> Duration) {
        let Self { slots, ready, .. } = self;
        for index in 0..slots.len() {
            let Some(slot) = slots.get_mut(index) else { continue };
            let Some(call) = slot.call.as_mut().filter(|call| call.is_late(now)) else { continue };
            call.extra = extra(call);
            if call.is_late(now) {
                slot.mail.lock().is_cut = true;
                make_ready(slots, ready, index);
            }
        }
    }

    fn make_ready(&mut self, index: usize) {
        make_ready(&mut self.slots, &mut self.ready, index);
    }
}

fn make_ready<T>(slots: &mut [Slot<T>], ready: &mut VecDeque<usize>, index: usize) {
    let Some(slot) = slots.get_mut(index) else { return };
    if !mem::replace(&mut slot.is_ready, true) {
        ready.push_back(index);
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // The destructors of the sinks are the users', and one that panics spares the others.
        for slot in self.slots.drain(..) {
            catch(|| drop(slot));
        }
    }
}

/// Calls the sink with each batch that comes in the mail.
async fn run<T, S: BatchSink<T>>(mut sink: S, mail: Arc<Mutex<Mail<T>>>) {
    let mut ended = None;
    loop {
        let batch = poll_fn(|_| mail.lock().exchange(ended.take())).await;
        ended = Some(call(&mut sink, batch, &mail).await);
    }
}

/// One call of the sink, with its panics caught.
async fn call<T, S: BatchSink<T>>(sink: &mut S, batch: Batch<T>, mail: &Mutex<Mail<T>>) -> Ended {
    let Some(answer) = catch(|| sink.flush(batch)) else { return Ended::Panicked };
    let mut answer = pin!(Answer { call: Some(answer) });
    let ended = poll_fn(|cx| match catch(|| answer.as_mut().poll(cx)) {
        Some(Poll::Ready(Ok(()))) => Poll::Ready(Ended::Ok),
        Some(Poll::Ready(Err(error))) => Poll::Ready(Ended::Error(error)),
        Some(Poll::Pending) if !mail.lock().is_cut => Poll::Pending,
        Some(Poll::Pending) => Poll::Ready(Ended::TimedOut),
        None => Poll::Ready(Ended::Panicked),
    })
    .await;
    if answer.as_mut().end() {
        return ended;
    }
    // So is the error's.
    catch(|| drop(ended));
    Ended::Panicked
}

impl<T> Mail<T> {
    /// Leaves how the last call has ended, and fetches the next batch.
    fn exchange(&mut self, ended: Option<Ended>) -> Poll<Batch<T>> {
        if ended.is_some() {
            self.ended = ended;
        }
        self.next.take().map_or(Poll::Pending, Poll::Ready)
    }
}

pin_project! {
    /// The future of a call; its destructor is the user's.
    struct Answer<F> {
        #[pin]
        call: Option<F>,
    }

    impl<F> PinnedDrop for Answer<F> {
        fn drop(this: Pin<&mut Self>) {
            this.end();
        }
    }
}

impl<F> Answer<F> {
    /// Drops the future; whether that went well.
    fn end(self: Pin<&mut Self>) -> bool {
        catch(|| self.project().call.set(None)).is_some()
    }
}

impl<F: Future> Future for Answer<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().call.as_pin_mut() {
            Some(call) => call.poll(cx),
            None => Poll::Pending,
        }
    }
}
