//! The pace that adapts: batch, slots and rate follow what the sink does.
//!
//! It clocks itself: the end of a call is what releases the next one, so there is no period, and an idle sink is left alone.
//! Small loops have a job each (`batch`, `ceiling`, `slots`, `throttle`, `gate`), and a change is kept only if it pays.

mod batch;
#[cfg(test)]
mod bench;
mod ceiling;
mod gate;
#[cfg(test)]
mod marks;
mod slots;
#[cfg(test)]
mod tests;
mod throttle;

use std::time::Duration;

use self::batch::Batch;
use self::ceiling::Ceiling;
use self::gate::Gate;
use self::slots::{Slots, Verdict};
use self::throttle::Throttle;
use super::{
    Again, Aim, Decision, DecisionReason, Fixed, FlushReason, Log, Outcome, Pace, Plan, Sample, Standing, Ticket, View,
};
use crate::retry::Jitter;
use crate::time::{Tick, sooner};

/// Takes what the sink can carry within the target latency. Its memory is fixed.
///
/// As long as the view has no aim it is the [`Fixed`] pace, and learns nothing.
#[derive(Debug)]
pub(crate) struct Adaptive {
    batch: Batch,
    ceiling: Ceiling,
    slots: Slots,
    throttle: Throttle,
    gate: Gate,
    /// As the last view had it.
    aim: Option<Aim>,
    /// The number of the last call that has begun, from 1.
    seq: u64,
    last_start: Option<Tick>,
    /// Mean seconds of a call, of late.
    latency: Option<f64>,
    /// The items of a call and its seconds, on average of those with a backlog behind them.
    load: Option<(f32, f32)>,
    jitter: Jitter,
}

/// A call that went well, as the loops see it.
#[derive(Clone, Copy, Debug)]
struct Call {
    seq: u64,
    is_full: bool,
    items: u64,
    /// In seconds.
    latency: f64,
}

/// The weight of the last call in what is told as an average.
const LAST_WEIGHT: f64 = 0.2;
/// After a time-out the batch is cut by how much too long the call was, within these shares.
const CUT: (f64, f64) = (0.125, 0.5);

impl Adaptive {
    /// The first batch has `initial_batch` items, or as many as the view allows.
    pub(crate) fn new(initial_batch: u64, aim: Option<Aim>, seed: u64) -> Self {
        Self {
            batch: Batch::new(initial_batch),
            ceiling: Ceiling::new(),
            slots: Slots::new(),
            throttle: Throttle::new(),
            gate: Gate::new(),
            aim,
            seq: 0,
            last_start: None,
            latency: None,
            load: None,
            jitter: Jitter(seed),
        }
    }

    /// Takes in the bounds, which may have changed.
    fn see(&mut self, view: &View, aim: Aim) {
        if self.aim.replace(aim) != Some(aim) {
            self.batch.forget_all(self.seq);
        }
        self.batch.bound(view.max_batch.min(view.capacity).min(self.ceiling.most()), self.seq);
        self.slots.bound(view.slots, &mut self.batch, self.seq);
    }

    /// Until when nothing may be sent, whatever there is; `Some(None)` is until something happens.
    fn blocked(&self, now: Tick, calls: u64) -> Option<Option<Tick>> {
        if let Some(opens) = self.gate.opens(now) {
            return Some(opens);
        }
        if calls >= self.gate.most(self.slots.count()) {
            return Some(None);
        }
        let next = self.last_start?.after(self.throttle.gap()?);
        if next.is_some_and(|next| next <= now) { None } else { Some(next) }
    }

    /// What to take, if anything; `again` is when a batch is to be sent again.
    fn take(&self, now: Tick, view: &View, aim: Aim, again: Option<Tick>) -> Plan {
        let batch = self.batch.items().min(view.fits);
        let take = |reason| Plan::Take { most: batch, reason };
        let sleep = |items, until: Option<Tick>| Plan::Sleep { items, until: sooner(until, again) };
        if view.buffered == 0 {
            return sleep(Some(1), None);
        }
        if view.is_closed {
            return take(FlushReason::Drain);
        }
        if view.buffered >= batch && !view.is_paused {
            return take(FlushReason::Full);
        }
        if view.is_flushing {
            return take(FlushReason::Flush);
        }
        if view.is_paused {
            return sleep(None, None);
        }
        if view.calls == 0 {
            if view.is_tight {
                return take(FlushReason::Room);
            }
            return match self.last_start.map_or(Some(now), |last| last.after(aim.min_interval)) {
                Some(due) if due <= now => take(FlushReason::Idle),
                until => sleep(Some(batch), until),
            };
        }
        // The busier the slots, the fuller the batch.
        let enough = self.batch.size() * view.calls as f64 / self.slots.count() as f64;
        if view.buffered as f64 >= enough {
            return take(FlushReason::Idle);
        }
        match view.oldest.unwrap_or(now).after(self.linger(aim)) {
            Some(due) if due <= now => take(FlushReason::Linger),
            until => sleep(Some((enough.ceil() as u64).clamp(1, batch)), until),
        }
    }

    /// As long as a call usually takes, within the bounds.
    fn linger(&self, aim: Aim) -> Duration {
        let usual = Duration::try_from_secs_f64(self.latency.unwrap_or(0.0)).unwrap_or(Duration::MAX);
        usual.min(aim.max_interval).max(aim.min_interval)
    }

    fn succeeded(&mut self, now: Tick, sample: &Sample, aim: Aim, log: &mut Log) {
        let Sample { ticket, items, latency, .. } = *sample;
        let call = Call { seq: ticket.seq, is_full: ticket.is_full, items, latency: latency.as_secs_f64() };
        if self.gate.succeeded() {
            self.batch.new_epoch(self.seq);
            self.note(now, DecisionReason::Recovered, log);
        }
        self.throttle.succeeded(now);
        self.ceiling.taken(items, ticket.is_full);
        let usual = self.latency.unwrap_or(call.latency);
        self.latency = Some(usual + LAST_WEIGHT * (call.latency - usual));
        let target = aim.target_latency.as_secs_f64();
        if let Some(reason) = self.batch.succeeded(&call, target, self.slots.count(), self.seq) {
            self.note(now, reason, log);
        }
        let has_backlog = call.is_full || sample.buffered as f64 >= self.batch.size();
        if has_backlog {
            self.carry(&call);
        }
        match self.slots.succeeded(&call, has_backlog, &mut self.batch, self.seq) {
            Verdict::Open => {}
            Verdict::Probe => self.note(now, DecisionReason::SlotsProbe, log),
            Verdict::Reverted => self.note(now, DecisionReason::SlotsReverted, log),
            Verdict::Kept { pace } => {
                self.note(now, DecisionReason::SlotsKept, log);
                if self.slots.go_on(pace, &mut self.batch, self.seq) == Verdict::Probe {
                    self.note(now, DecisionReason::SlotsProbe, log);
                }
            }
        }
    }

    fn carry(&mut self, call: &Call) {
        let (items, seconds) = (call.items as f32, call.latency as f32);
        let (usual_items, usual_seconds) = self.load.unwrap_or((items, seconds));
        let mean = |usual: f32, last: f32| usual + LAST_WEIGHT as f32 * (last - usual);
        self.load = Some((mean(usual_items, items), mean(usual_seconds, seconds)));
    }

    /// Items a second: slots times the items of a call over its time, by Little's law, unless the sink asked for less.
    fn drain_rate(&self) -> Option<f64> {
        let (items, seconds) = self.load?;
        let calls = self.slots.count() as f64 / f64::from(seconds).max(1e-6);
        Some(f64::from(items) * self.throttle.rate().map_or(calls, |rate| rate.min(calls)))
    }

    fn throttled(&mut self, now: Tick, asked: Duration, aim: Aim, log: &mut Log) {
        let jitter = &mut self.jitter;
        let throttled = self.throttle.throttled(now, asked, self.latency, aim.max_interval, jitter);
        self.gate.hold(now.after(throttled.pause));
        if throttled.is_too_large {
            self.batch.resize(self.batch.size() / 2.0, self.seq);
            self.gate.cut(true);
        }
        if throttled.is_first || throttled.is_too_large {
            self.note(now, DecisionReason::Throttled, log);
        }
    }

    fn failed(&mut self, now: Tick, until: Option<Tick>, sample: &Sample, aim: Aim, log: &mut Log) {
        self.gate.hold(until);
        let has_timed_out = matches!(sample.outcome, Outcome::TimedOut { .. });
        if has_timed_out {
            self.gate.cut(true);
        }
        if !self.gate.failed(sample.ticket.seq, self.seq) {
            return;
        }
        if has_timed_out {
            let share = aim.target_latency.as_secs_f64() / sample.latency.as_secs_f64().max(f64::MIN_POSITIVE);
            self.batch.resize(self.batch.size() * share.clamp(CUT.0, CUT.1), self.seq);
        }
        self.slots.halve(&mut self.batch, self.seq);
        self.note(now, if has_timed_out { DecisionReason::TimedOut } else { DecisionReason::Failed }, log);
    }

    fn too_large(&mut self, now: Tick, items: u64, log: &mut Log) {
        if self.ceiling.refused(items) {
            self.batch.bound(self.ceiling.most(), self.seq);
            self.note(now, DecisionReason::TooLarge, log);
        }
    }

    fn note(&self, at: Tick, reason: DecisionReason, log: &mut Log) {
        let (batch, slots, rate) = (self.batch.items(), self.slots.count(), self.throttle.rate());
        log.note(Decision { at, reason, batch, slots, rate });
    }
}

impl Pace for Adaptive {
    fn plan(&mut self, now: Tick, view: &View) -> Plan {
        let Some(aim) = view.aim else {
            self.aim = None;
            return Fixed.plan(now, view);
        };
        self.see(view, aim);
        let can_take = view.buffered > 0 && (!view.is_paused || view.is_flushing || view.is_closed);
        if view.again.is_none() {
            self.gate.cut(false);
            if !can_take {
                return self.take(now, view, aim, None);
            }
        }
        if let Some(until) = self.blocked(now, view.calls) {
            return Plan::Sleep { items: None, until };
        }
        match view.again {
            Some(Again { due: Some(due), .. }) if due <= now => {
                Plan::Resend { most: if self.gate.is_cutting() { self.batch.items() } else { u64::MAX } }
            }
            // One slot keeps the order: nothing newer goes first.
            Some(Again { due, .. }) if view.slots == 1 => Plan::Sleep { items: None, until: due },
            // On another slot something newer goes.
            Some(Again { due, .. }) if !can_take => {
                Plan::Sleep { items: (view.buffered == 0).then_some(1), until: due }
            }
            again => self.take(now, view, aim, again.and_then(|again| again.due)),
        }
    }

    fn started(&mut self, now: Tick, items: u64) -> Ticket {
        self.seq += 1;
        self.last_start = Some(now);
        Ticket { seq: self.seq, is_full: self.batch.is_filled_by(items) }
    }

    fn ended(&mut self, now: Tick, sample: &Sample, log: &mut Log) {
        let Some(aim) = self.aim else { return };
        match sample.outcome {
            Outcome::Ok => self.succeeded(now, sample, aim, log),
            Outcome::Throttled(asked) => self.throttled(now, asked, aim, log),
            Outcome::Failed { until } | Outcome::TimedOut { until } => self.failed(now, until, sample, aim, log),
            Outcome::TooLarge => self.too_large(now, sample.items, log),
            Outcome::Void => {}
        }
    }

    fn standing(&self) -> Standing {
        if self.aim.is_none() {
            return Standing::NONE;
        }
        Standing {
            batch: Some(self.batch.items()),
            slots: Some(self.slots.count()),
            rate: self.throttle.rate(),
            latency: self.latency.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
            drain_rate: self.drain_rate(),
            is_target_unreachable: self.batch.is_out_of_reach(),
            is_down: self.gate.is_down(),
        }
    }
}
