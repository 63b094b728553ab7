//! The one way in which an item is lost: by the hook, or dropped with care.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::mem;
use std::sync::Arc;

use super::Core;
use crate::error::{LossReason, RefuseReason};
use crate::gate::Means;
use crate::sync::thread_local;

/// An accepted item that was not delivered, or one that was refused where no caller could take it back, on its way to
/// `on_loss`.
#[non_exhaustive]
pub struct Loss<T> {
    /// The item; `None` if the sink moved it out of its batch and then failed.
    pub item: Option<T>,
    /// Why it was lost.
    pub reason: LossReason,
    /// What the sink said, if it was the sink.
    pub error: Option<Arc<dyn Error + Send + Sync>>,
}

impl<T> fmt::Debug for Loss<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loss")
            .field("has_item", &self.item.is_some())
            .field("reason", &self.reason)
            .field("error", &self.error)
            .finish()
    }
}

pub(crate) type LossHook<T> = Box<dyn Fn(Loss<T>) + Send + Sync>;

thread_local! {
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

/// Whether anybody minds an evicted item: the hook, or its own destructor.
#[inline(always)]
pub(super) fn minds_evicted<T>(hook: Option<&LossHook<T>>) -> bool {
    hook.is_some() || mem::needs_drop::<T>()
}

/// Whether this thread runs a loss hook: a push from inside one never evicts.
pub(super) fn is_in_hook() -> bool {
    IN_HOOK.try_with(Cell::get).unwrap_or(false)
}

/// What a push that need not leave others their turn may claim.
pub(crate) fn means_here() -> Means {
    if is_in_hook() { Means::Room } else { Means::Credit }
}

impl<T> Core<T> {
    /// Hands an item that was counted as lost to the hook; without one it is dropped. Runs outside all locks.
    pub(super) fn lose(&self, item: Option<T>, reason: LossReason, error: Option<Arc<dyn Error + Send + Sync>>) {
        let Some(hook) = &self.on_loss else {
            self.guard(|| drop(item));
            // The sink's error is the user's, too.
            self.guard(|| drop(error));
            return;
        };
        let before = IN_HOOK.try_with(|flag| flag.replace(true)).unwrap_or(true);
        self.guard(|| hook(Loss { item, reason, error }));
        let _ = IN_HOOK.try_with(|flag| flag.set(before));
    }

    /// Hands over an item that was refused and counted so, where no caller can take it back.
    pub(crate) fn lose_refused(&self, item: T, reason: RefuseReason) {
        self.lose(Some(item), LossReason::Refused(reason), None);
    }

    #[inline(always)]
    pub(super) fn minds_evicted(&self) -> bool {
        minds_evicted(self.on_loss.as_ref())
    }

    #[inline]
    pub(super) fn lose_evicted(&self, victim: T) {
        if self.minds_evicted() {
            self.lose(Some(victim), LossReason::Evicted, None);
        }
    }

    pub(super) fn lose_all(
        &self,
        items: impl IntoIterator<Item = T>,
        reason: LossReason,
        error: Option<&Arc<dyn Error + Send + Sync>>,
    ) {
        for item in items {
            self.lose(Some(item), reason, error.cloned());
        }
    }

    /// Drops items, or verdicts on them, one by one: a panic of one neither spares the others nor meets a second one.
    pub(crate) fn drop_items<I>(&self, items: impl IntoIterator<Item = I>) {
        for item in items {
            self.guard(|| drop(item));
        }
    }

    /// The same, keeping the memory.
    pub(super) fn drop_in_place(&self, items: &mut Vec<T>) {
        if mem::needs_drop::<T>() {
            self.drop_items(items.drain(..));
        } else {
            items.clear();
        }
    }
}
