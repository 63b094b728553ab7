//! Batches that a consumer pulls: the end of an attempt is the drop of its guard, wherever that happens.

use std::mem;

use super::{Core, End, Left};
use crate::flight::{FlightKey, Piece, Spare};
use crate::retry::Tries;
use crate::time::Tick;

/// A batch that came home with something left in it, and waits for the consumer to look.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) piece: Piece,
    pub(crate) at: Tick,
    pub(crate) tries: Tries,
}

impl<T> Core<T> {
    /// Settles a batch that has come home: nobody else will.
    pub(super) fn judge_pulled(&self, key: FlightKey, is_done: bool, tries: Tries) {
        let end = if is_done { End::Ok } else { End::Retry };
        let at = self.now();
        if let Left::Some(piece) = self.judge(key, end, at, None, None, &mut Spare::new(0)) {
            let mut locked = self.gate.lock();
            let hangar = &mut locked.desk().rest;
            if hangar.flights.get_mut(key).is_some() {
                hangar.returned.push(Returned { piece, at, tries });
                locked.ring_bell();
            }
            self.apply(locked.leave());
        }
        self.end_if_drained();
    }

    /// The batches that came home with something left since the last call.
    pub(crate) fn take_returned(&self) -> Vec<Returned> {
        mem::take(&mut self.gate.lock().desk().rest.returned)
    }
}
