//! Sinks that block: a database connection, a file.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_blocking};

use crate::batch::Batch;
use crate::error::{FlushError, SinkPanicked};
use crate::panics::catch;
use crate::sink::BatchSink;
use crate::sync::Mutex;

/// A sink that is a blocking function: each call runs on a thread of tokio's for blocking work.
///
/// The function owns what it writes to, a connection for example. It moves to the blocking thread for a call and comes back
/// with the answer, so that there is one call at a time, and no lock is held while it runs.
///
/// # Cancel safety
///
/// A blocking call cannot be stopped. One that is cut off by the flush timeout goes on and keeps its batch, which stays in
/// flight until the function lets it go; nothing else is flushed meanwhile by this clone of the sink. What it then answers comes
/// too late: the batch is sent again, but for what was acknowledged by [`deliver`](Batch::deliver) or [`done`](Batch::done). So
/// call `done` as soon as all is written: where it was not, a store that refuses repeats gets rows that it has. A call that is
/// cut off by drain's deadline goes on, too, and its items count as not returned; tokio's runtime waits for its thread when it
/// is dropped, so end the process by `Runtime::shutdown_timeout` or `std::process::exit` if it must not.
///
/// # Accounting
///
/// A panic of the function is the sink's: the batch goes home and is sent again. A push from inside the function into its
/// own full controller answers `WouldDeadlock`, as in any sink.
///
/// # Examples
///
/// ```
/// use std::io::Write;
///
/// use backpressure::{BackpressureController, Batch, BlockingSink};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut file = tempfile()?;
/// let lines = BackpressureController::builder(1000).spawn(BlockingSink::new(move |batch: Batch<String>| {
///     for line in &batch {
///         writeln!(file, "{line}")?;
///     }
///     file.sync_data()?;
///     batch.done(); // it counts, even if that took longer than the flush timeout
///     Ok(())
/// }))?;
/// lines.push("written by a thread that may block".to_owned()).await?;
/// assert!(lines.flush().await.all_delivered());
/// # Ok(())
/// # }
/// # fn tempfile() -> std::io::Result<std::fs::File> {
/// #     let path = std::env::temp_dir().join(format!("backpressure-doc-{}", std::process::id()));
/// #     let file = std::fs::File::create(&path)?;
/// #     std::fs::remove_file(path)?;
/// #     Ok(file)
/// # }
/// ```
#[must_use = "a sink does nothing by itself"]
pub struct BlockingSink<F> {
    home: Arc<Home<F>>,
    /// The call that is not over.
    running: Option<JoinHandle<Answer>>,
}

/// Where the function is between two calls; the lock is held only to take it and to put it back.
type Home<F> = Mutex<Option<F>>;

/// `None` after a panic.
type Answer = Option<Result<(), FlushError>>;

impl<F> BlockingSink<F> {
    /// Wraps a blocking function.
    pub fn new<T>(function: F) -> Self
    where
        F: FnMut(Batch<T>) -> Result<(), FlushError> + Send + 'static,
    {
        Self { home: Arc::new(Mutex::new(Some(function))), running: None }
    }
}

/// A sink with a copy of the function, for [`spawn_concurrent`](crate::Builder::spawn_concurrent): each runs on a thread of its
/// own. To be cloned before it is in use: while a call runs there is no function to copy, and the clone's calls panic.
impl<F: Clone> Clone for BlockingSink<F> {
    fn clone(&self) -> Self {
        // Its clone is the user's: not under the lock.
        let lent = Lent { function: self.home.lock().take(), home: &self.home };
        Self { home: Arc::new(Mutex::new(lent.function.clone())), running: None }
    }
}

/// A function that goes home, also if its clone panics.
struct Lent<'a, F> {
    function: Option<F>,
    home: &'a Home<F>,
}

impl<F> Drop for Lent<'_, F> {
    fn drop(&mut self) {
        // Without one, a call has it, or has brought it back meanwhile.
        if let Some(function) = self.function.take() {
            *self.home.lock() = Some(function);
        }
    }
}

impl<T, F> BatchSink<T> for BlockingSink<F>
where
    T: Send + 'static,
    F: FnMut(Batch<T>) -> Result<(), FlushError> + Send + 'static,
{
    async fn flush(&mut self, batch: Batch<T>) -> Result<(), FlushError> {
        if let Some(late) = &mut self.running {
            // It has let its batch go, so it is about to end. Its call was judged when it was cut off.
            let answer = late.await;
            self.running = None;
            catch(|| drop(answer));
        }
        let home = Arc::clone(&self.home);
        let answer = self.running.insert(spawn_blocking(move || call(&home, batch))).await;
        self.running = None;
        match answer {
            Ok(Some(answer)) => answer,
            // It was reported where it happened.
            Ok(None) => resume_unwind(Box::new(SinkPanicked)),
            // The runtime goes down: the call has not begun.
            Err(error) => Err(FlushError::retry(error)),
        }
    }
}

/// One call, on the blocking thread.
fn call<T, F: FnMut(Batch<T>) -> Result<(), FlushError>>(home: &Home<F>, batch: Batch<T>) -> Answer {
    let mut function = home.lock().take()?;
    let inside = batch.enter();
    let answer = catch(|| function(batch));
    drop(inside);
    *home.lock() = Some(function);
    answer
}

impl<F> fmt::Debug for BlockingSink<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingSink").field("is_running", &self.running.is_some()).finish()
    }
}

#[cfg(all(test, not(backpressure_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_clone_during_a_call_does_not_take_from_it_what_it_brings_back() {
        let home = Mutex::new(None);
        let lent = Lent { function: None, home: &home };
        *home.lock() = Some(7);
        drop(lent);
        assert_eq!(*home.lock(), Some(7));
    }
}
