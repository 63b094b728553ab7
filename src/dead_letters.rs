//! Items that have failed for good, on their way to a controller of their own.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::controller::BackpressureController;
use crate::core::{Loss, LossHook};
use crate::error::LossReason;

/// An item that has failed for good, with what the sink said of it: what a
/// [dead-letter queue](crate::Builder::dead_letters) takes.
#[non_exhaustive]
pub struct DeadLetter<T> {
    /// The item.
    pub item: T,
    /// What the sink said; that the retries are used up, if it said nothing.
    pub error: Option<Arc<dyn Error + Send + Sync>>,
    /// The [name](crate::Builder::name) of the controller that could not deliver it.
    pub queue: Arc<str>,
}

impl<T> fmt::Debug for DeadLetter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter").field("error", &self.error).field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// The hook of a controller named `queue` with a dead-letter queue: what that does not take, and every other loss, goes on
/// to `rest`.
pub(crate) fn route<T: Send + 'static>(
    queue: Arc<str>,
    letters: BackpressureController<DeadLetter<T>>,
    rest: Option<LossHook<T>>,
) -> LossHook<T> {
    Box::new(move |loss| {
        let Some(loss) = bury(&queue, &letters, loss) else { return };
        // Without a hook an item is dropped here; its destructor's panic is caught and counted by whoever calls.
        if let Some(rest) = &rest {
            rest(loss);
        }
    })
}

/// What the queue does not take comes back.
fn bury<T>(queue: &Arc<str>, letters: &BackpressureController<DeadLetter<T>>, loss: Loss<T>) -> Option<Loss<T>> {
    match loss {
        Loss { item: Some(item), reason: LossReason::Failed, error } => {
            let letter = DeadLetter { item, error, queue: Arc::clone(queue) };
            let DeadLetter { item, error, .. } = letters.try_push(letter).err()?.into_inner();
            Some(Loss { item: Some(item), reason: LossReason::Failed, error })
        }
        other => Some(other),
    }
}
