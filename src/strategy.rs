//! What happens to an item that finds no room: a pure decision.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::state::State;

/// What happens to an item that finds no room.
///
/// | strategy     | who waits                     | what is lost                 | where you see it                  |
/// |--------------|-------------------------------|------------------------------|-----------------------------------|
/// | `Block`      | the producer                  | nothing                      | `waiting`, `cancelled`            |
/// | `BlockFor`   | the producer, for so long     | nothing; the item comes back | `PushError::TimedOut`, `refused`  |
/// | `DropOldest` | nobody                        | the oldest buffered item     | `on_loss`, `evicted`              |
/// | `DropNewest` | nobody                        | nothing; the item comes back | `PushError::Full`, `refused`      |
/// | `Custom`     | as it decides, item for item  | as it decides                | as above                          |
#[derive(Default)]
#[non_exhaustive]
pub enum Strategy<T> {
    /// The producer waits for room. The default: losing is a decision that someone writes down.
    #[default]
    Block,
    /// The producer waits for room for so long at most; `Duration::MAX` means for ever, zero not at all.
    BlockFor(Duration),
    /// The oldest buffered item is displaced, one for one, and goes to `on_loss`. Whoever waits in `reserve` goes on waiting.
    DropOldest,
    /// The incoming item is refused and goes back to the producer.
    DropNewest,
    /// The decision is made for each item.
    Custom(Arc<dyn Admit<T>>),
}

/// A decision about an item that finds no room.
///
/// It runs on the producer's thread, outside all locks. If it panics, the panic is caught and counted, and the item is
/// refused as full.
pub trait Admit<T>: Send + Sync {
    /// Decides from the pressure and the item.
    fn admit(&self, item: &T, pressure: &Pressure) -> Admission;
}

impl<T, F: Fn(&T, &Pressure) -> Admission + Send + Sync> Admit<T> for F {
    fn admit(&self, item: &T, pressure: &Pressure) -> Admission {
        self(item, pressure)
    }
}

/// A decision about one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// Wait for room; a push that never waits refuses instead.
    Wait,
    /// Wait for room for so long at most.
    WaitFor(Duration),
    /// Displace the oldest buffered item, one for one: that makes no room for producers that wait.
    EvictOldest,
    /// Give the item back.
    Refuse,
}

/// How full the buffer is, as a [`Strategy::Custom`] sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// The published state.
    pub state: State,
    /// Reserved + buffered + in flight, in `0 ..= capacity`.
    pub depth: usize,
    /// The most that `depth` may be.
    pub capacity: usize,
}

impl<T> Strategy<T> {
    /// The decision; `pressure` is asked only when somebody wants to know it.
    pub(crate) fn admit(&self, item: &T, pressure: impl FnOnce() -> Pressure) -> Admission {
        match self {
            Self::Block => Admission::Wait,
            Self::BlockFor(limit) => Admission::WaitFor(*limit),
            Self::DropOldest => Admission::EvictOldest,
            Self::DropNewest => Admission::Refuse,
            Self::Custom(custom) => custom.admit(item, &pressure()),
        }
    }
}

impl<T> Clone for Strategy<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Block => Self::Block,
            Self::BlockFor(limit) => Self::BlockFor(*limit),
            Self::DropOldest => Self::DropOldest,
            Self::DropNewest => Self::DropNewest,
            Self::Custom(custom) => Self::Custom(Arc::clone(custom)),
        }
    }
}

impl<T> fmt::Debug for Strategy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("Block"),
            Self::BlockFor(limit) => f.debug_tuple("BlockFor").field(limit).finish(),
            Self::DropOldest => f.write_str("DropOldest"),
            Self::DropNewest => f.write_str("DropNewest"),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}
