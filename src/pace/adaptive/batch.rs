//! How many items a batch has: as many as the sink takes within the target, as far as that can be shown.
//!
//! The latencies of calls are evidence only if the call began after the last change (the *epoch*), so that a change is
//! judged by its own effect. Two one-sided sums (CUSUM, E. S. Page, *Continuous Inspection Schemes*, 1954) tell when the mean
//! is off the goal by more than noise explains. A step is proportional in the logarithm of the size: how latency answers
//! to size is an elasticity between 0 and 1, so it comes near the goal from one side, from microseconds to minutes.
//!
//! A shrink is kept only if it pays. Where a call costs most by itself, a smaller batch is no faster, and shrinking would
//! never end: after a halving that did not help the larger batch is measured again, and if that is no slower the target
//! cannot be met, so the batch grows to where doubling it stops to be cheap.

use std::f64::consts::LN_2;

use super::super::DecisionReason;
use super::Call;

#[derive(Debug)]
pub(super) struct Batch {
    /// In `1.0 ..= most`. Its whole part is what a batch has.
    size: f64,
    most: f32,
    /// Calls up to this number say nothing of the size.
    epoch: u64,
    /// Of the logarithms of this epoch's latencies; old ones fade in a long epoch.
    sum: f64,
    count: f64,
    /// Without fading: so many calls of this epoch were heard.
    heard: u32,
    /// Mean deviation of the logarithm of the latency.
    noise: f64,
    slow: Excess,
    fast: Excess,
    mode: Mode,
    /// Where the shrink began that is under way.
    reference: Option<Point>,
    /// The batch beyond which doubling stopped to be cheap.
    hold: Option<Point>,
}

/// A size, and the mean logarithm of the latencies that it had.
#[derive(Clone, Copy, Debug)]
struct Point {
    size: f64,
    level: f64,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Follows the target.
    Track,
    /// Back at the larger batch: was the smaller one really no faster?
    Confirm { small: Point },
    /// Doubles as long as that costs less than it brings.
    Amortise,
    /// The target is out of reach, for so many calls.
    Hold { calls: u32 },
}

/// What is above (or below) the goal, summed from where it began.
#[derive(Clone, Copy, Debug, Default)]
struct Excess {
    sum: f32,
    count: u32,
}

/// Of a step that would meet the goal if latency were proportional to the size, so much is taken.
const GAIN: f64 = 0.8;
/// What is off the goal by less than this share is on it.
const BAND: f64 = 0.10;
/// The goal lies so many deviations below the target: the target is met at about p95, not in the mean.
const MARGIN: f64 = 2.0;
/// How sure a shrink must be, in standard errors, and a growth.
const SURE_SLOW: f64 = 2.0;
const SURE_FAST: f64 = 2.5;
/// How fast the estimate of the noise follows, and where it starts.
const NOISE_WEIGHT: f64 = 0.08;
const NOISE_START: f64 = 0.15;
/// A shrink by so much, in all, has to show that it pays.
const HALVED: f64 = 1.99;
/// A doubling below this elasticity costs less than the square root of two in latency.
const CHEAP: f64 = 0.5;
/// A level that has moved by so much (in the logarithm) is another sink.
const MOVED: f64 = 0.35;
/// After so many calls at a batch that cannot meet the target, it is tried again.
const RETEST: u32 = 128;
/// A latency of zero has no logarithm.
const LEAST_LATENCY: f64 = 1e-6;

impl Batch {
    pub(super) fn new(initial: u64) -> Self {
        Self {
            size: initial.max(1) as f64,
            most: f32::MAX,
            epoch: 0,
            sum: 0.0,
            count: 0.0,
            heard: 0,
            noise: NOISE_START,
            slow: Excess::default(),
            fast: Excess::default(),
            mode: Mode::Track,
            reference: None,
            hold: None,
        }
    }

    /// The most items that a batch may have, as of now. Calls up to `seq` began under the old bound.
    pub(super) fn bound(&mut self, most: u64, seq: u64) {
        // Exact: no capacity has more than 24 bits.
        self.most = most.max(1) as f32;
        if self.size > self.most() {
            self.resize(self.most(), seq);
        }
    }

    fn most(&self) -> f64 {
        self.most.into()
    }

    /// Items, at least 1.
    pub(super) fn items(&self) -> u64 {
        self.size as u64
    }

    pub(super) fn size(&self) -> f64 {
        self.size
    }

    /// Mean deviation of the logarithm of the latency.
    pub(super) fn noise(&self) -> f64 {
        self.noise
    }

    /// Whether so many items are as good as a full batch. By whole items: of a size of 2.8 a batch has 2.
    pub(super) fn is_filled_by(&self, items: u64) -> bool {
        items as f64 >= 0.9 * self.items() as f64
    }

    /// Sets another size for a reason that is not this file's; the calls before say nothing of it.
    pub(super) fn resize(&mut self, size: f64, seq: u64) {
        self.set(size, seq);
        self.forget(seq);
    }

    /// What was measured up to call `seq` is no evidence any more.
    pub(super) fn forget(&mut self, seq: u64) {
        self.mode = Mode::Track;
        self.reference = None;
        self.new_epoch(seq);
    }

    /// The comparison with an unreachable target is void, too: the number of slots is another one.
    pub(super) fn forget_all(&mut self, seq: u64) {
        self.forget(seq);
        self.hold = None;
    }

    pub(super) fn new_epoch(&mut self, seq: u64) {
        self.epoch = seq;
        (self.sum, self.count, self.heard) = (0.0, 0.0, 0);
        (self.slow, self.fast) = (Excess::default(), Excess::default());
    }

    /// The call of this number began after the last change.
    const fn is_evidence(&self, seq: u64) -> bool {
        seq > self.epoch
    }

    /// No batch is small enough for the target.
    pub(super) const fn is_out_of_reach(&self) -> bool {
        matches!(self.mode, Mode::Amortise | Mode::Hold { .. })
    }

    /// A call went well, on so many slots; `seq` is the last one that has begun.
    pub(super) fn succeeded(&mut self, call: &Call, target: f64, slots: u64, seq: u64) -> Option<DecisionReason> {
        if !self.is_evidence(call.seq) {
            return None;
        }
        let is_telling = call.is_full || call.items as f64 >= 0.5 * self.size && call.latency > target;
        if !is_telling {
            return None;
        }
        let level = call.latency.max(LEAST_LATENCY).ln();
        self.hear(level, call.is_full, slots);
        let goal = target.max(LEAST_LATENCY).ln() - MARGIN * self.noise;
        self.slow.add(level - goal);
        self.fast.add(goal - level);
        match self.mode {
            Mode::Track => self.track(call.is_full, goal, slots, seq),
            Mode::Confirm { small } => self.confirm(small, slots, seq),
            Mode::Amortise => self.amortise(slots, seq),
            Mode::Hold { calls } => {
                self.hold(calls, slots, seq);
                None
            }
        }
    }

    fn hear(&mut self, level: f64, is_full: bool, slots: u64) {
        if is_full && self.count >= 1.0 {
            let off = (level - self.level()).abs() * (self.count / (self.count + 1.0)).sqrt();
            self.noise += NOISE_WEIGHT * (off.min(1.0) - self.noise);
        }
        if self.count >= (2.0 * slots as f64).max(32.0) {
            self.sum *= 0.5;
            self.count *= 0.5;
        }
        self.sum += level;
        self.count += 1.0;
        self.heard = self.heard.saturating_add(1);
    }

    /// Mean logarithm of the latencies of this epoch.
    fn level(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    /// A size can be compared with another: the standard error of the level is about 0.1, and each slot has had its call,
    /// as the first to come back are the fast ones.
    fn is_measured(&self, slots: u64) -> bool {
        let calls = (128.0 * self.noise * self.noise).min(256.0).max(slots as f64).max(2.0);
        f64::from(self.heard) >= calls
    }

    fn track(&mut self, is_full: bool, goal: f64, slots: u64, seq: u64) -> Option<DecisionReason> {
        let is_slow = self.slow.is_sure(SURE_SLOW, self.noise);
        if self.fast.is_sure(SURE_FAST, self.noise) && !is_slow {
            return self.grow(is_full, slots, seq);
        }
        if is_slow {
            return self.shrink(goal, slots, seq);
        }
        if self.count >= 4.0 && (self.level() - goal).abs() < BAND {
            self.reference = None;
        }
        None
    }

    fn grow(&mut self, is_full: bool, slots: u64, seq: u64) -> Option<DecisionReason> {
        // A whole round of all that were heard, however much of it has faded.
        if !is_full || u64::from(self.heard) < slots {
            return None;
        }
        self.reference = None;
        if self.size >= self.most() {
            return None;
        }
        let step = if self.fast.mean() >= LN_2 { LN_2 } else { self.fast.step(self.noise) };
        self.set(self.size * step.exp(), seq);
        Some(DecisionReason::Grow)
    }

    fn shrink(&mut self, goal: f64, slots: u64, seq: u64) -> Option<DecisionReason> {
        match self.reference {
            Some(start) if start.size >= HALVED * self.size => {
                if !self.is_measured(slots) {
                    return None;
                }
                let here = Point { size: self.size, level: self.level() };
                if elasticity(here, start) < CHEAP {
                    self.mode = Mode::Confirm { small: here };
                    self.set(start.size, seq);
                    return Some(DecisionReason::ConfirmShrink);
                }
                self.reference = Some(here);
            }
            Some(_) => {}
            // From where the excess began: what came before, of this epoch too, was another sink.
            None => self.reference = Some(Point { size: self.size, level: goal + self.slow.mean() }),
        }
        if self.size <= 1.0 {
            return None;
        }
        let step = self.slow.step(self.noise).min(3.0 * LN_2);
        self.set(self.size * (-step).exp(), seq);
        Some(DecisionReason::Shrink)
    }

    fn confirm(&mut self, small: Point, slots: u64, seq: u64) -> Option<DecisionReason> {
        if !self.is_measured(slots) {
            return None;
        }
        let here = Point { size: self.size, level: self.level() };
        if elasticity(small, here) >= CHEAP {
            self.mode = Mode::Track;
            self.reference = Some(here);
            self.set(small.size, seq);
            return Some(DecisionReason::ShrinkPaid);
        }
        if let Some(hold) = &mut self.hold {
            let is_known = (here.size / hold.size).ln().abs() < 0.4 && (here.level - hold.level).abs() < MOVED;
            if is_known {
                hold.level = here.level;
                self.mode = Mode::Hold { calls: 0 };
                return Some(DecisionReason::HoldUnreachable);
            }
        }
        self.hold = Some(here);
        self.mode = Mode::Amortise;
        self.set(2.0 * self.size, seq);
        Some(DecisionReason::Amortise)
    }

    fn amortise(&mut self, slots: u64, seq: u64) -> Option<DecisionReason> {
        if !self.is_measured(slots) {
            return None;
        }
        let here = Point { size: self.size, level: self.level() };
        let before = self.hold.unwrap_or(here);
        let is_cheap = here.size > 1.01 * before.size && elasticity(before, here) < CHEAP;
        if is_cheap {
            self.hold = Some(here);
            if self.size < self.most() {
                self.set(2.0 * self.size, seq);
                return Some(DecisionReason::Amortise);
            }
        } else {
            self.set(before.size, seq);
        }
        self.mode = Mode::Hold { calls: 0 };
        Some(DecisionReason::HoldUnreachable)
    }

    /// Sits at the batch that amortises, until the sink is another one or it is time to look again.
    fn hold(&mut self, calls: u32, slots: u64, seq: u64) {
        let calls = calls.saturating_add(1);
        self.mode = Mode::Hold { calls };
        let is_fast = self.fast.is_sure(SURE_FAST, self.noise);
        let level = self.level();
        let has_moved = self.is_measured(slots) && self.hold.is_none_or(|hold| (level - hold.level).abs() > MOVED);
        if is_fast {
            // The epoch goes on: its evidence is for the batch to grow by.
            (self.mode, self.reference, self.hold) = (Mode::Track, None, None);
        } else if has_moved {
            self.forget_all(seq);
        } else if calls > RETEST {
            self.forget(seq);
        }
    }

    fn set(&mut self, size: f64, seq: u64) {
        self.size = size.clamp(1.0, self.most());
        self.new_epoch(seq);
    }
}

impl Excess {
    fn add(&mut self, excess: f64) {
        self.sum += (excess - BAND / 2.0) as f32;
        self.count = self.count.saturating_add(1);
        if self.sum <= 0.0 {
            *self = Self::default();
        }
    }

    /// Since it began; 0 if it has not.
    fn mean(self) -> f64 {
        if self.count == 0 { 0.0 } else { f64::from(self.sum) / f64::from(self.count) + BAND / 2.0 }
    }

    /// It is larger than the band and than noise explains.
    fn is_sure(self, errors: f64, noise: f64) -> bool {
        self.mean() > BAND && self.mean() * f64::from(self.count).sqrt() >= errors * noise
    }

    /// The step that it calls for, shorter by its standard error, at most by half.
    fn step(self, noise: f64) -> f64 {
        let error = 1.25 * noise / f64::from(self.count.max(1)).sqrt();
        GAIN * (self.mean() - error).max(self.mean() / 2.0)
    }
}

/// By how much the latency follows the size, from 0 (not at all) to 1 (in proportion).
fn elasticity(small: Point, large: Point) -> f64 {
    let sizes = (large.size / small.size).ln();
    // Two sizes that are one: nothing shows that the smaller did not pay.
    if sizes.abs() < 0.01 { 1.0 } else { (large.level - small.level) / sizes }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: f64 = 0.1;

    /// A batch that is fed by one sink, on so many slots.
    struct Fed {
        batch: Batch,
        slots: u64,
        seq: u64,
        told: Vec<DecisionReason>,
    }

    impl Fed {
        fn new(initial: u64, slots: u64) -> Self {
            let mut batch = Batch::new(initial);
            batch.bound(5000, 0);
            Self { batch, slots, seq: 0, told: Vec::new() }
        }

        /// So many calls of full batches, of which each takes `latency` of its items, in seconds, without noise.
        fn feed(&mut self, calls: usize, latency: impl Fn(f64) -> f64) -> &mut Self {
            for _ in 0..calls {
                self.seq += 1;
                let items = self.batch.items();
                let latency = latency(items as f64);
                let call = Call { seq: self.seq, is_full: self.batch.is_filled_by(items), items, latency };
                self.told.extend(self.batch.succeeded(&call, TARGET, self.slots, self.seq));
            }
            self
        }
    }

    #[test]
    fn it_comes_to_the_target_from_either_side_and_stays() {
        for initial in [1, 100, 5000] {
            for item in [30e-6, 1e-3, 0.03] {
                let mut fed = Fed::new(initial, 1);
                let latency = |items: f64| item * items;
                fed.feed(400, latency);
                // By a whole item it may swing, where that is more than the band.
                let settled = latency(fed.batch.items() as f64);
                assert!((0.6 * TARGET..TARGET + item).contains(&settled), "{initial} {item}: {settled}");
                let items = fed.batch.items() as f64;
                fed.feed(400, latency);
                let moved = (fed.batch.items() as f64 - items).abs();
                assert!(moved <= (0.05 * items).max(1.0), "{initial} {item}: {items} moves by {moved}");
            }
        }
    }

    #[test]
    fn a_batch_that_is_not_full_says_nothing_unless_it_was_too_slow() {
        let mut fed = Fed::new(100, 1);
        let call = |items, latency, seq| Call { seq, is_full: false, items, latency };
        for seq in 1..=100 {
            assert_eq!(fed.batch.succeeded(&call(80, 0.001, seq), TARGET, 1, seq), None);
        }
        assert_eq!(fed.batch.items(), 100);
        let told = (101..=110).find_map(|seq| fed.batch.succeeded(&call(80, 0.5, seq), TARGET, 1, seq));
        assert_eq!(told, Some(DecisionReason::Shrink));
    }

    #[test]
    fn only_calls_that_began_after_the_last_change_are_evidence() {
        let mut fed = Fed::new(100, 1);
        fed.batch.new_epoch(50);
        fed.feed(50, |_| 0.001);
        assert_eq!(fed.told, []);
        fed.feed(5, |_| 0.001);
        assert_eq!(fed.told[0], DecisionReason::Grow);
    }

    #[test]
    fn growth_waits_for_a_whole_round() {
        let mut fed = Fed::new(100, 12);
        fed.feed(11, |_| 0.001);
        assert_eq!(fed.told, []);
        fed.feed(1, |_| 0.001);
        assert_eq!(fed.told, [DecisionReason::Grow]);
    }

    #[test]
    fn a_batch_is_full_by_whole_items() {
        let mut fed = Fed::new(2, 1);
        fed.batch.resize(2.8, 0);
        assert_eq!(fed.batch.items(), 2);
        assert!(fed.batch.is_filled_by(2) && !fed.batch.is_filled_by(1));
        fed.feed(20, |_| 0.001);
        assert!(fed.batch.items() > 2, "stuck at {}", fed.batch.size());
    }

    #[test]
    fn evidence_fades_but_a_round_is_heard_whole() {
        let mut fed = Fed::new(100, 64);
        fed.feed(64, |_| 0.05);
        assert_eq!(fed.told, [DecisionReason::Grow]);
        // However long an epoch was near the goal, growth comes within a few rounds.
        let mut fed = Fed::new(100, 64);
        for i in 0..1000 {
            fed.feed(1, |_| 0.074 * if i % 2 == 0 { 1.16 } else { 1.0 / 1.16 });
        }
        assert_eq!(fed.told, []);
        fed.feed(64, |_| 0.04);
        assert_eq!(fed.told, [DecisionReason::Grow]);
    }

    #[test]
    fn what_came_before_a_step_does_not_dilute_its_reference() {
        let mut fed = Fed::new(1500, 1);
        fed.feed(200, |items| 0.074 * items / 1500.0);
        fed.told.clear();
        let before = fed.batch.size();
        for _ in 0..100 {
            fed.feed(1, |items| 4.0 * 0.074 * items / 1500.0);
            assert!(fed.batch.size() <= before, "it grows in a slow-down, to {}", fed.batch.size());
        }
        assert!(!fed.told.contains(&DecisionReason::ConfirmShrink), "{:?}", fed.told);
        assert!((300..507).contains(&fed.batch.items()), "{}", fed.batch.size());
    }

    #[test]
    fn a_target_out_of_reach_ends_at_a_batch_that_amortises() {
        let mut fed = Fed::new(100, 1);
        fed.feed(100, |items| 0.2 + 1e-4 * items);
        assert!(fed.told.contains(&DecisionReason::ConfirmShrink));
        assert!(fed.told.contains(&DecisionReason::HoldUnreachable));
        assert!((800..=3200).contains(&fed.batch.items()), "{}", fed.batch.size());
        // It looks again from time to time, and finds the same.
        fed.told.clear();
        fed.feed(2000, |items| 0.2 + 1e-4 * items);
        let found = |reason| fed.told.iter().filter(|told| **told == reason).count();
        assert!((5..=16).contains(&found(DecisionReason::HoldUnreachable)), "{:?}", fed.told);
        assert_eq!(found(DecisionReason::Amortise), 0);
        // Once the sink can, the target holds again.
        fed.feed(400, |items| 1e-3 * items);
        assert!((65..100).contains(&fed.batch.items()), "{}", fed.batch.size());
    }

    #[test]
    fn a_shrink_that_paid_after_all_is_taken_again() {
        let mut fed = Fed::new(1000, 1);
        // A sink that becomes slower while the batch shrinks hides that shrinking pays.
        while !fed.told.contains(&DecisionReason::ConfirmShrink) && fed.seq < 500 {
            fed.feed(1, |_| 0.3);
        }
        assert!(fed.told.contains(&DecisionReason::ConfirmShrink), "{:?}", fed.told);
        fed.feed(40, |items| 1.2e-3 * items);
        assert!(fed.told.contains(&DecisionReason::ShrinkPaid), "{:?}", fed.told);
        assert!(!fed.told.contains(&DecisionReason::Amortise), "{:?}", fed.told);
    }

    #[test]
    fn a_bound_that_moves_in_the_middle_of_a_comparison_ends_it() {
        for most in [1, 99, 1000, 4999] {
            let mut fed = Fed::new(5000, 1);
            for _ in 0..300 {
                fed.feed(1, |items| 0.2 + 1e-4 * items);
                fed.batch.bound(if fed.seq % 7 == 0 { most } else { 5000 }, fed.seq);
                assert!(fed.batch.size().is_finite() && fed.batch.size() >= 1.0);
            }
        }
    }
}
