//! The global allocator, which counts while it is told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Counts allocations and living bytes, of all threads, between [`start`] and [`Counter::stop`]; else it is the
/// system's.
#[derive(Debug)]
pub(crate) struct Counting;

static IS_ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

/// What was allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Allocations, growing ones too.
    pub(crate) calls: u64,
    /// Bytes that were allocated and not freed meanwhile.
    pub(crate) bytes: i64,
}

/// Counts what all threads allocate from now on. Not to be nested.
pub(crate) fn start() -> Counter {
    CALLS.store(0, Ordering::Relaxed);
    BYTES.store(0, Ordering::Relaxed);
    IS_ON.store(true, Ordering::SeqCst);
    Counter(())
}

/// Counts until it is asked.
#[derive(Debug)]
#[must_use = "it counts until it is stopped"]
pub(crate) struct Counter(());

impl Counter {
    pub(crate) fn stop(self) -> Counted {
        IS_ON.store(false, Ordering::SeqCst);
        Counted { calls: CALLS.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
    }
}

fn note(calls: u64, bytes: i64) {
    if IS_ON.load(Ordering::Relaxed) {
        CALLS.fetch_add(calls, Ordering::Relaxed);
        BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: each call goes to the system's allocator as it came; the counters are beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}
