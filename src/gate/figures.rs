//! What a section sees of its instant.

use super::Locked;
use crate::sync::{Fault, fault};

/// The figures of one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// The position behind the youngest item: the total of the ring's tail.
    pub(crate) end: u64,
    pub(crate) buffered: u64,
    pub(crate) in_flight: u64,
    pub(crate) reserved: u64,
    pub(crate) is_closed: bool,
    pub(crate) is_full: bool,
}

impl Figures {
    pub(crate) fn depth(&self) -> u64 {
        self.reserved + self.buffered + self.in_flight
    }

    /// The intake is shut and nothing is reserved, buffered or in flight.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_closed && self.depth() == 0
    }

    /// The position of the youngest buffered item.
    pub(super) fn youngest(&self) -> Option<u64> {
        (self.buffered > 0).then(|| self.end - 1)
    }
}

impl<T, R> Locked<'_, T, R> {
    /// The exact figures of this instant.
    pub(crate) fn figures(&self) -> Figures {
        let early = fault(Fault::FiguresByTwoLoads).then(|| self.head.tail());
        let word = self.head.tail_exact();
        let buffered = self.head.buffered(early.unwrap_or(word));
        Figures {
            end: self.head.taken_total() + buffered,
            buffered,
            in_flight: self.head.in_flight(),
            reserved: word.reserved(),
            is_closed: word.is_closed(),
            is_full: !self.head.has_spare(word) || self.is_brimful(),
        }
    }
}
