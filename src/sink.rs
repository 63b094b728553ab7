//! Where the batches go.

use std::future::Future;

use crate::batch::Batch;
use crate::error::FlushError;

/// An asynchronous consumer of batches.
///
/// Every `FnMut(Batch<T>) -> Future` is one, if the future answers a `Result<(), FlushError>`. Any other error becomes that
/// by `?`, and means "again": `Ok(insert(&batch).await?)`. A panic in it is caught: the batch goes home and is sent again.
///
/// It is called again only when the call before has ended; for several calls at once it has to be `Clone`, see
/// [`spawn_concurrent`](crate::Builder::spawn_concurrent). Its future is polled only when it was woken.
///
/// # Cancel safety
///
/// The future is dropped at the flush timeout and at drain's deadline. The batch in it then goes home.
pub trait BatchSink<T>: Send {
    /// Delivers a batch. What the answer means for each item is said at [`Batch`] and [`FlushError`].
    fn flush(&mut self, batch: Batch<T>) -> impl Future<Output = Result<(), FlushError>> + Send;
}

impl<T, F, Answer> BatchSink<T> for F
where
    F: FnMut(Batch<T>) -> Answer + Send,
    Answer: Future<Output = Result<(), FlushError>> + Send,
{
    fn flush(&mut self, batch: Batch<T>) -> impl Future<Output = Result<(), FlushError>> + Send {
        self(batch)
    }
}

/// A function with a state that is cloned for each flush.
#[derive(Debug)]
pub(crate) struct WithState<S, F> {
    pub(crate) state: S,
    pub(crate) function: F,
}

impl<T, S, F, Answer> BatchSink<T> for WithState<S, F>
where
    S: Clone + Send,
    F: FnMut(S, Batch<T>) -> Answer + Send,
    Answer: Future<Output = Result<(), FlushError>> + Send,
{
    fn flush(&mut self, batch: Batch<T>) -> impl Future<Output = Result<(), FlushError>> + Send {
        (self.function)(self.state.clone(), batch)
    }
}
