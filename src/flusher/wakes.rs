//! Which slots have been woken, so that the flusher polls those and no others.

use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{AtomicU64, Fault, Mutex, Ordering, order};

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
        if word.fetch_or(bit, order(Fault::SlotRelaxed, Ordering::Release)) & bit != 0 {
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

#[cfg(all(test, backpressure_loom))]
mod loom_models {
    use std::sync::atomic::AtomicBool;

    use loom::thread;

    use super::*;
    use crate::sync::{Model, UnsafeCell, explore, fault, must_fail};

    #[derive(Default)]
    struct Task(AtomicBool);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Slots are woken on other threads while the task looks, perhaps as another one than before.
    fn look_against_wakes(wakers: usize) -> impl Fn() + Send + Sync + 'static {
        move || {
            let wakes = Arc::new(Wakes::default());
            let (before, task) = (Arc::new(Task::default()), Arc::new(Task::default()));
            wakes.listen(&Waker::from(before));
            let threads: Vec<_> = (0..wakers)
                .map(|slot| {
                    let waker = wakes.waker(slot);
                    thread::spawn(move || waker.wake())
                })
                .collect();
            let mut woken = Vec::new();
            if fault(Fault::SlotsBeforeTask) {
                wakes.take(|slot| woken.push(slot));
            }
            wakes.listen(&Waker::from(Arc::clone(&task)));
            if !fault(Fault::SlotsBeforeTask) {
                wakes.take(|slot| woken.push(slot));
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            let is_woken = task.0.load(Ordering::Relaxed);
            assert!(is_woken || woken.len() == wakers, "a slot is woken and its task sleeps");
            wakes.take(|slot| woken.push(slot));
            woken.sort_unstable();
            assert_eq!(woken, (0..wakers).collect::<Vec<_>>(), "each slot is named once");
        }
    }

    /// What was written before the wake is seen by whoever takes it.
    fn publishes() {
        let rig = Model::new((Arc::new(Wakes::default()), UnsafeCell::new(0)));
        let other = Arc::clone(&rig);
        let thread = thread::spawn(move || {
            other.1.with_mut(|value| {
                // SAFETY: the model; loom reports a race.
                let _ = value;
            });
            other.0.waker(0).wake();
        });
        rig.0.take(|_| {
            rig.1.with_mut(|value| {
                let _ = value;
            });
        });
        thread.join().expect("no panic");
    }

    #[test]
    fn loom_a_woken_slot_is_polled() {
        explore(look_against_wakes(1));
        explore(look_against_wakes(2));
    }

    #[test]
    fn loom_what_came_before_a_wake_is_seen() {
        explore(publishes);
    }

    #[test]
    fn loom_twin_slots_before_task() {
        must_fail(Fault::SlotsBeforeTask, look_against_wakes(1));
    }

    #[test]
    fn loom_twin_slot_relaxed() {
        must_fail(Fault::SlotRelaxed, publishes);
    }
}
