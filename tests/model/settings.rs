//! The settings of a case as the controller has them, at its build and later.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use backpressure::{Admission, Pressure, Retry, Sample, Strategy, Watermarks};

use super::case::{Draws, Kind, Levers};
use super::harness::Harness;
use super::slots::duration;
use super::world::{Token, World, lock};

impl Harness {
    pub(super) fn set_capacity(&mut self, to: usize) {
        let nothing = Levers {
            capacity: Some(to),
            strategy: None,
            marks: None,
            batch: None,
            linger: None,
            attempts: None,
            flush_timeout: None,
        };
        let expected = self.oracle.reconfigure(nothing);
        assert_eq!(self.main().set_capacity(to), expected, "set_capacity({to})");
    }

    pub(super) fn reconfigure(&mut self, mut levers: Levers) {
        let ends = self.main().max_capacity() + 2;
        levers.capacity = levers.capacity.map(|to| to % ends);
        levers.batch = levers.batch.map(|to| to % ends);
        let expected = self.oracle.reconfigure(levers);
        let world = Arc::clone(&self.world);
        let result = self.main().reconfigure(|mut changes| {
            if let Some(to) = levers.capacity {
                changes = changes.capacity(to);
            }
            if let Some(kind) = levers.strategy {
                changes = changes.strategy(strategy(kind, &world));
            }
            if let Some((low, high)) = levers.marks {
                changes = changes.watermarks(Watermarks::new(low, high).unwrap());
            }
            if let Some(items) = levers.batch {
                changes = changes.max_batch(items);
            }
            if let Some(linger) = levers.linger {
                changes = changes.linger(duration(linger));
            }
            if let Some(attempts) = levers.attempts {
                changes = changes.retry(retry(attempts));
            }
            if let Some(limit) = levers.flush_timeout {
                changes = changes.flush_timeout(duration(limit));
            }
            changes
        });
        assert_eq!(result, expected, "{levers:?}");
    }
}

pub fn retry(attempts: Option<u32>) -> Retry {
    let retry = Retry::exponential(Duration::from_millis(10), Duration::from_millis(40)).without_jitter();
    attempts.into_iter().fold(retry, Retry::max_attempts)
}

pub fn strategy(kind: Kind, world: &Arc<World>) -> Strategy<Token> {
    // The controller has the strategy, and the world has no more than a weak handle to it.
    let asked = Arc::clone(world);
    let ask = move |token: &Token, pressure: &Pressure| {
        lock(&asked.asked).push((token.id, pressure.state, pressure.depth, pressure.capacity));
    };
    match kind {
        Kind::Block => Strategy::Block,
        Kind::BlockFor(millis) => Strategy::BlockFor(Duration::from_millis(millis)),
        Kind::DropOldest => Strategy::DropOldest,
        Kind::DropNewest => Strategy::DropNewest,
        Kind::Custom => Strategy::custom(move |token: &Token, pressure: &Pressure| {
            ask(token, pressure);
            match token.id % 8 {
                0 | 4 => Admission::Wait,
                1 | 5 => Admission::WaitFor(Duration::from_millis(10)),
                2 | 6 => Admission::EvictOldest,
                7 => panic!("expected: a strategy that panics"),
                _ => Admission::Refuse,
            }
        }),
        Kind::CustomFrom(state) => Strategy::custom_from(state, move |token: &Token, pressure: &Pressure| {
            ask(token, pressure);
            match token.id % 16 {
                0 | 13 => Admission::Wait,
                1 => Admission::WaitFor(Duration::from_millis(10)),
                8 => Admission::WaitFor(Duration::ZERO),
                2 | 11 => Admission::EvictOldest,
                3 => Admission::Refuse,
                4 | 9 | 15 => Admission::Admit,
                5 => Admission::Sample(NonZeroU32::new(2).unwrap()),
                6 | 12 => Admission::Sample(NonZeroU32::MIN),
                10 => Admission::Sample(NonZeroU32::new(5).unwrap()),
                14 => Admission::Sample(NonZeroU32::new(3).unwrap()),
                _ => panic!("expected: a strategy that panics"),
            }
        }),
        Kind::Sample { rates: [normal, elevated, critical], by } => {
            let sample = Sample::new().normal(normal).elevated(elevated).critical(critical);
            Strategy::Sample(match by {
                Draws::Seed(seed) => sample.seed(seed),
                Draws::Nonce => sample,
                Draws::Key(seed) => sample.seed(seed).by_key(|token: &Token| {
                    assert!(token.id % 16 != 7, "expected: a key function that panics");
                    u64::from(token.id) / 3
                }),
            })
        }
    }
}
