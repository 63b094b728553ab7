//! The oracle: what the promises say, as plain sequential code over lists of ids.

use std::collections::{BTreeMap, HashMap, VecDeque};

use backpressure::{BatchId, BuildError, FlushReason, FlushReport, LossReason, RefuseReason, Snapshot, State};

use super::case::{Config, Hook, Kind, Levers, Millis, Outcome};
use super::oracle_offers::Asked;
use super::oracle_waits::{Pending, Stage};
use super::oracle_weights::Weighed;
use super::world::{Calling, Id};

/// Names a future of the run.
pub type Fid = usize;

#[derive(Debug)]
pub struct Oracle {
    pub config: Config,
    /// At present; the one that it was built with is in `config`.
    pub capacity: usize,
    /// Milliseconds since the start.
    pub now: u64,
    pub buffered: VecDeque<Id>,
    /// What was taken and is not settled, by position.
    pub flights: VecDeque<Flight>,
    /// Settled, while a guard still has the items: kept elsewhere, or in a call that goes on after the end.
    pub ghosts: Vec<Ghost>,
    pub pending: HashMap<Fid, Pending>,
    pub queue: VecDeque<Fid>,
    pub reserved: u64,
    pub weighed: Weighed,
    pub is_closed: bool,
    pub is_paused: bool,
    pub is_finished: bool,
    pub flusher_gone: bool,
    pub is_draining: bool,
    pub deadline: Millis,
    pub drainers: Vec<Fid>,
    pub leftovers: Vec<Id>,
    pub not_returned: u64,
    pub permits_out: u64,
    pub seqs: HashMap<Id, u64>,
    pub accepted_at: HashMap<Id, u64>,
    pub count: Count,
    pub barriers: BTreeMap<Fid, Barrier>,
    /// Losses that `on_loss` has not been told of yet, in order.
    pub untold: VecDeque<(Option<Id>, LossReason, Said)>,
    level: usize,
    transitions: [[u64; 5]; 5],
    /// A batch that begins there was judged so, and what is left of it was not decided about.
    pub postponed: Option<(u64, End)>,
    /// Batches that came home after their calls had ended, to be judged in this order.
    pub landed: VecDeque<u64>,
    /// Ends of calls, numbered.
    pub ends: u64,
    /// The sink has asked for a pause until then.
    pub pause: u64,
    told_to_sink: u64,
    /// An offer from inside user code, and what is expected of it.
    pub inside: Vec<Result<(), RefuseReason>>,
    /// Positions that were ever given: an item that shares a place takes that of another.
    positions: u64,
    /// What survivors of samples stand for.
    pub weights: HashMap<Id, u64>,
    /// The controller's, once a batch has told it.
    pub nonce: Option<u64>,
    /// Draws that were made.
    pub draws: u64,
    /// Questions to strategies of the user's that were not compared yet.
    pub asked: Vec<Asked>,
    /// Losses of the offer that goes on.
    pub in_offer: Vec<Id>,
    /// The next token that user code makes.
    pub next_id: Id,
    /// Pushes from inside the hook that were foreseen: what is expected of them.
    pub foreseen: VecDeque<(Id, Result<(), RefuseReason>)>,
    /// The fates of tracked items; `None` until they are settled.
    pub fates: HashMap<Id, Option<Told>>,
}

/// What the sink said of an item that it did not take.
pub type Said = Option<&'static str>;

/// A fate that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub loss: Option<(LossReason, Said)>,
    /// Items settled so far, with it.
    pub settled: u64,
}

/// Own counts, by name as in the snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Count {
    pub offered: u64,
    pub refused: HashMap<RefuseReason, u64>,
    pub cancelled: u64,
    pub accepted: u64,
    pub delivered: u64,
    pub lost: HashMap<LossReason, u64>,
    pub retried: u64,
    pub flushes: HashMap<&'static str, u64>,
    /// Caught panics of hooks and strategies; destructors are counted by the token ledger.
    pub panics: u64,
    pub peak: u64,
}

#[derive(Debug)]
pub struct Flight {
    pub id: Option<BatchId>,
    pub items: Vec<Id>,
    pub attempts: u32,
    pub lost_before: u64,
    /// Why it left the buffer, or what it is a part of.
    pub reason: FlushReason,
    pub phase: Phase,
    /// The guard was put elsewhere and is not back.
    pub is_kept: bool,
    /// It was put elsewhere and came back while the call went on.
    pub is_back: bool,
    /// The sink has moved the items out.
    pub is_taken: bool,
    pub marks: Option<u8>,
    /// The number of the end of its call.
    pub ended: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// To be sent at the moment; `None` is never.
    Due(Millis),
    /// With the sink since the moment, for so long at most, and so much extra time.
    Calling { since: u64, extra: u64, limit: Millis },
    /// The call has ended so, and the guard is not home, or was not judged since it came home.
    Ended(End),
}

/// A guard whose items are settled.
#[derive(Debug)]
pub struct Ghost {
    pub first: u64,
    pub items: Vec<Id>,
    pub is_abandoned: bool,
    pub in_call: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Ok,
    Retry,
    Throttled(u64),
    TooLarge,
    Permanent,
    Panicked,
    TimedOut,
    Cancelled,
}

#[derive(Debug, Default)]
pub struct Barrier {
    end: u64,
    pub outstanding: u64,
    delivered: u64,
    lost: HashMap<LossReason, u64>,
}

impl Oracle {
    pub fn new(config: Config) -> Self {
        Self {
            capacity: config.capacity,
            config,
            now: 0,
            buffered: VecDeque::new(),
            flights: VecDeque::new(),
            ghosts: Vec::new(),
            pending: HashMap::new(),
            queue: VecDeque::new(),
            reserved: 0,
            weighed: Weighed::default(),
            is_closed: false,
            is_paused: false,
            is_finished: false,
            flusher_gone: false,
            is_draining: false,
            deadline: None,
            drainers: Vec::new(),
            leftovers: Vec::new(),
            not_returned: 0,
            permits_out: 0,
            seqs: HashMap::new(),
            accepted_at: HashMap::new(),
            count: Count::default(),
            barriers: BTreeMap::new(),
            untold: VecDeque::new(),
            level: 0,
            postponed: None,
            landed: VecDeque::new(),
            ends: 0,
            pause: 0,
            told_to_sink: 0,
            inside: Vec::new(),
            transitions: [[0; 5]; 5],
            positions: 0,
            weights: HashMap::new(),
            nonce: None,
            draws: 0,
            asked: Vec::new(),
            in_offer: Vec::new(),
            next_id: 0,
            foreseen: VecDeque::new(),
            fates: HashMap::new(),
        }
    }

    pub fn in_flight(&self) -> u64 {
        self.flights.iter().map(|flight| flight.items.len() as u64).sum()
    }

    pub fn depth(&self) -> u64 {
        self.reserved + self.buffered.len() as u64 + self.in_flight()
    }

    pub fn room(&self) -> u64 {
        // There is more inside than the capacity when that was made smaller.
        (self.capacity as u64).saturating_sub(self.depth())
    }

    /// No batch is larger.
    pub fn batch(&self) -> usize {
        self.batch_limit().min(self.capacity)
    }

    /// A sample keeps a unit of the capacity for the overflow.
    fn batch_limit(&self) -> usize {
        match self.config.strategy {
            Kind::Sample { .. } => self.config.batch.min(self.capacity - 1).max(1),
            _ => self.config.batch,
        }
    }

    /// All or none.
    pub fn reconfigure(&mut self, levers: Levers) -> Result<(), BuildError> {
        let max = self.config.capacity;
        match (levers.capacity, levers.batch) {
            (Some(0), _) => return Err(BuildError::CapacityZero),
            (Some(to), _) if to > max => return Err(BuildError::CapacityTooLarge { max }),
            (_, Some(0)) => return Err(BuildError::BatchZero),
            (_, Some(batch)) if batch > max => {
                return Err(BuildError::BatchAboveCapacity { batch, capacity: max });
            }
            _ if levers.flush_timeout == Some(Some(0)) => return Err(BuildError::FlushTimeoutZero),
            _ if levers.attempts == Some(Some(0)) => return Err(BuildError::RetryAttemptsZero),
            _ => {}
        }
        let config = &mut self.config;
        config.strategy = levers.strategy.unwrap_or(config.strategy);
        config.marks = levers.marks.unwrap_or(config.marks);
        config.batch = levers.batch.unwrap_or(config.batch);
        config.linger = levers.linger.unwrap_or(config.linger);
        config.attempts = levers.attempts.unwrap_or(config.attempts);
        config.flush_timeout = levers.flush_timeout.unwrap_or(config.flush_timeout);
        self.set_capacity(levers.capacity.unwrap_or(self.capacity));
        Ok(())
    }

    /// Nothing that is inside is touched; reservations that can never be granted any more are told so.
    fn set_capacity(&mut self, to: usize) {
        self.capacity = to;
        let size = self.permit_size();
        for fid in self.queue.clone() {
            let Some(Pending::Reserve { places, granted, wait }) = self.pending.get_mut(&fid) else { continue };
            if *places > to as u64 {
                *wait = Stage::Unfit { most: to };
                let granted = std::mem::take(granted);
                self.reserved -= granted;
                self.weighed.reserved -= granted * size;
                self.queue.retain(|queued| *queued != fid);
            }
        }
        self.serve();
        self.observe();
    }

    /// An item comes in where there is room.
    pub fn accept(&mut self, id: Id) {
        assert!(self.room() > 0);
        self.replace(id);
    }

    /// An item comes in where a permit or a victim was.
    pub fn replace(&mut self, id: Id) {
        assert!(self.depth() < self.config.capacity as u64, "the oracle keeps the bound");
        self.positions += 1;
        self.arrive(id, self.positions - 1);
    }

    fn arrive(&mut self, id: Id, seq: u64) {
        assert!(self.seqs.insert(id, seq).is_none(), "{id} was accepted twice");
        self.accepted_at.insert(id, self.now);
        self.count.accepted += 1;
        self.buffered.push_back(id);
        self.count_accepted(id);
        self.note_peak();
    }

    /// The youngest one goes, and an item comes in at its position. No flush waits for it.
    pub fn displace(&mut self, youngest: Id, id: Id) {
        let seq = self.seqs[&youngest];
        self.settle(youngest, Some(LossReason::Evicted), None);
        self.lose(youngest, LossReason::Evicted);
        for barrier in self.barriers.values_mut() {
            barrier.end = barrier.end.min(seq);
        }
        self.arrive(id, seq);
    }

    pub fn note_peak(&mut self) {
        self.count.peak = self.count.peak.max(self.depth());
    }

    pub fn refuse(&mut self, reason: RefuseReason, n: usize) {
        *self.count.refused.entry(reason).or_default() += n as u64;
    }

    /// An accepted item is settled: it has left its list already. `None` is delivered.
    pub fn settle(&mut self, id: Id, loss: Option<LossReason>, said: Said) {
        let seq = self.seqs[&id];
        self.count_settled(id, loss);
        match loss {
            None => self.count.delivered += 1,
            Some(reason) => *self.count.lost.entry(reason).or_default() += 1,
        }
        for barrier in self.barriers.values_mut().filter(|barrier| seq < barrier.end) {
            barrier.outstanding -= 1;
            match loss {
                None => barrier.delivered += 1,
                Some(reason) => *barrier.lost.entry(reason).or_default() += 1,
            }
        }
        let settled = self.count.delivered + self.all_lost();
        if let Some(fate) = self.fates.get_mut(&id) {
            let told = Told { loss: loss.map(|reason| (reason, said)), settled };
            assert_eq!(fate.replace(told), None, "{id} has two fates");
        }
    }

    /// `on_loss` was called.
    pub fn told(&mut self, id: Option<Id>, reason: LossReason, said: &Option<String>) {
        let expected = self.untold.pop_front();
        let expected = expected.map(|(id, reason, said)| (id, reason, said.map(str::to_owned)));
        assert_eq!(expected, Some((id, reason, said.clone())), "on_loss was told of another item");
        if self.config.hook == Hook::Panics && id.is_some_and(|id| id % 8 == 5) {
            self.count.panics += 1;
        }
    }

    /// Nothing is left to be told once the step is over.
    pub fn check_told(&mut self) {
        self.catch_up();
        if self.config.hook == Hook::None {
            self.untold.clear();
        }
        assert!(self.untold.is_empty(), "on_loss was not told of {:?}", self.untold);
    }

    pub fn lost(&self, reason: LossReason) -> u64 {
        self.count.lost.get(&reason).copied().unwrap_or(0)
    }

    pub fn all_lost(&self) -> u64 {
        self.count.lost.values().sum()
    }

    /// The losses that no batch has told of yet.
    fn take_untold_losses(&mut self) -> u64 {
        let all = self.all_lost();
        all - std::mem::replace(&mut self.told_to_sink, all)
    }

    /// The sink was called.
    pub fn called(&mut self, call: &Calling) {
        let Calling { id, ref seqs, ref items, ref weights, attempt, reason, lost_before } = *call;
        assert!(!items.is_empty(), "an empty batch");
        assert!(self.nonce.replace(id.nonce()).is_none_or(|nonce| nonce == id.nonce()), "another nonce");
        assert!(!self.is_finished, "a call after the end");
        assert!(self.pause <= self.now, "the sink has asked for a pause");
        assert!(self.calls() < self.config.slots, "more calls than slots");
        let index = match self.first_due() {
            Some(index) => index,
            None => {
                self.check_taking(items.len(), reason);
                self.weighed.is_short = false;
                let taken: Vec<_> = self.buffered.drain(..items.len()).collect();
                let lost_before = self.take_untold_losses();
                self.flights.push_back(Flight::new(taken, lost_before, reason, self.now));
                self.flights.len() - 1
            }
        };
        let (now, limit) = (self.now, self.config.flush_timeout);
        assert_eq!(*weights, items.iter().map(|id| self.weight(*id)).collect::<Vec<_>>(), "the weights of {items:?}");
        assert_eq!(*seqs, items.iter().map(|id| self.seqs[id]).collect::<Vec<_>>());
        let flight = &mut self.flights[index];
        assert_eq!(flight.items, *items, "the sink sees the oldest items, in order");
        assert!(matches!(flight.phase, Phase::Due(Some(at)) if at <= now), "{:?} at {now}", flight.phase);
        flight.attempts += 1;
        assert_eq!((flight.attempts, flight.lost_before, flight.reason), (attempt, lost_before, reason));
        assert!(flight.id.is_none_or(|before| before == id), "the id of the same items is stable");
        flight.id = Some(id);
        flight.phase = Phase::Calling { since: now, extra: 0, limit };
        (flight.marks, flight.is_taken, flight.is_back) = (None, false, false);
        if attempt > 1 {
            self.count.retried += items.len() as u64;
        }
    }

    /// Slots that are taken.
    pub fn calls(&self) -> usize {
        self.flights.iter().filter(|flight| !matches!(flight.phase, Phase::Due(_))).count()
    }

    /// The first of the batches that are to be sent again: no other one leaves before it. One call at a time keeps the order
    /// of the items; with several each goes when it is due.
    pub fn first_due(&self) -> Option<usize> {
        let due = |(index, flight): (usize, &Flight)| match flight.phase {
            // Never comes last.
            Phase::Due(at) if self.config.slots > 1 => Some((at.unwrap_or(u64::MAX), index)),
            Phase::Due(_) => Some((0, index)),
            _ => None,
        };
        self.flights.iter().enumerate().filter_map(due).min().map(|(_, index)| index)
    }

    /// The batch that begins there.
    pub fn flight_at(&self, first: u64) -> Option<usize> {
        self.flights.iter().position(|flight| self.seqs[&flight.items[0]] == first)
    }

    /// A new batch leaves for a reason that is one.
    fn check_taking(&self, len: usize, reason: FlushReason) {
        assert!(len <= self.batch(), "a batch of {len}");
        assert!(len <= self.buffered.len(), "the sink has items that nobody pushed");
        assert_eq!(len, self.batch_length(), "all that is there leaves, at most a batch");
        let is_flushing = self.is_flushing();
        assert!(!self.is_paused || self.is_closed || is_flushing, "a batch left a paused buffer");
        match reason {
            FlushReason::Full => assert!(self.is_batch_full()),
            FlushReason::Room => assert!(self.is_tight()),
            FlushReason::Flush => assert!(is_flushing),
            FlushReason::Drain => assert!(self.is_closed),
            FlushReason::Linger => assert!(self.config.linger.is_some()),
            other => panic!("{other} is no reason here"),
        }
    }

    /// Somebody waits in `flush` for what is buffered.
    pub fn is_flushing(&self) -> bool {
        let Some(first) = self.buffered.front().map(|id| self.seqs[id]) else { return false };
        self.barriers.values().any(|barrier| barrier.outstanding > 0 && barrier.end > first)
    }

    /// A barrier behind all that was accepted.
    pub fn open_barrier(&mut self, fid: Fid) {
        let outstanding = self.buffered.len() as u64 + self.in_flight();
        let barrier = Barrier { end: self.positions, outstanding, ..Barrier::default() };
        self.barriers.insert(fid, barrier);
    }

    /// The depth at rest: the state rises to it at once, and falls only below the mark by the hysteresis.
    pub fn observe(&mut self) {
        let before = self.state();
        self.follow_depth();
        let after = self.state();
        if before != after {
            self.transitions[before as usize][after as usize] += 1;
        }
    }

    fn follow_depth(&mut self) {
        if self.is_closed {
            self.level = State::Draining as usize;
            return;
        }
        let (depth, capacity) = (self.fullness(), self.capacity as f64);
        let share = depth as f64 / capacity;
        let marks = [self.config.marks.0, self.config.marks.1, 1.0];
        let batch = self.batch_limit() as f64;
        let fall = |mark: f64| mark - (1.25 * batch / capacity).max(0.10).min(mark / 2.0);
        let risen = marks.iter().filter(|mark| share >= **mark - 1e-9).count();
        self.level = self.level.max(risen);
        while self.level > risen && (depth == 0 || share < fall(marks[self.level - 1]) - 1e-9) {
            self.level -= 1;
        }
    }

    /// As it was last observed.
    pub fn state(&self) -> State {
        State::ALL[self.level]
    }

    /// The state follows the depth (I6), with nothing between.
    fn check_state(&self, snapshot: &Snapshot) {
        assert_eq!(snapshot.state, self.state(), "at depth {} of {}", self.depth(), self.capacity);
        let theirs = |from: usize, to: usize| snapshot.transitions.count(State::ALL[from], State::ALL[to]);
        let theirs = std::array::from_fn(|from| std::array::from_fn(|to| theirs(from, to)));
        assert_eq!(self.transitions, theirs, "from each state to each");
    }

    /// Every figure is the oracle's.
    pub fn compare(&self, snapshot: &Snapshot, thrown: u64) {
        snapshot.audit().unwrap();
        let count = &self.count;
        let refused = |reason| count.refused.get(&reason).copied().unwrap_or(0);
        let waiting = self.waiting();
        let ours = [
            ("accepted", count.accepted, snapshot.accepted),
            ("full", refused(RefuseReason::Full), snapshot.refused.full),
            ("timed_out", refused(RefuseReason::TimedOut), snapshot.refused.timed_out),
            ("closed", refused(RefuseReason::Closed), snapshot.refused.closed),
            ("sampled", refused(RefuseReason::Sampled), snapshot.refused.sampled),
            ("sample_rate", u64::from(self.sample_rate()), u64::from(snapshot.sample_rate)),
            ("too_large", refused(RefuseReason::TooLarge), snapshot.refused.too_large),
            ("would_deadlock", refused(RefuseReason::WouldDeadlock), snapshot.refused.would_deadlock),
            ("refused", count.refused.values().sum(), snapshot.refused.total()),
            ("cancelled", count.cancelled, snapshot.cancelled),
            ("waiting", waiting, snapshot.waiting),
            ("waiting_producers", self.queue.len() as u64, snapshot.waiting_producers),
            ("offered", count.offered, snapshot.offered + self.deferred()),
            ("delivered", count.delivered, snapshot.delivered),
            ("failed", self.lost(LossReason::Failed), snapshot.failed),
            ("evicted", self.lost(LossReason::Evicted), snapshot.evicted),
            ("expired", 0, snapshot.expired),
            ("purged", self.lost(LossReason::Purged), snapshot.purged),
            ("abandoned", self.lost(LossReason::Abandoned), snapshot.abandoned),
            ("buffered", self.buffered.len() as u64, snapshot.buffered),
            ("in_flight", self.in_flight(), snapshot.in_flight),
            ("reserved", self.reserved, snapshot.reserved),
            ("depth", self.depth(), snapshot.depth),
            ("capacity", self.capacity as u64, snapshot.capacity),
            ("max_capacity", self.config.capacity as u64, snapshot.max_capacity),
            ("retried", count.retried, snapshot.retried),
            ("retry_waiting", self.retry_waiting(), snapshot.retry_waiting),
            ("panics", count.panics + thrown, snapshot.panics),
            ("flushes", count.flushes.values().sum(), snapshot.flushes.total()),
            ("ok", self.flushes("ok"), snapshot.flushes.ok),
            ("timed_out flushes", self.flushes("timed_out"), snapshot.flushes.timed_out),
            ("panicked", self.flushes("panicked"), snapshot.flushes.panicked),
            ("peak_depth", count.peak, snapshot.peak_depth),
        ];
        for (name, ours, theirs) in ours {
            assert_eq!(ours, theirs, "{name}: ours against theirs\n{snapshot:#?}");
        }
        self.compare_weights(snapshot);
        self.check_state(snapshot);
    }

    fn flushes(&self, name: &str) -> u64 {
        self.count.flushes.get(name).copied().unwrap_or(0)
    }

    fn retry_waiting(&self) -> u64 {
        let waits = |flight: &&Flight| flight.attempts > 0 && flight.is_home();
        self.flights.iter().filter(waits).map(|flight| flight.items.len() as u64).sum()
    }
}

impl Flight {
    pub fn new(items: Vec<Id>, lost_before: u64, reason: FlushReason, now: u64) -> Self {
        Self {
            id: None,
            items,
            attempts: 0,
            lost_before,
            reason,
            phase: Phase::Due(Some(now)),
            is_kept: false,
            is_back: false,
            is_taken: false,
            marks: None,
            ended: 0,
        }
    }

    pub fn is_home(&self) -> bool {
        !self.is_kept && !matches!(self.phase, Phase::Calling { .. })
    }
}

impl Barrier {
    pub fn check(&self, report: &FlushReport) {
        let lost = |reason| self.lost.get(&reason).copied().unwrap_or(0);
        assert_eq!(
            (report.delivered, report.failed, report.evicted, report.purged, report.abandoned),
            (
                self.delivered,
                lost(LossReason::Failed),
                lost(LossReason::Evicted),
                lost(LossReason::Purged),
                lost(LossReason::Abandoned)
            ),
            "the report of a flush"
        );
        assert_eq!(report.total(), self.end_total());
    }

    fn end_total(&self) -> u64 {
        self.delivered + self.lost.values().sum::<u64>()
    }
}

impl From<Outcome> for End {
    fn from(outcome: Outcome) -> Self {
        use super::case::Answer;
        match outcome.answer {
            Answer::Ok | Answer::Hang | Answer::Extend(_) => Self::Ok,
            Answer::Retry => Self::Retry,
            Answer::Throttled(after) => Self::Throttled(after),
            Answer::TooLarge => Self::TooLarge,
            Answer::Permanent => Self::Permanent,
            Answer::Panic | Answer::PanicAtOnce => Self::Panicked,
        }
    }
}
