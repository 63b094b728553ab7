//! Where this thread is: inside the flusher of a controller, where a push that waits would wait for itself; or inside what a
//! controller tells, where telling more would never end.

use std::cell::Cell;
use std::ptr;

use super::Core;
use crate::sync::thread_local;

thread_local! {
    static INSIDE: Cell<*const ()> = const { Cell::new(ptr::null()) };
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as inside a flusher until it is dropped.
#[derive(Debug)]
pub(crate) struct Inside {
    before: *const (),
}

impl Inside {
    /// `core` is the address of the flusher's core.
    pub(crate) fn enter(core: *const ()) -> Self {
        Self { before: INSIDE.with(|inside| inside.replace(core)) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.before));
    }
}

/// Marks this thread as telling something to a recorder or a subscriber until it is dropped.
#[derive(Debug)]
pub(crate) struct Telling(());

impl Telling {
    /// `None` if it does so already.
    pub(crate) fn enter() -> Option<Self> {
        let is_telling = TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true);
        (!is_telling).then(|| Self(()))
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = TELLING.try_with(|telling| telling.set(false));
    }
}

impl<T> Core<T> {
    /// Whether this thread runs this controller's flusher, and in it the sink.
    pub(crate) fn is_inside(&self) -> bool {
        INSIDE.try_with(Cell::get).is_ok_and(|inside| ptr::eq(inside, ptr::from_ref(self).cast()))
    }
}
