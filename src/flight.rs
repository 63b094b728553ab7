//! The batches that were taken and are not settled: at home between attempts, or out with a guard.

mod cargo;

use std::error::Error;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::cargo::{Cargo, SPARE_BYTES, Spare};
use crate::batch::BatchId;
use crate::gate::Born;
use crate::pace::FlushReason;
use crate::time::Tick;

/// The positions of a batch's items, in order.
#[derive(Clone, Debug)]
pub(crate) enum Seqs {
    Run(Range<u64>),
    /// What is left of a batch after single items were settled.
    List(Vec<u64>),
}

impl Seqs {
    pub(crate) const NONE: Self = Self::Run(0..0);

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Run(run) => (run.end - run.start) as usize,
            Self::List(list) => list.len(),
        }
    }

    /// `i` in `0 ..= len - 1`.
    pub(crate) fn get(&self, i: usize) -> u64 {
        match self {
            Self::Run(run) => run.start + i as u64,
            Self::List(list) => list[i],
        }
    }

    /// Runs of successive positions, in order.
    pub(crate) fn runs(&self) -> Vec<Range<u64>> {
        match self {
            Self::Run(run) => vec![run.clone()],
            Self::List(list) => {
                list.chunk_by(|a, b| a + 1 == *b).filter_map(|run| Some(*run.first()?..*run.last()? + 1)).collect()
            }
        }
    }

    /// How many of them are before `position`.
    fn count_before(&self, position: u64) -> usize {
        match self {
            Self::Run(run) => (position.clamp(run.start, run.end) - run.start) as usize,
            Self::List(list) => list.partition_point(|seq| *seq < position),
        }
    }

    fn split_at(&self, mid: usize) -> (Self, Self) {
        match self {
            Self::Run(run) => {
                let mid = run.start + mid as u64;
                (Self::Run(run.start..mid), Self::Run(mid..run.end))
            }
            Self::List(list) => (Self::List(list[..mid].to_vec()), Self::List(list[mid..].to_vec())),
        }
    }
}

/// What the sink said of one item.
#[derive(Clone, Debug, Default)]
pub(crate) enum Mark {
    /// Nothing: the answer to the whole batch counts.
    #[default]
    None,
    Delivered,
    Failed(Arc<dyn Error + Send + Sync>),
    Retry,
}

/// Where a batch is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its items are here.
    Home,
    /// A guard has its items.
    Out,
    /// Settled as delivered, while a guard still has the items.
    DeliveredOut,
    /// Settled as abandoned, while a guard still has the items.
    AbandonedOut,
}

/// One batch.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    pub(crate) id: BatchId,
    pub(crate) seqs: Seqs,
    pub(crate) phase: Phase,
    /// While it is at home; `None` if its items are delivered and were taken out.
    pub(crate) cargo: Option<Box<Cargo<T>>>,
    pub(crate) attempts: u32,
    pub(crate) reason: FlushReason,
    pub(crate) oldest: Option<Tick>,
    pub(crate) born: Born,
    /// When its last attempt began.
    pub(crate) started: Option<Tick>,
    /// More time before the flush timeout, as the sink asked.
    pub(crate) extra: Duration,
    /// The end of its last attempt was counted.
    pub(crate) is_counted: bool,
    /// The guard that is out says of single items that they are not delivered.
    pub(crate) is_judged: bool,
    /// All that was not judged one by one is delivered: the sink has answered `Ok(())` while that guard is out, or the guard
    /// was done.
    pub(crate) is_ok: bool,
}

/// Names a batch; one that was settled since names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightKey {
    index: usize,
    generation: u64,
}

/// A batch that is at home: what a flusher needs to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: FlightKey,
    /// The position of its first item.
    pub(crate) first: u64,
    pub(crate) items: u64,
}

/// How an attempt ended, for the items of which the sink said nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmarked {
    Delivered,
    Left,
}

/// The fates of a batch's items after an attempt.
#[derive(Debug)]
pub(crate) enum Fates<T> {
    /// All are delivered; with what the guard has brought home, if it has.
    Delivered(Option<Box<Cargo<T>>>),
    /// All are to be sent again, and stay where they are.
    Left,
    Sorted(Sorted<T>),
}

/// The fates of single items; the positions of each in order. What is to be sent again stays with its flight.
#[derive(Debug)]
pub(crate) struct Sorted<T> {
    pub(crate) delivered: Seqs,
    pub(crate) delivered_items: Vec<T>,
    pub(crate) failed: Vec<Failed<T>>,
}

/// An item that has failed by itself.
#[derive(Debug)]
pub(crate) struct Failed<T> {
    pub(crate) seq: u64,
    /// `None` if the sink moved it out.
    pub(crate) item: Option<T>,
    /// `None`: the error of the attempt.
    pub(crate) error: Option<Arc<dyn Error + Send + Sync>>,
}

impl<T> Flight<T> {
    /// How long its last attempt has taken.
    pub(crate) fn took(&self, now: Tick) -> Duration {
        self.started.map_or(Duration::ZERO, |started| now.since(started))
    }

    /// How old its oldest item is, at most.
    pub(crate) fn age(&self, now: Tick) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }

    /// A call has it, or has let it go and is not over; or whoever pulls has it.
    pub(crate) fn is_under_way(&self) -> bool {
        match self.phase {
            Phase::Home => self.attempts > 0 && !self.is_counted,
            Phase::Out => true,
            Phase::DeliveredOut | Phase::AbandonedOut => false,
        }
    }

    /// It waits for another attempt.
    pub(crate) fn is_waiting(&self) -> bool {
        self.phase == Phase::Home && self.is_counted
    }

    /// Takes the items before `position` out of a batch that is at home; `None` if there are none.
    pub(crate) fn shed_before(&mut self, position: u64) -> Option<(Seqs, Vec<T>)> {
        let count = self.seqs.count_before(position);
        let items = &mut self.cargo.as_mut()?.items;
        if count == 0 || items.len() != self.seqs.len() {
            return None;
        }
        let shed_items = items.drain(..count).collect();
        let (shed, left) = self.seqs.split_at(count);
        if left.len() > 0 {
            self.id = self.id.part_of(left.get(0));
        }
        self.seqs = left;
        Some((shed, shed_items))
    }

    /// Begins an attempt: its guard takes this along. `None` if it is not at home.
    pub(crate) fn depart(&mut self, now: Tick) -> Option<Box<Cargo<T>>> {
        let mut cargo = self.cargo.take()?;
        self.attempts = self.attempts.saturating_add(1);
        (self.phase, self.started, self.extra) = (Phase::Out, Some(now), Duration::ZERO);
        (self.is_counted, self.is_judged) = (false, false);
        (cargo.id, cargo.seqs, cargo.attempt) = (self.id, self.seqs.clone(), self.attempts);
        cargo.reason = self.reason;
        Some(cargo)
    }

    /// Sorts the items by what the sink said of each, and otherwise by `unmarked`. Moved-out items cannot be sent again.
    pub(crate) fn sort(&mut self, unmarked: Unmarked) -> Fates<T> {
        let is_marked = self.cargo.as_ref().is_some_and(|cargo| !cargo.marks.is_empty());
        let is_moved_out = self.cargo.as_ref().is_none_or(|cargo| cargo.items.len() < self.seqs.len());
        match unmarked {
            Unmarked::Delivered if !is_marked => Fates::Delivered(self.cargo.take()),
            Unmarked::Left if !is_marked && !is_moved_out => Fates::Left,
            _ => Fates::Sorted(self.sort_singly(unmarked)),
        }
    }

    #[cold]
    fn sort_singly(&mut self, unmarked: Unmarked) -> Sorted<T> {
        let seqs = mem::replace(&mut self.seqs, Seqs::NONE);
        let mut cargo = self.cargo.take();
        let brought = cargo.as_mut().map(|cargo| (mem::take(&mut cargo.items), mem::take(&mut cargo.marks)));
        let (items, marks) = brought.unwrap_or_default();
        let (mut delivered, mut left, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        let (mut delivered_items, mut left_items) = (Vec::new(), Vec::new());
        let (mut items, mut marks) = (items.into_iter(), marks.into_iter());
        for i in 0..seqs.len() {
            let (seq, item) = (seqs.get(i), items.next());
            let mark = match (marks.next().unwrap_or_default(), unmarked) {
                (Mark::None, Unmarked::Delivered) => Mark::Delivered,
                (Mark::None, Unmarked::Left) => Mark::Retry,
                (mark, _) => mark,
            };
            match (mark, item) {
                (Mark::Failed(error), item) => failed.push(Failed { seq, item, error: Some(error) }),
                (Mark::Retry, Some(item)) => {
                    left.push(seq);
                    left_items.push(item);
                }
                (Mark::Retry, None) => failed.push(Failed { seq, item: None, error: None }),
                (Mark::Delivered | Mark::None, item) => {
                    delivered.push(seq);
                    delivered_items.extend(item);
                }
            }
        }
        if let Some(first) = left.first() {
            self.id = if left.len() < seqs.len() { self.id.part_of(*first) } else { self.id };
        }
        self.cargo = cargo.map(|mut cargo| {
            cargo.items = left_items;
            cargo
        });
        self.seqs = Seqs::List(left);
        Sorted { delivered: Seqs::List(delivered), delivered_items, failed }
    }

    /// A flusher's view of it; at least 1 item.
    pub(crate) fn piece(&self, key: FlightKey) -> Piece {
        Piece { key, first: self.seqs.get(0), items: self.seqs.len() as u64 }
    }

    /// Two parts of a batch that is at home, the first one of `mid` items; `mid` in `1 ..= len - 1`. `attempts` is how often
    /// they count as sent.
    pub(crate) fn split(self, mid: usize, attempts: u32) -> (Self, Self) {
        let (first_seqs, second_seqs) = self.seqs.split_at(mid);
        let mut first_cargo = self.cargo;
        let second_items = first_cargo.as_mut().map(|cargo| cargo.items.split_off(mid)).unwrap_or_default();
        let part = |seqs: Seqs, cargo| Self {
            id: self.id.part_of(seqs.get(0)),
            seqs,
            phase: Phase::Home,
            cargo,
            attempts,
            reason: self.reason,
            oldest: self.oldest,
            born: self.born.clone(),
            started: None,
            extra: Duration::ZERO,
            // The last attempt was the whole batch's.
            is_counted: attempts > 0,
            is_judged: false,
            is_ok: false,
        };
        (part(first_seqs, first_cargo), part(second_seqs, Some(Cargo::new(second_items))))
    }
}

/// The batches, in a slab.
#[derive(Debug)]
pub(crate) struct Flights<T> {
    slots: Vec<(u64, Option<Flight<T>>)>,
    free: Vec<usize>,
}

impl<T> Flights<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, flight: Flight<T>) -> FlightKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.1 = Some(flight);
        FlightKey { index, generation: slot.0 }
    }

    pub(crate) fn insert_piece(&mut self, flight: Flight<T>) -> Piece {
        let piece = flight.piece(FlightKey { index: 0, generation: 0 });
        Piece { key: self.insert(flight), ..piece }
    }

    pub(crate) fn get_mut(&mut self, key: FlightKey) -> Option<&mut Flight<T>> {
        let (generation, flight) = self.slots.get_mut(key.index)?;
        flight.as_mut().filter(|_| *generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: FlightKey) -> Option<Flight<T>> {
        self.vacate(key)?.take()
    }

    /// Removes a batch that has nothing left, where it lies: it is not moved.
    pub(crate) fn discard(&mut self, key: FlightKey) {
        if let Some(flight) = self.vacate(key) {
            *flight = None;
        }
    }

    /// The place of a batch, which is free from now on.
    fn vacate(&mut self, key: FlightKey) -> Option<&mut Option<Flight<T>>> {
        self.get_mut(key)?;
        let (generation, flight) = &mut self.slots[key.index];
        *generation += 1;
        self.free.push(key.index);
        Some(flight)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight<T>> + Clone {
        self.slots.iter().filter_map(|(_, flight)| flight.as_ref())
    }

    /// The keys of all batches, by position.
    pub(crate) fn keys(&self) -> Vec<FlightKey> {
        let mut keys: Vec<_> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(index, (generation, flight))| {
                Some((flight.as_ref()?.id.first(), FlightKey { index, generation: *generation }))
            })
            .collect();
        keys.sort_unstable_by_key(|(first, _)| *first);
        keys.into_iter().map(|(_, key)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(items: Vec<u32>, marks: Vec<Mark>) -> Flight<u32> {
        let mut cargo = Cargo::new(items);
        cargo.marks = marks;
        Flight {
            id: BatchId::new(1, 10),
            seqs: Seqs::Run(10..14),
            phase: Phase::Home,
            cargo: Some(cargo),
            attempts: 1,
            reason: FlushReason::Full,
            oldest: None,
            born: Born::default(),
            started: None,
            extra: Duration::ZERO,
            is_counted: false,
            is_judged: false,
            is_ok: false,
        }
    }

    /// What is at home.
    fn items(flight: &Flight<u32>) -> Vec<u32> {
        flight.cargo.as_ref().map(|cargo| cargo.items.clone()).unwrap_or_default()
    }

    /// Which are delivered, which have failed, which are left.
    fn sort(flight: &mut Flight<u32>, unmarked: Unmarked) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
        let all = |seqs: &Seqs| (0..seqs.len()).map(|i| seqs.get(i)).collect();
        match flight.sort(unmarked) {
            Fates::Delivered(_) => (all(&flight.seqs), vec![], vec![]),
            Fates::Left => (vec![], vec![], all(&flight.seqs)),
            Fates::Sorted(sorted) => {
                (all(&sorted.delivered), sorted.failed.iter().map(|f| f.seq).collect(), all(&flight.seqs))
            }
        }
    }

    #[test]
    fn every_item_has_one_fate_whatever_was_said() {
        let marks = [Mark::None, Mark::Delivered, Mark::Retry, Mark::Failed("no".into_error())];
        for unmarked in [Unmarked::Delivered, Unmarked::Left] {
            for moved_out in [false, true] {
                for i in 0..4_usize.pow(4) {
                    let marks = (0..4).map(|k| marks[i / 4_usize.pow(k) % 4].clone()).collect();
                    let items = if moved_out { Vec::new() } else { vec![0, 1, 2, 3] };
                    let mut flight = flight(items, marks);
                    let (delivered, failed, left) = sort(&mut flight, unmarked);
                    assert_eq!(left.len(), self::items(&flight).len());
                    let mut all = [delivered, failed, left].concat();
                    all.sort_unstable();
                    assert_eq!(all, [10, 11, 12, 13]);
                }
            }
        }
    }

    #[test]
    fn moved_out_and_not_acknowledged_has_failed() {
        let mut moved_out = flight(Vec::new(), Vec::new());
        assert_eq!(sort(&mut moved_out, Unmarked::Left), (vec![], vec![10, 11, 12, 13], vec![]));
        let marks = vec![Mark::Delivered, Mark::None, Mark::None, Mark::Delivered];
        assert_eq!(sort(&mut flight(Vec::new(), marks), Unmarked::Left), (vec![10, 13], vec![11, 12], vec![]));
    }

    #[test]
    fn runs_join_neighbours() {
        let list = Seqs::List(vec![1, 2, 3, 7, 9, 10]);
        assert_eq!(list.runs(), [1..4, 7..8, 9..11]);
        assert!(Seqs::List(Vec::new()).runs().is_empty());
    }

    #[test]
    fn halves_have_ids_of_their_own() {
        let (first, second) = flight(vec![0, 1, 2, 3], Vec::new()).split(2, 0);
        assert_eq!((items(&first), items(&second)), (vec![0, 1], vec![2, 3]));
        assert_eq!((first.id.first(), second.id.first()), (10, 12));
        assert_ne!(first.id, BatchId::new(1, 10));
    }

    #[test]
    fn what_is_cut_keeps_its_positions_and_its_attempts() {
        let (first, rest) = flight(vec![0, 1, 2, 3], Vec::new()).split(3, 1);
        assert_eq!((items(&first), first.seqs.get(2), first.attempts), (vec![0, 1, 2], 12, 1));
        assert_eq!((items(&rest), rest.seqs.get(0), rest.attempts), (vec![3], 13, 1));
        assert_eq!((rest.id.first(), rest.id.part()), (13, 1));
    }

    #[test]
    fn what_is_shed_are_the_oldest_and_the_rest_is_another_batch() {
        let mut whole = flight(vec![0, 1, 2, 3], Vec::new());
        assert!(whole.shed_before(10).is_none());
        let (seqs, shed) = whole.shed_before(12).expect("two");
        assert_eq!((seqs.len(), seqs.get(1), shed), (2, 11, vec![0, 1]));
        assert_eq!((items(&whole), whole.seqs.get(0), whole.id.first(), whole.id.part()), (vec![2, 3], 12, 12, 1));
        let mut listed = Flight { seqs: Seqs::List(vec![10, 12, 15, 19]), ..flight(vec![0, 1, 2, 3], Vec::new()) };
        assert_eq!(
            listed.shed_before(15).map(|(seqs, items)| (seqs.runs(), items)),
            Some((vec![10..11, 12..13], vec![0, 1]))
        );
        assert_eq!(listed.shed_before(99).map(|(_, items)| items), Some(vec![2, 3]));
        assert_eq!(listed.seqs.len(), 0);
    }

    #[test]
    fn a_settled_key_names_nothing() {
        let mut flights = Flights::new();
        let old = flights.insert(flight(Vec::new(), Vec::new()));
        assert!(flights.remove(old).is_some());
        let new = flights.insert(flight(Vec::new(), Vec::new()));
        assert!(flights.get_mut(old).is_none() && flights.get_mut(new).is_some());
        assert!(flights.remove(old).is_none());
    }

    trait IntoError {
        fn into_error(self) -> Arc<dyn Error + Send + Sync>;
    }

    impl IntoError for &str {
        fn into_error(self) -> Arc<dyn Error + Send + Sync> {
            Arc::from(crate::error::BoxError::from(self))
        }
    }
}
