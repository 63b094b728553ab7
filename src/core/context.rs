//! Whether this thread is inside the flusher of a controller: a push that waits there would wait for itself.

use std::cell::Cell;
use std::ptr;

use super::Core;

thread_local! {
    static INSIDE: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Marks this thread as inside a flusher until it is dropped.
#[derive(Debug)]
pub(crate) struct Inside {
    before: *const (),
}

impl Inside {
    /// `core` is the address of the flusher's core.
    pub(crate) fn enter(core: *const ()) -> Self {
        Self { before: INSIDE.replace(core) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

impl<T> Core<T> {
    /// Whether this thread runs this controller's flusher, and in it the sink.
    pub(crate) fn is_inside(&self) -> bool {
        INSIDE.try_with(Cell::get).is_ok_and(|inside| ptr::eq(inside, ptr::from_ref(self).cast()))
    }
}
