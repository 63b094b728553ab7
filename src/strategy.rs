//! What happens to an item that finds no room: a pure decision.

mod sample;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::sample::Draw;
pub use self::sample::Sample;
use crate::error::BuildError;
use crate::state::{Posture, Reflex, State};

/// What happens to an item that finds no room.
///
/// | strategy     | who waits                     | what is lost                 | where you see it                  |
/// |--------------|-------------------------------|------------------------------|-----------------------------------|
/// | `Block`      | the producer                  | nothing                      | `waiting`, `cancelled`            |
/// | `BlockFor`   | the producer, for so long     | nothing; the item comes back | `PushError::TimedOut`, `refused`  |
/// | `DropOldest` | nobody                        | the oldest buffered item     | `on_loss`, `evicted`              |
/// | `DropNewest` | nobody                        | nothing; the item comes back | `PushError::Full`, `refused`      |
/// | `Sample`     | nobody                        | of many items all but a share| `PushError::Sampled`, `evicted`   |
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
    /// With a [`weigher`](crate::Builder::weigher) as many of the oldest go as the item needs and no more; none, and the item
    /// is refused, if all that are buffered would not be enough.
    ///
    /// An item is refused as full, too, if all that are inside are in flight or reserved; and if the producer of the oldest one
    /// was stopped in the middle of its push, for which others wait some ten milliseconds.
    DropOldest,
    /// The incoming item is refused and goes back to the producer.
    DropNewest,
    /// From a state on only a share of the items is kept, and each of those says how many it stands for.
    Sample(Sample<T>),
    /// The decision is made for each item; [`custom`](Self::custom) makes one of a closure.
    Custom(Arc<dyn Admit<T>>),
}

/// A decision about an item: about each that finds no room, and from a state on about each.
///
/// It runs on the producer's thread, outside all locks. If it panics, the panic is caught and counted, and the item is
/// refused as full. Every `Fn(&T, &Pressure) -> Admission` is one that is asked when there is no room;
/// [`Strategy::custom_from`] has it asked earlier. Items sent by a permit are never asked about: they are admitted already.
pub trait Admit<T>: Send + Sync {
    /// Decides from the pressure and the item.
    fn admit(&self, item: &T, pressure: &Pressure) -> Admission;

    /// The state from which it is asked about every item, also while there is room. `None`, the default: only about those
    /// that find none. Read when the strategy is set.
    fn ask_from(&self) -> Option<State> {
        None
    }
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
    /// Take it if there is room, else wait for room; a push that never waits refuses instead.
    Wait,
    /// The same, for so long at most.
    WaitFor(Duration),
    /// Take it if there is room, else give it back as full.
    Admit,
    /// Take it if there is room, else displace the oldest buffered item, as [`Strategy::DropOldest`] does: that makes no room for
    /// producers that wait.
    EvictOldest,
    /// Give the item back as full, also if there is room.
    Refuse,
    /// Keep one item in so many, as [`Strategy::Sample`] does: the others go back as sampled, and this one stands for them.
    Sample(NonZeroU32),
}

/// How full the buffer is, as a [`Strategy::Custom`] sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// The published state.
    pub state: State,
    /// Reserved + buffered + in flight: at most `capacity`, unless there was more inside when that was made smaller.
    pub depth: usize,
    /// The present capacity.
    pub capacity: usize,
    /// What is reserved, buffered and in flight by weight; 0 without a [`weigher`](crate::Builder::weigher).
    pub weight: u64,
    /// The capacity by weight, with a weigher.
    pub capacity_weight: Option<u64>,
}

impl Pressure {
    /// No room was left a moment ago, in items or by weight. There may be too little for one item and enough for another.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        let is_full_by_weight = match self.capacity_weight {
            Some(capacity) => self.weight >= capacity,
            None => false,
        };
        self.depth >= self.capacity || is_full_by_weight
    }
}

/// A decision that is asked for from a state on.
struct AskedFrom<F> {
    state: State,
    decide: F,
}

impl<T, F: Fn(&T, &Pressure) -> Admission + Send + Sync> Admit<T> for AskedFrom<F> {
    fn admit(&self, item: &T, pressure: &Pressure) -> Admission {
        (self.decide)(item, pressure)
    }

    fn ask_from(&self) -> Option<State> {
        Some(self.state)
    }
}

impl<T> Strategy<T> {
    /// A decision of your own about each item that finds no room.
    #[must_use]
    pub fn custom(decide: impl Fn(&T, &Pressure) -> Admission + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(decide))
    }

    /// A decision of your own about each item while the buffer is in `state` or worse, and about each that finds no room.
    #[must_use]
    pub fn custom_from(state: State, decide: impl Fn(&T, &Pressure) -> Admission + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(AskedFrom { state, decide }))
    }

    /// What pushes may know of it without asking.
    pub(crate) fn posture(&self) -> Posture {
        match self {
            Self::Block | Self::BlockFor(_) | Self::DropNewest => Posture::REFUSE,
            Self::DropOldest => Posture { ask_from: None, reflex: Reflex::Evict },
            Self::Sample(sample) => Posture { ask_from: sample.ask_from(), reflex: Reflex::Ask },
            Self::Custom(custom) => Posture { ask_from: custom.ask_from(), reflex: Reflex::Ask },
        }
    }

    /// What of a batch limit it leaves: a sample keeps the last unit of the capacity for the overflow.
    pub(crate) fn batch_limit(&self, batch: usize, capacity: usize) -> usize {
        match self {
            Self::Sample(_) => batch.min(capacity - 1).max(1),
            _ => batch,
        }
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        match self {
            Self::Sample(sample) => sample.check(),
            _ => Ok(()),
        }
    }

    /// One item in so many is kept in each state, as far as that is a rule.
    pub(crate) fn sample_rates(&self) -> [u32; State::ALL.len()] {
        match self {
            Self::Sample(sample) => State::ALL.map(|state| sample.rate(state)),
            _ => [1; State::ALL.len()],
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
            Self::Sample(sample) => Self::Sample(sample.clone()),
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
            Self::Sample(sample) => sample.fmt(f),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_is_full_by_items_or_by_weight() {
        let is_full = |depth, weight, capacity_weight| {
            Pressure { state: State::Normal, depth, capacity: 3, weight, capacity_weight }.is_full()
        };
        assert_eq!([2, 3, 4].map(|depth| is_full(depth, 0, None)), [false, true, true]);
        assert_eq!([9, 10, 11].map(|weight| is_full(2, weight, Some(10))), [false, true, true]);
        assert!(is_full(3, 9, Some(10)) && is_full(3, 10, Some(10)));
    }
}
