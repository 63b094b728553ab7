//! How many calls of the sink are under way at once: as many as bring something.
//!
//! Items a second are told by Little's law (J. D. C. Little, 1961) from the calls that end while there is a backlog:
//! slots times items of a call, over its latency. Another number of slots is tried and kept if it brings at least a fifth of
//! what it could; else it is taken back, and the next try waits longer. A try with more than a few slots starts with the same
//! items in flight, in smaller batches, so that trying adds no load.

use super::Call;
use super::batch::Batch;

#[derive(Debug)]
pub(super) struct Slots {
    /// In `1 ..= most`.
    count: u64,
    most: u64,
    /// Calls up to this number began with another number of slots.
    epoch: u64,
    /// The calls of the present window: their items, their seconds, their number.
    items: f64,
    seconds: f64,
    calls: u32,
    is_up: bool,
    /// Tries in a row that paid, at most 2: each doubles the step.
    streak: u8,
    probe: Option<Probe>,
    /// Windows until the next try.
    rest: u8,
    /// The rest after the next failure, in windows.
    backoff: u8,
}

/// Another number is being tried.
#[derive(Clone, Copy, Debug)]
struct Probe {
    from: u64,
    /// Items a second before.
    base: f64,
    /// The batch before.
    size: f64,
}

/// What a window has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Open,
    /// Another number is tried.
    Probe,
    /// It brought enough: so many items a second. [`go_on`](Slots::go_on) tries the next one.
    Kept { pace: f64 },
    /// It did not.
    Reverted,
}

/// The share of the ideal gain that makes a change worth it.
const WORTH: f64 = 0.2;
/// With more slots than this, a try spreads the items in flight over them. With fewer it adds calls: who comes late to a sink that
/// others keep busy gains nothing by smaller batches, and would stay at a slot or two. (R14 of `benches/adaptive.rs`: Jain's
/// index of four such clients, and their p99 where they ask for hardly more than there is, are 0.82 and 1.07 of the target
/// without this, 0.95 and 1.05 with 2, 0.99 and 1.72 with 8.)
const FEW: u64 = 2;
/// The longest rest after failed tries, in windows.
const LONGEST_REST: u8 = 32;
/// The largest streak: the step is 25 % of the slots, doubled as often.
const LONGEST_STREAK: u8 = 2;

impl Slots {
    pub(super) const fn new() -> Self {
        Self {
            count: 1,
            most: 1,
            epoch: 0,
            items: 0.0,
            seconds: 0.0,
            calls: 0,
            is_up: true,
            streak: LONGEST_STREAK,
            probe: None,
            rest: 0,
            backoff: 1,
        }
    }

    /// The most slots there are, as of now; the batch keeps its size.
    pub(super) fn bound(&mut self, most: u64, batch: &mut Batch, seq: u64) {
        self.most = most.max(1);
        if self.count > self.most {
            self.probe = None;
            self.shift(self.most, batch, seq);
        }
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// A call went well; `has_backlog` if a full batch was there. `seq` is the last one that has begun.
    pub(super) fn succeeded(&mut self, call: &Call, has_backlog: bool, batch: &mut Batch, seq: u64) -> Verdict {
        if self.most == 1 || call.seq <= self.epoch {
            return Verdict::Open;
        }
        if !has_backlog {
            self.clear();
            return Verdict::Open;
        }
        if self.probe.is_none() && self.next() == self.count {
            self.is_up = !self.is_up;
        }
        self.items += call.items as f64;
        self.seconds += call.latency;
        self.calls = self.calls.saturating_add(1);
        if f64::from(self.calls) < self.window(batch.noise()) {
            return Verdict::Open;
        }
        let pace = self.count as f64 * self.items / self.seconds.max(f64::MIN_POSITIVE);
        self.clear();
        match self.probe {
            None if self.rest > 0 => {
                self.rest -= 1;
                Verdict::Open
            }
            None => self.probe(pace, batch, seq),
            Some(probe) => self.judge(probe, pace, batch, seq),
        }
    }

    /// Calls have failed: half the slots, to begin with.
    pub(super) fn halve(&mut self, batch: &mut Batch, seq: u64) {
        let most = self.most;
        *self = Self { count: (self.count / 2).max(1), most, epoch: seq, ..Self::new() };
        batch.forget(seq);
    }

    /// The calls that a window takes: each slot twice, and enough for its noise to hide no change that is worth it.
    fn window(&self, noise: f64) -> f64 {
        // The step may be none at all, where there is one slot or all are used.
        let worth = (WORTH * (self.ratio() - 1.0).abs()).max(0.02);
        let calls = (2.0 * noise / worth).powi(2);
        calls.min(256.0).max(2.0 * self.count as f64).max(8.0)
    }

    /// By how much the items a second would change, were the sink ideal.
    fn ratio(&self) -> f64 {
        let (now, before) = match self.probe {
            Some(probe) => (self.count, probe.from),
            None => (self.next(), self.count),
        };
        now as f64 / before as f64
    }

    /// What would be tried next.
    fn next(&self) -> u64 {
        if self.is_up {
            let step = (self.count.saturating_mul(1 << self.streak) / 4).max(1);
            self.count.saturating_add(step).min(self.most)
        } else {
            self.count.saturating_sub((self.count / 4).max(1)).max(1)
        }
    }

    fn probe(&mut self, pace: f64, batch: &mut Batch, seq: u64) -> Verdict {
        let (from, to) = (self.count, self.next());
        if to == from {
            return Verdict::Open;
        }
        self.probe = Some(Probe { from, base: pace, size: batch.size() });
        if to > from && from > FEW {
            batch.resize(batch.size() * from as f64 / to as f64, seq);
        }
        self.shift(to, batch, seq);
        Verdict::Probe
    }

    fn judge(&mut self, probe: Probe, pace: f64, batch: &mut Batch, seq: u64) -> Verdict {
        let is_worth_it = pace / probe.base >= 1.0 + WORTH * (self.ratio() - 1.0);
        self.probe = None;
        if is_worth_it {
            self.backoff = 1;
            self.streak = (self.streak + 1).min(LONGEST_STREAK);
            return Verdict::Kept { pace };
        }
        batch.resize(probe.size, seq);
        self.shift(probe.from.min(self.most), batch, seq);
        self.turn();
        Verdict::Reverted
    }

    /// After a number that was kept with so many items a second: the next one, at once if there is one.
    pub(super) fn go_on(&mut self, pace: f64, batch: &mut Batch, seq: u64) -> Verdict {
        if self.next() == self.count {
            self.turn();
            return Verdict::Open;
        }
        self.probe(pace, batch, seq)
    }

    /// The other way, after a rest.
    fn turn(&mut self) {
        self.streak = 0;
        self.is_up = !self.is_up;
        self.rest = self.backoff;
        self.backoff = (2 * self.backoff).min(LONGEST_REST);
    }

    fn shift(&mut self, count: u64, batch: &mut Batch, seq: u64) {
        self.count = count;
        batch.forget_all(seq);
        self.epoch = seq;
        self.clear();
    }

    fn clear(&mut self) {
        (self.items, self.seconds, self.calls) = (0.0, 0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of a sink of which a call of `items` takes `latency(slots, items)`, always with a backlog.
    struct Fed {
        slots: Slots,
        batch: Batch,
        seq: u64,
        told: Vec<Verdict>,
    }

    impl Fed {
        fn new(most: u64) -> Self {
            let (mut slots, mut batch) = (Slots::new(), Batch::new(100));
            batch.bound(5000, 0);
            slots.bound(most, &mut batch, 0);
            Self { slots, batch, seq: 0, told: Vec::new() }
        }

        fn call(&mut self, latency: f64, has_backlog: bool) -> Verdict {
            self.seq += 1;
            let call = Call { seq: self.seq, is_full: has_backlog, items: self.batch.items(), latency };
            let verdict = self.slots.succeeded(&call, has_backlog, &mut self.batch, self.seq);
            let next = match verdict {
                Verdict::Kept { pace } => self.slots.go_on(pace, &mut self.batch, self.seq),
                _ => Verdict::Open,
            };
            self.told.extend([verdict, next].into_iter().filter(|told| *told != Verdict::Open));
            verdict
        }

        fn feed(&mut self, calls: usize, latency: impl Fn(f64, f64) -> f64) {
            for _ in 0..calls {
                self.call(latency(self.slots.count as f64, self.batch.items() as f64), true);
                assert!((1..=self.slots.most).contains(&self.slots.count));
            }
        }
    }

    /// So many servers, of which each takes 0.1 ms for an item, behind 2 ms that cost them nothing.
    fn servers(servers: f64) -> impl Fn(f64, f64) -> f64 {
        move |slots, items| (0.002 + 1e-4 * items).max(1e-4 * items * slots / servers)
    }

    #[test]
    fn slots_that_bring_something_are_taken() {
        let mut fed = Fed::new(64);
        fed.feed(2000, servers(8.0));
        assert!((8..=26).contains(&fed.slots.count), "{}", fed.slots.count);
    }

    #[test]
    fn slots_that_bring_nothing_are_given_back() {
        let mut fed = Fed::new(64);
        fed.feed(3000, |slots, items| 1e-3 * items * slots);
        let mean = fed.slots.count;
        assert!(mean <= 2, "{mean}");
        assert!(fed.told.contains(&Verdict::Reverted));
    }

    #[test]
    fn one_that_failed_is_taken_back_with_its_batch_and_rests_longer_each_time() {
        let mut fed = Fed::new(2);
        let mut gaps = Vec::new();
        let mut since = 0;
        for _ in 0..20_000 {
            since += 1;
            let (slots, items) = (fed.slots.count as f64, fed.batch.items() as f64);
            if fed.call(1e-3 * items * slots, true) == Verdict::Reverted {
                assert_eq!((fed.slots.count, fed.batch.items()), (1, 100));
                gaps.push(since);
                since = 0;
            }
        }
        assert!(gaps.is_sorted() && gaps[7] >= 8 * gaps[0], "{gaps:?}");
        // Windows of eight calls: the rest, one to compare with, the try.
        assert_eq!(gaps.last(), Some(&(8 * (LONGEST_REST as usize + 2))), "{gaps:?}");
    }

    #[test]
    fn a_try_with_more_than_a_few_slots_adds_no_load() {
        let mut fed = Fed::new(64);
        for _ in 0..500 {
            fed.feed(1, servers(1000.0));
            let now = fed.batch.size() * fed.slots.count as f64;
            assert!(now <= 200.0 * FEW as f64 + 1e-6, "{now} items in flight");
        }
        assert!(fed.slots.count > 2 * FEW, "{}", fed.slots.count);
    }

    #[test]
    fn without_a_backlog_nothing_is_judged() {
        let mut fed = Fed::new(64);
        for i in 0..1000 {
            fed.call(0.01, i % 7 > 0);
        }
        assert_eq!(fed.told, []);
    }

    #[test]
    fn a_window_ends_also_where_there_is_no_step_to_take() {
        let mut fed = Fed::new(4);
        // All slots are used, and the noise is as large as it can be.
        fed.slots.shift(4, &mut fed.batch, 0);
        assert_eq!(fed.slots.next(), 4);
        assert!(fed.slots.window(1.0) <= 256.0);
        fed.feed(300, servers(100.0));
        assert_eq!(fed.told[0], Verdict::Probe);
        // One slot, and the way leads down.
        let mut fed = Fed::new(4);
        fed.slots.is_up = false;
        fed.feed(300, servers(100.0));
        assert_eq!(fed.told[0], Verdict::Probe);
    }

    #[test]
    fn failures_halve_them_and_a_smaller_bound_holds_at_once() {
        let mut fed = Fed::new(64);
        fed.slots.shift(12, &mut fed.batch, 0);
        fed.slots.halve(&mut fed.batch, 0);
        assert_eq!(fed.slots.count, 6);
        fed.slots.bound(2, &mut fed.batch, 0);
        assert_eq!(fed.slots.count, 2);
        fed.slots.bound(0, &mut fed.batch, 0);
        assert_eq!(fed.slots.count, 1);
    }

    #[test]
    fn any_number_of_slots_works() {
        let mut fed = Fed::new(u64::MAX);
        fed.slots.shift(u64::MAX - 1, &mut fed.batch, 0);
        assert_eq!(fed.slots.next(), u64::MAX);
        fed.slots.is_up = false;
        assert!(fed.slots.next() < u64::MAX - 1);
    }
}
