//! A small simulation of events, to judge the pace by: producers, a bounded buffer, a sink of some servers and the retry
//! schedule. No runtime and no clock; the same in each run of the same seed.
//!
//! A call of `n` items takes `a`, then waits for one of `k` servers, in order, then takes `b * n` there, both times with noise.
//! Timers go by whole milliseconds, as tokio's do. A sleeping flusher is asked again only when what it sleeps for has come.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use super::super::{Again, Aim, Decision, Log, Outcome, Pace, Plan, Sample, Ticket, View};
use super::Adaptive;
use crate::retry::{Due, Jitter, Retry, Tries};
use crate::splitmix::mix;
use crate::time::Tick;

/// The sink, and what is asked of it. Times in seconds.
#[derive(Clone)]
pub(super) struct Setup {
    /// Of a call by itself.
    pub(super) a: f64,
    /// Of an item.
    pub(super) b: f64,
    pub(super) servers: usize,
    /// Contention and coherence of Gunther's law, in place of servers.
    pub(super) usl: Option<(f64, f64)>,
    pub(super) noise: Noise,
    /// From then on a call takes so many times as long.
    pub(super) slow: Vec<(f64, f64)>,
    /// All calls that begin within fail after 10 ms.
    pub(super) outage: Option<(f64, f64)>,
    /// Calls a second, and a burst.
    pub(super) call_limit: Option<(f64, f64)>,
    /// Items a second, and a burst.
    pub(super) item_limit: Option<(f64, f64)>,
    pub(super) timeout: Option<f64>,
    /// Items a second, by time.
    pub(super) arrivals: fn(f64) -> f64,
    pub(super) target: f64,
    pub(super) slots: u64,
    pub(super) max_batch: u64,
    pub(super) seconds: f64,
}

#[derive(Clone, Copy)]
pub(super) enum Noise {
    /// 1, more or less this share.
    Uniform(f64),
    /// Log-normal with this sigma and mean 1.
    Log(f64),
}

/// One call that has ended.
pub(super) struct Ended {
    pub(super) at: f64,
    pub(super) items: u64,
    pub(super) latency: f64,
    pub(super) is_ok: bool,
}

/// Where the pace stood.
pub(super) struct Trace {
    pub(super) at: f64,
    pub(super) batch: f64,
    pub(super) slots: f64,
    pub(super) backlog: u64,
    pub(super) calls: u64,
}

/// What has come of it.
pub(super) struct Run {
    pub(super) ended: Vec<Ended>,
    /// When it was, how old it was, how many.
    pub(super) ages: Vec<(f64, f64, u64)>,
    pub(super) begun: Vec<f64>,
    pub(super) trace: Vec<Trace>,
    pub(super) decisions: Vec<Decision>,
    pub(super) dropped: u64,
    /// Accepted, and neither delivered nor here: 0 unless items were lost.
    pub(super) lost: i64,
    /// A batch was delivered before one that was accepted earlier.
    pub(super) is_out_of_order: bool,
}

const CAPACITY: u64 = 50_000;
const MILLI: u64 = 1_000_000;
const TICK: u64 = 2 * MILLI;

struct Sim {
    setup: Setup,
    pace: Adaptive,
    log: Log,
    heard: u64,
    retry: Retry,
    jitter: Jitter,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    random: u64,
    /// (when, how many) that were accepted.
    queue: VecDeque<(u64, u64)>,
    buffered: u64,
    again: VecDeque<(Due, Job)>,
    jobs: BTreeMap<u64, Job>,
    calls: u64,
    free: usize,
    serving: u64,
    waiting: VecDeque<u64>,
    tokens: (f64, f64, u64),
    /// What the flusher sleeps for; `None` while nothing but an event wakes it.
    sleep: Option<(Option<u64>, Option<u64>)>,
    carry: f64,
    accepted: u64,
    delivered: u64,
    /// When the first item of a batch was accepted that was delivered, at the latest.
    newest: u64,
    run: Run,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    Wake,
    /// The call has done its part by itself.
    Begun(u64),
    Served(u64),
    TimedOut(u64),
    Error(u64),
    Throttled(u64),
}

/// A batch in a call, or on its way to the next one.
struct Job {
    chunks: VecDeque<(u64, u64)>,
    items: u64,
    tries: Tries,
    ticket: Ticket,
    start: u64,
    is_over: bool,
}

impl Setup {
    /// Seconds become marks only with a seed.
    pub(super) fn run(&self, seed: u64) -> Run {
        let pace = Adaptive::new(100, None, seed);
        let retry = Retry::exponential(Duration::from_millis(50), Duration::from_secs(1));
        let mut sim = Sim {
            setup: self.clone(),
            pace,
            log: Log::new(),
            heard: 0,
            jitter: retry.jitter(seed),
            retry,
            now: 0,
            events: BinaryHeap::new(),
            order: 0,
            random: mix(seed),
            queue: VecDeque::new(),
            buffered: 0,
            again: VecDeque::new(),
            jobs: BTreeMap::new(),
            calls: 0,
            free: self.servers,
            serving: 0,
            waiting: VecDeque::new(),
            tokens: (self.call_limit.map_or(0.0, |l| l.1), self.item_limit.map_or(0.0, |l| l.1), 0),
            sleep: None,
            carry: 0.0,
            accepted: 0,
            delivered: 0,
            newest: 0,
            run: Run {
                ended: Vec::new(),
                ages: Vec::new(),
                begun: Vec::new(),
                trace: Vec::new(),
                decisions: Vec::new(),
                dropped: 0,
                lost: 0,
                is_out_of_order: false,
            },
        };
        sim.run();
        sim.run
    }

    fn aim(&self) -> Aim {
        Aim {
            target_latency: Duration::from_secs_f64(self.target),
            min_interval: Duration::from_millis(5),
            max_interval: Duration::from_secs(1),
        }
    }
}

impl Sim {
    fn run(&mut self) {
        let end = (self.setup.seconds * 1e9) as u64;
        self.at(0, Event::Arrival);
        let mut traced = 0;
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > end {
                break;
            }
            self.now = now;
            if self.happen(event) {
                self.dispatch();
            }
            if now >= traced {
                traced = now + 50 * MILLI;
                let (batch, slots) = (self.pace.batch.size(), self.pace.slots.count() as f64);
                let backlog = self.buffered;
                self.run.trace.push(Trace { at: seconds(now), batch, slots, backlog, calls: self.calls });
            }
        }
        let out: u64 = self.jobs.values().filter(|job| !job.is_over).map(|job| job.items).sum();
        let again: u64 = self.again.iter().map(|(_, job)| job.items).sum();
        self.run.lost = self.accepted as i64 - (self.delivered + self.buffered + out + again) as i64;
    }

    /// Whether the flusher is woken.
    fn happen(&mut self, event: Event) -> bool {
        match event {
            Event::Arrival => {
                self.arrive();
                let items = self.sleep.is_none_or(|(items, _)| items.is_some_and(|items| self.buffered >= items));
                items || self.buffered >= CAPACITY
            }
            Event::Wake => self.sleep.is_some_and(|(_, until)| until.is_some_and(|until| until <= self.now)),
            Event::Begun(id) if self.free > 0 => {
                self.free -= 1;
                self.serve(id);
                false
            }
            Event::Begun(id) => {
                self.waiting.push_back(id);
                false
            }
            Event::Served(id) => {
                self.serving -= 1;
                match self.waiting.pop_front() {
                    Some(next) => self.serve(next),
                    None => self.free += 1,
                }
                let Some(job) = self.jobs.remove(&id).filter(|job| !job.is_over) else { return false };
                self.end(job, Event::Served(id));
                true
            }
            Event::TimedOut(id) => {
                // The sink works on.
                let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.is_over) else { return false };
                job.is_over = true;
                let (chunks, tries) = (std::mem::take(&mut job.chunks), std::mem::take(&mut job.tries));
                let job = Job { chunks, tries, items: job.items, ticket: job.ticket, start: job.start, is_over: false };
                self.end(job, event);
                true
            }
            Event::Error(id) | Event::Throttled(id) => {
                let Some(job) = self.jobs.remove(&id) else { return false };
                self.end(job, event);
                true
            }
        }
    }

    fn arrive(&mut self) {
        self.carry += (self.setup.arrivals)(seconds(self.now)) * seconds(TICK);
        let offered = (self.carry + 1e-9) as u64;
        self.carry -= offered as f64;
        let accepted = offered.min(CAPACITY - self.buffered);
        self.run.dropped += offered - accepted;
        self.accepted += accepted;
        if accepted > 0 {
            self.queue.push_back((self.now, accepted));
            self.buffered += accepted;
        }
        self.at(self.now + TICK, Event::Arrival);
    }

    fn dispatch(&mut self) {
        loop {
            let view = View {
                buffered: self.buffered,
                capacity: CAPACITY,
                oldest: self.queue.front().map(|(at, _)| Tick::from_nanos(*at)),
                is_tight: self.buffered >= CAPACITY,
                is_flushing: false,
                is_closed: false,
                is_paused: false,
                max_batch: self.setup.max_batch,
                fits: u64::MAX,
                linger: Duration::ZERO,
                aim: Some(self.setup.aim()),
                calls: self.calls,
                slots: self.setup.slots,
                again: self.again.front().map(|(due, job)| Again { items: job.items, due: due.0 }),
            };
            self.sleep = None;
            match self.pace.plan(Tick::from_nanos(self.now), &view) {
                Plan::Take { most, .. } => self.take(most),
                Plan::Resend { most } => self.resend(most),
                Plan::Sleep { items, until } => {
                    let until = until.map(|until| until.nanos().next_multiple_of(MILLI).max(self.now + 1));
                    if let Some(until) = until {
                        self.at(until, Event::Wake);
                    }
                    self.sleep = Some((items, until));
                    return;
                }
            }
        }
    }

    fn take(&mut self, most: u64) {
        let (chunks, items) = cut(&mut self.queue, most);
        assert!(items > 0, "nothing to take");
        self.buffered -= items;
        let tries = Tries::default();
        self.call(Job { chunks, items, tries, ticket: Ticket::default(), start: self.now, is_over: false });
    }

    fn resend(&mut self, most: u64) {
        let Some((due, mut job)) = self.again.pop_front() else { panic!("nothing to send again") };
        let (chunks, items) = cut(&mut job.chunks, most);
        let rest = job.items - items;
        if rest > 0 {
            let rest = Job { chunks: job.chunks, items: rest, tries: job.tries.of_a_part(), ..job };
            self.again.push_front((due, rest));
        }
        self.call(Job { chunks, items, tries: job.tries, ticket: job.ticket, start: self.now, is_over: false });
    }

    fn call(&mut self, mut job: Job) {
        let now = Tick::from_nanos(self.now);
        let id = self.order;
        job.tries.start(now);
        job.ticket = self.pace.started(now, job.items);
        self.calls += 1;
        self.run.begun.push(seconds(self.now));
        let items = job.items as f64;
        self.jobs.insert(id, job);
        let outage = self.setup.outage.is_some_and(|(from, to)| (from..to).contains(&seconds(self.now)));
        if outage {
            return self.at(self.now + 10 * MILLI, Event::Error(id));
        }
        if !self.admit(items) {
            return self.at(self.now + 5 * MILLI, Event::Throttled(id));
        }
        let alone = self.setup.a * self.draw();
        self.at(self.now + millis(alone), Event::Begun(id));
        if let Some(timeout) = self.setup.timeout {
            self.at(self.now + millis(timeout), Event::TimedOut(id));
        }
    }

    /// The limits of the sink.
    fn admit(&mut self, items: f64) -> bool {
        let passed = seconds(self.now - self.tokens.2);
        self.tokens.2 = self.now;
        let (calls, all) = (self.setup.call_limit, self.setup.item_limit);
        let fill = |tokens: f64, limit: Option<(f64, f64)>| {
            limit.map_or(0.0, |(rate, burst)| (tokens + passed * rate).min(burst))
        };
        self.tokens.0 = fill(self.tokens.0, calls);
        self.tokens.1 = fill(self.tokens.1, all);
        if calls.is_some() && self.tokens.0 < 1.0 - 1e-9 || all.is_some() && self.tokens.1 < items - 1e-9 {
            return false;
        }
        self.tokens.0 -= 1.0;
        self.tokens.1 -= items;
        true
    }

    fn serve(&mut self, id: u64) {
        self.serving += 1;
        let others = self.serving as f64 - 1.0;
        let contention = self.setup.usl.map_or(1.0, |(a, b)| 1.0 + a * others + b * others * (others + 1.0));
        let now = seconds(self.now);
        let slow = self.setup.slow.iter().rfind(|(from, _)| now >= *from).map_or(1.0, |(_, times)| *times);
        let items = self.jobs.get(&id).map_or(0, |job| job.items) as f64;
        let time = self.setup.b * items * contention * slow * self.draw();
        self.at(self.now + millis(time), Event::Served(id));
    }

    fn end(&mut self, mut job: Job, event: Event) {
        let now = Tick::from_nanos(self.now);
        self.calls -= 1;
        let is_ok = matches!(event, Event::Served(_));
        let latency = self.now - job.start;
        self.run.ended.push(Ended { at: seconds(self.now), items: job.items, latency: seconds(latency), is_ok });
        let (ticket, items) = (job.ticket, job.items);
        let outcome = if is_ok {
            self.delivered += job.items;
            let first = job.chunks.front().map_or(0, |(at, _)| *at);
            self.run.is_out_of_order |= first < self.newest;
            self.newest = self.newest.max(first);
            for (at, count) in &job.chunks {
                self.run.ages.push((seconds(self.now), seconds(self.now - at), *count));
            }
            Outcome::Ok
        } else {
            let due = self.retry.next(&mut job.tries, now, Duration::ZERO, &mut self.jitter).unwrap();
            // By position.
            let has_order = self.setup.slots == 1;
            let rank = |due: Due, job: &Job| (if has_order { Due(None) } else { due }, job.chunks.front().copied());
            let own = rank(due, &job);
            let place = self.again.partition_point(|(due, other)| rank(*due, other) < own);
            self.again.insert(place, (due, job));
            match event {
                Event::TimedOut(_) => Outcome::TimedOut { until: due.0 },
                Event::Throttled(_) => Outcome::Throttled(Duration::ZERO),
                _ => Outcome::Failed { until: due.0 },
            }
        };
        let latency = Duration::from_nanos(latency);
        let sample = Sample { ticket, items, latency, outcome, buffered: self.buffered, calls: self.calls };
        self.pace.ended(now, &sample, &mut self.log);
        let new = (self.log.count() - self.heard) as usize;
        let all: Vec<_> = self.log.entries().map(|entry| entry.decision).collect();
        self.run.decisions.extend(&all[all.len() - new..]);
        self.heard = self.log.count();
    }

    fn at(&mut self, when: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, event)));
    }

    /// A factor with mean 1.
    fn draw(&mut self) -> f64 {
        match self.setup.noise {
            Noise::Uniform(share) => 1.0 + share * (2.0 * self.share() - 1.0),
            Noise::Log(sigma) => {
                // Box and Muller, 1958.
                let (one, two) = (1.0 - self.share(), self.share());
                let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos();
                (sigma * normal - 0.5 * sigma * sigma).exp()
            }
        }
    }

    fn share(&mut self) -> f64 {
        self.random = mix(self.random);
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The first `most` items.
fn cut(queue: &mut VecDeque<(u64, u64)>, most: u64) -> (VecDeque<(u64, u64)>, u64) {
    let (mut chunks, mut left) = (VecDeque::new(), most);
    while left > 0 {
        let Some((at, count)) = queue.pop_front() else { break };
        let part = count.min(left);
        chunks.push_back((at, part));
        left -= part;
        if part < count {
            queue.push_front((at, count - part));
        }
    }
    (chunks, most - left)
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Whole milliseconds, rounded up, in nanoseconds.
fn millis(seconds: f64) -> u64 {
    (seconds * 1e3 - 1e-9).ceil().max(0.0) as u64 * MILLI
}

impl Run {
    fn good(&self, from: f64, to: f64) -> impl Iterator<Item = &Ended> {
        self.ended.iter().filter(move |call| call.is_ok && (from..to).contains(&call.at))
    }

    /// Items a second.
    pub(super) fn rate(&self, from: f64, to: f64) -> f64 {
        self.good(from, to).map(|call| call.items).sum::<u64>() as f64 / (to - from)
    }

    pub(super) fn calls_a_second(&self, from: f64, to: f64) -> f64 {
        self.good(from, to).count() as f64 / (to - from)
    }

    /// The share of calls that did not go well.
    pub(super) fn bad(&self, from: f64, to: f64) -> f64 {
        let all = self.ended.iter().filter(|call| (from..to).contains(&call.at)).count() as f64;
        1.0 - self.good(from, to).count() as f64 / all.max(1.0)
    }

    /// The latency of the call below which there is such a share.
    pub(super) fn latency(&self, from: f64, to: f64, share: f64) -> f64 {
        let mut all: Vec<f64> = self.good(from, to).map(|call| call.latency).collect();
        all.sort_by(f64::total_cmp);
        all.get(((all.len() as f64 * share) as usize).min(all.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }

    pub(super) fn age(&self, from: f64, to: f64, share: f64) -> f64 {
        let mut all: Vec<_> = self.ages.iter().filter(|(at, ..)| (from..to).contains(at)).collect();
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        let total: u64 = all.iter().map(|(.., count)| count).sum();
        let mut sum = 0;
        for (_, age, count) in all {
            sum += count;
            if sum as f64 >= share * total as f64 {
                return *age;
            }
        }
        0.0
    }

    /// After `from`, the seconds until three windows in a row have nine tenths of `rate`.
    pub(super) fn converges(&self, from: f64, to: f64, rate: f64, window: f64, step: f64) -> f64 {
        let (mut at, mut good) = (from, 0);
        while at + window <= to {
            good = if self.rate(at, at + window) >= 0.9 * rate { good + 1 } else { 0 };
            if good == 3 {
                return at - 2.0 * step - from;
            }
            at += step;
        }
        f64::INFINITY
    }

    /// Coefficient of variation.
    pub(super) fn variation(&self, from: f64, to: f64, of: fn(&Trace) -> f64) -> f64 {
        let all: Vec<f64> = self.trace.iter().filter(|trace| (from..to).contains(&trace.at)).map(of).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (all.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt() / mean
    }
}
