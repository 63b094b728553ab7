//! Which slots have been woken, so that the flusher polls those and no others.

use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{AtomicU64, Mutex, Ordering};

/// The most calls of a sink at once: 256, far more than sinks gain from.
pub const MAX_CONCURRENCY: usize = WORDS * BITS;

const WORDS: usize = 4;
const BITS: usize = u64::BITS as usize;

/// A bit for each slot that was woken, and the task that is to look.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    woken: [AtomicU64; WORDS],
    task: Mutex<Option<Waker>>,
}

impl Wakes {
    /// The waker of one slot, below [`MAX_CONCURRENCY`].
    pub(super) fn waker(self: &Arc<Self>, slot: usize) -> Waker {
        Waker::from(Arc::new(SlotWaker { wakes: Arc::clone(self), slot }))
    }

    /// Has this task woken from here on.
    pub(super) fn listen(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            return;
        }
        drop(task);
        // Cloning and dropping it is the executor's code.
        let waker = waker.clone();
        task = self.task.lock();
        let stale = task.replace(waker);
        drop(task);
        drop(stale);
    }

    /// Names the slots that were woken since the last call; to be called after `listen`.
    pub(super) fn take(&self, mut found: impl FnMut(usize)) {
        for (i, word) in self.woken.iter().enumerate() {
            // Ordering: a load first, since most often nothing is there; Relaxed is enough, as a wake that it misses takes
            // the lock of the task after `listen` has, and so wakes it.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Ordering: Acquire, partner of the Release in `wake`: what was done before it is seen.
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                found(i * BITS + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    fn wake(&self, slot: usize) {
        let Some(word) = self.woken.get(slot / BITS) else { return };
        let bit = 1 << (slot % BITS);
        // Ordering: Release, partner of the Acquire in `take`.
        if word.fetch_or(bit, Ordering::Release) & bit != 0 {
            // Whoever set it wakes the task.
            return;
        }
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[derive(Debug)]
struct SlotWaker {
    wakes: Arc<Wakes>,
    slot: usize,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wakes.wake(self.slot);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.wake(self.slot);
    }
}

#[cfg(all(test, not(backpressure_loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn woken(wakes: &Wakes) -> Vec<usize> {
        let mut woken = Vec::new();
        wakes.take(|slot| woken.push(slot));
        woken
    }

    #[test]
    fn each_slot_is_named_once_and_the_task_woken_once_for_it() {
        let wakes = Arc::new(Wakes::default());
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let wakers: Vec<_> = [0, 63, 64, MAX_CONCURRENCY - 1].map(|slot| wakes.waker(slot)).into();
        wakers[0].wake_by_ref();
        wakes.listen(&Waker::from(Arc::clone(&count)));
        assert_eq!(woken(&wakes), [0], "also what was woken before anybody listened");
        for waker in wakers.iter().chain(&wakers).rev() {
            waker.wake_by_ref();
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 4);
        assert_eq!(woken(&wakes), [0, 63, 64, MAX_CONCURRENCY - 1]);
        assert!(woken(&wakes).is_empty());
    }
}
