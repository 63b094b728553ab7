//! Keeps one item in so many, and says how many each kept one stands for.

use std::fmt;
use std::sync::Arc;

use crate::error::BuildError;
use crate::splitmix::mix;
use crate::state::State;

/// Keeps one item in `k`, by the state of the buffer, and gives each item that it keeps the weight `k`.
///
/// | state               | default                   |
/// |---------------------|---------------------------|
/// | Normal              | 1 in 1: all are kept      |
/// | Elevated            | 1 in 2                    |
/// | Critical, Blocked   | 1 in 10                   |
///
/// The draws are independent: a hash of a running number, so nothing periodic in the input aliases with them, and no draw
/// depends on the ones before (Bernoulli sampling; the weights are Horvitz and Thompson's, 1952). The sum of the weights
/// estimates how many items were offered, see [`Batch::weight`](crate::Batch::weight).
///
/// When there is no room for an item that was kept, it shares the place of the youngest buffered one: by a draw in proportion
/// to their weights one of the two goes, and the other stands for both. So the estimate stays right however large the
/// overload is; but one item then stands for all the overflow between two batches, so large batches make it coarse. For that
/// a batch leaves one unit of the capacity alone: it has at most `capacity - 1` items, and 1 if the capacity is 1. When all
/// the same nothing is buffered, since all places are in flight or reserved, the item is refused as full: with several calls
/// of the sink at once keep all their batches together below the capacity. With a [`weigher`](crate::Builder::weigher), an item
/// that is too heavy for the place always leaves it to the youngest one.
///
/// An item that is left out is refused as [`Sampled`](crate::PushError::Sampled); a kept one that goes later is evicted.
pub struct Sample<T> {
    normal: u32,
    elevated: u32,
    critical: u32,
    seed: Option<u64>,
    key: Option<Key<T>>,
}

type Key<T> = Arc<dyn Fn(&T) -> u64 + Send + Sync>;

impl<T> Sample<T> {
    /// The default rates: all, 1 in 2, 1 in 10.
    #[must_use]
    pub const fn new() -> Self {
        Self { normal: 1, elevated: 2, critical: 10, seed: None, key: None }
    }

    /// Keeps 1 in `k` in the state Normal; `k` at least 1. Default: 1.
    #[must_use]
    pub const fn normal(mut self, k: u32) -> Self {
        self.normal = k;
        self
    }

    /// Keeps 1 in `k` in the state Elevated; `k` at least 1. Default: 2.
    #[must_use]
    pub const fn elevated(mut self, k: u32) -> Self {
        self.elevated = k;
        self
    }

    /// Keeps 1 in `k` in the states Critical and Blocked; `k` at least 1. Default: 10.
    #[must_use]
    pub const fn critical(mut self, k: u32) -> Self {
        self.critical = k;
        self
    }

    /// Makes the draws repeatable. Default: different for each controller.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Draws by a key, such as the id of a trace: the items of one key are all kept or all left out, and a key that is kept
    /// at 1 in 10 is kept at 1 in 2, too (consistent probability sampling, as OpenTelemetry has it). The key need not be a
    /// hash. With the same seed several processes keep the same keys.
    ///
    /// When there is no room, an item whose key is kept is refused as full, since sharing a place would break up its key.
    ///
    /// The function runs on the producer's thread, outside all locks. If it panics, the panic is caught and counted, and the
    /// item is refused as full.
    #[must_use]
    pub fn by_key(mut self, key: impl Fn(&T) -> u64 + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.normal == 0 || self.elevated == 0 || self.critical == 0 {
            return Err(BuildError::SampleRateZero);
        }
        Ok(())
    }

    /// One item in so many is kept in this state.
    pub(crate) const fn rate(&self, state: State) -> u32 {
        match state {
            State::Normal => self.normal,
            State::Elevated => self.elevated,
            State::Critical | State::Blocked => self.critical,
            // Nothing comes in.
            State::Draining => 1,
        }
    }

    /// The first state in which not all are kept.
    pub(crate) fn ask_from(&self) -> Option<State> {
        State::ALL.into_iter().find(|state| self.rate(*state) > 1)
    }

    pub(crate) const fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The draw for an item at this rate. Without a key it is made by `ticket`; without a seed of its own it takes `seed`.
    pub(crate) fn draw(&self, item: &T, rate: u32, seed: u64, ticket: impl FnOnce() -> u64) -> Draw {
        let number = self.key.as_ref().map_or_else(ticket, |key| key(item));
        Draw::new(self.seed.unwrap_or(seed), number, rate)
    }
}

impl<T> Default for Sample<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Sample<T> {
    fn clone(&self) -> Self {
        Self { key: self.key.as_ref().map(Arc::clone), ..*self }
    }
}

impl<T> fmt::Debug for Sample<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample")
            .field("normal", &self.normal)
            .field("elevated", &self.elevated)
            .field("critical", &self.critical)
            .field("seed", &self.seed)
            .field("by_key", &self.key.is_some())
            .finish()
    }
}

/// One draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    hash: u64,
    rate: u32,
}

impl Draw {
    pub(crate) const fn new(seed: u64, number: u64, rate: u32) -> Self {
        // The seed is mixed first: seeds that differ little must not give draws that are shifted.
        Self { hash: mix(mix(seed) ^ number), rate }
    }

    /// Nested over rates: what is kept at a high one is kept at every lower one.
    pub(crate) fn is_kept(self) -> bool {
        self.hash <= u64::MAX / u64::from(self.rate.max(1))
    }

    /// What an item that is kept stands for.
    pub(crate) fn weight(self) -> u64 {
        u64::from(self.rate.max(1))
    }

    /// Whether of two that share a place the new one stays: with the probability `new / (old + new)`, whatever was drawn
    /// before.
    pub(crate) fn prefers_new(self, old: u64, new: u64) -> bool {
        let total = u128::from(old) + u128::from(new);
        (u128::from(mix(self.hash)) * total) >> 64 < u128::from(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_k_within_three_sigma() {
        for rate in [1, 2, 3, 10, 100] {
            for seed in 0..5 {
                let n = 100_000;
                let kept = (0..n).filter(|number| Draw::new(seed, *number, rate).is_kept()).count() as f64;
                let p = 1.0 / f64::from(rate);
                let sigma = (n as f64 * p * (1.0 - p)).sqrt();
                assert!((kept - n as f64 * p).abs() <= 3.5 * sigma, "1 in {rate}, seed {seed}: {kept}");
            }
        }
    }

    #[test]
    fn nested_over_rates() {
        for number in 0..10_000 {
            let kept = [2, 3, 10, 1000].map(|rate| Draw::new(7, number, rate).is_kept());
            assert!(kept.windows(2).all(|pair| pair[0] || !pair[1]), "{number}: {kept:?}");
        }
    }

    #[test]
    fn the_second_draw_does_not_know_the_first() {
        let kept = (0..200_000).map(|number| Draw::new(3, number, 10)).filter(|draw| draw.is_kept());
        let (mut all, mut new) = (0.0, 0.0);
        for draw in kept {
            all += 1.0;
            new += f64::from(u8::from(draw.prefers_new(30, 10)));
        }
        let share: f64 = new / all;
        assert!((share - 0.25).abs() < 0.01, "{share}");
        assert!(Draw::new(0, 0, 1).prefers_new(0, 1) && !Draw::new(0, 0, 1).prefers_new(1, 0));
    }

    #[test]
    fn asked_from_the_first_state_that_leaves_something_out() {
        let from = |normal, elevated, critical| {
            Sample::<()>::new().normal(normal).elevated(elevated).critical(critical).ask_from()
        };
        assert_eq!(Sample::<()>::new().ask_from(), Some(State::Elevated));
        assert_eq!(from(2, 2, 2), Some(State::Normal));
        assert_eq!(from(1, 1, 2), Some(State::Critical));
        assert_eq!(from(1, 1, 1), None);
    }
}
