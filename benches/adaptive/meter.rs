//! What is written down during a run, and the figures that are drawn from it.
//!
//! Figures over a window take what ended in it; latencies are those of flushes that went well.

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ok,
    Error,
    Throttled,
    TimedOut,
}

/// A flush; times in milliseconds since the start of the course.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    pub(crate) done: u32,
    pub(crate) items: u32,
    pub(crate) latency: u32,
    pub(crate) end: End,
}

/// Items that were delivered at one time and had come at one time.
#[derive(Clone, Copy, Debug)]
struct Age {
    done: u32,
    age: u32,
    items: u32,
}

/// Where everything stood at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    pub(crate) at: u32,
    pub(crate) batch: f64,
    pub(crate) slots: f64,
    pub(crate) buffered: u64,
    pub(crate) calls: u32,
    /// How often the writer's task has been polled.
    pub(crate) polls: u64,
    /// The writer says that the target cannot be met.
    pub(crate) is_unreachable: bool,
}

/// An item knows when it came, and its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) at: u32,
    pub(crate) seq: u32,
}

/// The notebook of one writer.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) flushes: Vec<Flush>,
    pub(crate) starts: Vec<u32>,
    pub(crate) trace: Vec<Trace>,
    /// Flushes under way.
    pub(crate) calls: u32,
    pub(crate) delivered: u64,
    /// Items that found no room.
    pub(crate) dropped: u64,
    /// Items that were delivered before one that had come earlier, or for the second time.
    pub(crate) disordered: u64,
    ages: Vec<Age>,
    next: u32,
}

impl Meter {
    pub(crate) fn started(&mut self, at: u32) {
        self.starts.push(at);
        self.calls += 1;
    }

    pub(crate) fn ended(&mut self, flush: Flush) {
        self.flushes.push(flush);
        self.calls -= 1;
    }

    pub(crate) fn delivered(&mut self, done: u32, items: &[Item]) {
        self.delivered += items.len() as u64;
        for group in items.chunk_by(|a, b| a.at == b.at) {
            self.ages.push(Age { done, age: done - group[0].at, items: group.len() as u32 });
        }
        for item in items {
            self.disordered += u64::from(item.seq != self.next);
            self.next = item.seq.wrapping_add(1);
        }
    }

    pub(crate) fn figures(&self, from: f64, until: f64) -> Figures {
        let window = millis(from)..millis(until);
        let ended = || self.flushes.iter().filter(|flush| window.contains(&flush.done));
        let well = || ended().filter(|flush| flush.end == End::Ok);
        let mut latencies: Vec<u32> = well().map(|flush| flush.latency).collect();
        latencies.sort_unstable();
        let ages = self.ages.iter().filter(|age| window.contains(&age.done));
        let seconds = until - from;
        Figures {
            items_per_s: well().map(|flush| u64::from(flush.items)).sum::<u64>() as f64 / seconds,
            flushes_per_s: latencies.len() as f64 / seconds,
            p95: percentile(&latencies, 0.95),
            p99: percentile(&latencies, 0.99),
            peak: latencies.last().map_or(f64::NAN, |&latency| f64::from(latency) / 1000.0),
            p99_age: weighted_percentile(ages.map(|age| (age.age, age.items)).collect(), 0.99),
            throttled: ended().filter(|flush| flush.end == End::Throttled).count() as f64 / ended().count() as f64,
        }
    }

    /// How long it takes from `from` on until three windows in a row, a `step` apart, reach 90 % of `items_per_s`, and how
    /// many flushes. Infinite if they never do before `until`.
    pub(crate) fn convergence(
        &self,
        (from, until): (f64, f64),
        items_per_s: f64,
        window: f64,
        step: f64,
    ) -> (f64, f64) {
        let well: Vec<&Flush> = self.flushes.iter().filter(|flush| flush.end == End::Ok).collect();
        let before = |at: f64| well.partition_point(|flush| flush.done < millis(at));
        let sums: Vec<u64> = std::iter::once(0)
            .chain(well.iter().scan(0, |sum, flush| {
                *sum += u64::from(flush.items);
                Some(*sum)
            }))
            .collect();
        let mut good = 0;
        for start in (0..).map(|i| from + f64::from(i) * step).take_while(|start| start + window <= until + 1e-9) {
            let items = sums[before(start + window)] - sums[before(start)];
            good = if items as f64 / window >= 0.9 * items_per_s { good + 1 } else { 0 };
            if good == 3 {
                let first = start - 2.0 * step;
                return (first - from, (before(first) - before(from)) as f64);
            }
        }
        (f64::INFINITY, f64::INFINITY)
    }

    /// From `from` on: how many flushes came before five in a row within `limit` seconds, and when the last of these was over.
    pub(crate) fn settling(&self, from: f64, limit: f64) -> (f64, f64) {
        let late = |flush: &Flush| f64::from(flush.latency) / 1000.0 > limit;
        let flushes: Vec<&Flush> = self.flushes.iter().filter(|flush| flush.done >= millis(from)).collect();
        let settled = flushes.windows(5).position(|five| !five.iter().any(|flush| late(flush)));
        settled.map_or((f64::INFINITY, f64::INFINITY), |index| {
            (index as f64, f64::from(flushes[index + 4].done) / 1000.0 - from)
        })
    }

    /// Standard deviation over mean, of what `knob` reads from the trace.
    pub(crate) fn variation(&self, (from, until): (f64, f64), knob: fn(&Trace) -> f64) -> f64 {
        let window = millis(from)..millis(until);
        let values: Vec<f64> = self.trace.iter().filter(|trace| window.contains(&trace.at)).map(knob).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        square.sqrt() / mean
    }

    /// Flushes that started between the two.
    pub(crate) fn attempts(&self, from: f64, until: f64) -> f64 {
        self.starts.iter().filter(|&&start| (millis(from)..millis(until)).contains(&start)).count() as f64
    }

    /// How long after `from` the first flush that started since has gone well.
    pub(crate) fn first_ok(&self, from: f64) -> f64 {
        let is_after = |flush: &&Flush| flush.end == End::Ok && flush.done - flush.latency >= millis(from);
        let first = self.flushes.iter().filter(is_after).map(|flush| flush.done).min();
        first.map_or(f64::INFINITY, |done| f64::from(done) / 1000.0 - from)
    }

    /// How long after `from` fewer than 2500 items are buffered.
    pub(crate) fn drained(&self, from: f64) -> f64 {
        // Not at once: the buffer is short in the first moment of trouble, too.
        let is_drained = |trace: &&Trace| trace.at > millis(from + 0.1) && trace.buffered < 2500;
        self.trace.iter().find(is_drained).map_or(f64::INFINITY, |trace| f64::from(trace.at) / 1000.0 - from)
    }

    /// When the writer first said that the target cannot be met.
    pub(crate) fn unreachable(&self) -> f64 {
        let first = self.trace.iter().find(|trace| trace.is_unreachable);
        first.map_or(f64::INFINITY, |trace| f64::from(trace.at) / 1000.0)
    }

    /// How often the writer's task was polled between the two.
    pub(crate) fn polls(&self, from: f64, until: f64) -> u64 {
        let at = |time: f64| self.trace.iter().take_while(|trace| trace.at <= millis(time)).last();
        at(until).map_or(0, |trace| trace.polls) - at(from).map_or(0, |trace| trace.polls)
    }

    /// The share of the time between the two in which a flush was under way, if there is one at a time.
    pub(crate) fn busy(&self, from: f64, until: f64) -> f64 {
        let (from, until) = (millis(from), millis(until));
        let inside = |flush: &Flush| flush.done.min(until).saturating_sub((flush.done - flush.latency).max(from));
        f64::from(self.flushes.iter().map(inside).sum::<u32>()) / f64::from(until - from)
    }

    /// The most flushes under way at a time between the two.
    pub(crate) fn most_calls(&self, from: f64, until: f64) -> f64 {
        let window = millis(from)..millis(until);
        let calls = self.trace.iter().filter(|trace| window.contains(&trace.at)).map(|trace| trace.calls);
        calls.max().map_or(f64::NAN, f64::from)
    }
}

/// Figures over a window; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) items_per_s: f64,
    pub(crate) flushes_per_s: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    /// The longest.
    pub(crate) peak: f64,
    pub(crate) p99_age: f64,
    /// The share of flushes that the sink throttled.
    pub(crate) throttled: f64,
}

pub(crate) fn millis(seconds: f64) -> u32 {
    (seconds * 1000.0).round() as u32
}

/// In seconds, of sorted milliseconds.
fn percentile(sorted: &[u32], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |&value| f64::from(value) / 1000.0)
}

/// In seconds, of (milliseconds, weight).
fn weighted_percentile(mut values: Vec<(u32, u32)>, share: f64) -> f64 {
    values.sort_unstable();
    let total: f64 = values.iter().map(|value| f64::from(value.1)).sum();
    let mut sum = 0.0;
    for &(value, weight) in &values {
        sum += f64::from(weight);
        if sum >= share * total {
            return f64::from(value) / 1000.0;
        }
    }
    f64::NAN
}
