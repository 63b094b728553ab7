//! The accounts by weight, with a weigher.

use super::Outcome;
use crate::error::AuditError;

/// What became of accepted items, by weight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    by_outcome: [u128; Outcome::COUNT],
}

impl Sums {
    pub(crate) fn add(&mut self, outcome: Outcome, size: u64) {
        self.by_outcome[outcome as usize] += u128::from(size);
    }

    pub(crate) const fn get(&self, outcome: Outcome) -> u128 {
        self.by_outcome[outcome as usize]
    }
}

/// The figures by weight, of a controller with a [`weigher`](crate::Builder::weigher). Weights of single items are at most
/// 2^60; the totals have 128 bits, so that they do not wrap.
///
/// A push takes its weight in before its place. So `depth`, `buffered` and `accepted` hold also the weight of pushes that are
/// on their way at this instant, and one of those may still be told that there is no place. An item whose place was paid for in advance (see
/// [`weigher`](crate::Builder::weigher)) counts by what was paid from the claim to the moment in which it is written.
///
/// ```text
/// accepted = delivered + failed + evicted + expired + purged + abandoned + buffered + in_flight
/// depth    = reserved + buffered + in_flight <= capacity
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weights {
    /// The most that may be inside.
    pub capacity: u64,
    /// The heaviest item that is not refused.
    pub max_item: u64,
    /// The most of a batch, if that is bounded by weight.
    pub max_batch: Option<u64>,
    /// Reserved + buffered + in flight.
    pub depth: u64,
    /// What permits hold.
    pub reserved: u64,
    /// In the buffer.
    pub buffered: u64,
    /// Taken and not settled, batches that wait for a retry included.
    pub in_flight: u64,
    /// Taken in by the buffer, since the build.
    pub accepted: u128,
    /// Delivered to the sink.
    pub delivered: u128,
    /// The final verdict of the sink or of the retry policy.
    pub failed: u128,
    /// Displaced by newer items.
    pub evicted: u128,
    /// Too old.
    pub expired: u128,
    /// Removed by `purge`.
    pub purged: u128,
    /// Left behind at drain's deadline, or when the flusher died.
    pub abandoned: u128,
}

impl Weights {
    pub(super) fn audit(&self) -> Result<(), AuditError> {
        let lost = self.failed + self.evicted + self.expired + self.purged + self.abandoned;
        let inside = u128::from(self.buffered) + u128::from(self.in_flight);
        let check = |identity, left: u128, right: u128| {
            if left == right { Ok(()) } else { Err(AuditError { identity, left, right }) }
        };
        check("weight: accepted = settled + buffered + in_flight", self.accepted, self.delivered + lost + inside)?;
        let depth = u128::from(self.depth);
        check("weight: depth = reserved + buffered + in_flight", depth, u128::from(self.reserved) + inside)?;
        check("weight: depth <= capacity", depth, depth.min(self.capacity.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_sees_each_identity_broken() {
        let right = Weights {
            capacity: 20,
            depth: 6,
            reserved: 1,
            buffered: 2,
            in_flight: 3,
            accepted: 36,
            delivered: 1,
            failed: 2,
            evicted: 4,
            expired: 6,
            purged: 8,
            abandoned: 10,
            ..Weights::default()
        };
        assert_eq!(right.audit(), Ok(()));
        let breaks: [fn(&mut Weights); 5] =
            [|w| w.accepted += 1, |w| w.purged += 1, |w| w.depth += 1, |w| w.reserved += 1, |w| w.capacity = 5];
        for (i, wrong) in breaks.into_iter().enumerate() {
            let mut weights = right;
            wrong(&mut weights);
            assert!(weights.audit().is_err(), "break {i}");
        }
    }

    #[test]
    fn sums_are_kept_apart_and_do_not_wrap() {
        let mut sums = Sums::default();
        for _ in 0..3 {
            sums.add(Outcome::Delivered, u64::MAX);
        }
        sums.add(Outcome::Evicted, 7);
        sums.add(Outcome::Abandoned, 9);
        assert_eq!(sums.get(Outcome::Delivered), 3 * u128::from(u64::MAX));
        let by_outcome = [Outcome::Failed, Outcome::Evicted, Outcome::Purged, Outcome::Abandoned];
        assert_eq!(by_outcome.map(|outcome| sums.get(outcome)), [0, 7, 0, 9]);
    }
}
