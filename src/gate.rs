//! The gate of the ring: who may come in, who waits, and who must be woken.
//!
//! All that is not the fast path happens in a [`Locked`] section under the head lock. A section ends by
//! [`Locked::finish`], which hands free room to the oldest waiters, publishes the rest, follows the state, and arms the
//! alarm anew; what must happen outside the lock comes back as [`Effects`]. No user code runs inside.

mod claims;
mod displace;
mod figures;
#[cfg(all(test, backpressure_loom))]
mod loom;
mod notes;
mod prepaid;
mod release;
mod resize;
mod sized;
mod stamps;
mod stowage;
mod survey;
mod tags;
#[cfg(all(test, not(backpressure_loom)))]
mod tests;
mod volume;
mod waiters;

use std::error::Error;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

pub(crate) use self::claims::Claim;
pub(crate) use self::displace::{Evicted, Eviction, Merged};
pub(crate) use self::figures::Figures;
use self::prepaid::Held;
pub(crate) use self::prepaid::PrepaidClaim;
pub(crate) use self::sized::Misfit;
pub(crate) use self::stamps::Born;
use self::stamps::Stamps;
use self::stowage::Stowage;
pub(crate) use self::tags::Tag;
use self::tags::Tags;
pub(crate) use self::volume::Limits;
pub use self::volume::MAX_CAPACITY_WEIGHT;
use self::volume::Volume;
use self::waiters::Waiters;
pub(crate) use self::waiters::{Key, Parked, Wait};
use crate::error::RefuseReason;
use crate::ledger::{Ledger, Outcome, Refusals};
use crate::receipt::{Fate, Receipt};
pub(crate) use crate::ring::{Late, Means, Miss};
use crate::ring::{Ring, Word};
use crate::spread::Spread;
use crate::state::{Levels, Machine, Posture, Reflex, Scale, State, StateCell, Transitions};
use crate::sync::{Fault, fault};
use crate::time::{Clock, Tick};

/// The ring with its waiters and accounts; `R` is what the floors above keep under the head lock.
#[derive(Debug)]
pub(crate) struct Gate<T, R> {
    ring: Ring<T, Desk<T, R>>,
    /// The bound by size; only with a weigher.
    volume: Option<Box<Volume>>,
    /// The least size that is too heavy for a prepaid place; 0 without a weigher. Here, and not in the box: a swap waits for what is loaded
    /// before it.
    heavy: u64,
    state: StateCell,
    scale: Scale,
    refusals: Refusals,
    clock: Clock,
}

/// What the head lock guards.
#[derive(Debug)]
pub(crate) struct Desk<T, R> {
    waiters: Waiters<T>,
    pub(crate) ledger: Ledger,
    machine: Machine,
    posture: Posture,
    stamps: Stamps,
    is_aging: bool,
    tags: Tags,
    stowage: Stowage,
    /// The buffer was seen empty: the next item is the first, and its time is to be noted.
    empty: bool,
    /// The flusher sleeps until the buffer reaches this place, or until something else happens.
    sleeper: Option<Option<Word>>,
    /// Producers were let in that have hardly had their turn: the flusher has kept its thread since.
    pub(crate) has_served: bool,
    /// How long producers have waited: those whose wait is over.
    pub(crate) waits: Spread,
    /// Since when the state is what it is.
    pub(crate) state_since: Tick,
    /// The flusher wants to hear of the next loss, and of the next change of the state.
    pub(crate) is_watched: bool,
    pub(crate) rest: R,
}

/// What the items are to those outside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stock {
    /// Each is handed out, whatever becomes of it.
    Minded,
    /// Nobody wants to have one that was evicted, nor does its destructor do anything.
    Unminded,
    /// They have sizes, within these limits.
    Weighed(Limits),
}

type SharedError = Arc<dyn Error + Send + Sync>;

/// What is to be done after the lock is released.
#[derive(Debug, Default)]
#[must_use = "wakers must be woken and the bell rung"]
pub(crate) struct Effects {
    /// Producers that were served or shut out, and flushes that are complete.
    pub(crate) wakers: Vec<Waker>,
    /// The flusher has something to look at.
    pub(crate) bell: bool,
    /// The published state has changed.
    pub(crate) state: bool,
    /// What became of items whose producers want to know.
    pub(crate) fates: Vec<(Receipt, Fate)>,
}

impl Effects {
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.wakers.is_empty() && !self.bell && !self.state && self.fates.is_empty()
    }
}

/// Why a producer cannot be served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Full,
    Closed,
}

impl<T, R> Gate<T, R> {
    /// `None` if the memory cannot be had.
    pub(crate) fn new(capacity: usize, levels: Levels, stock: Stock, clock: Clock, rest: R) -> Option<Self> {
        let desk = Desk {
            waiters: Waiters::new(),
            ledger: Ledger::default(),
            machine: Machine::new(levels),
            posture: Posture::REFUSE,
            stamps: Stamps::new(),
            is_aging: false,
            tags: Tags::new(),
            stowage: Stowage::default(),
            empty: true,
            sleeper: None,
            has_served: false,
            waits: Spread::default(),
            state_since: clock.now(),
            is_watched: false,
            rest,
        };
        let (ring, limits) = match stock {
            Stock::Minded => (Ring::new(capacity, desk)?, None),
            Stock::Unminded => (Ring::with_credit(capacity, desk)?, None),
            Stock::Weighed(limits) => (Ring::with_sizes(capacity, desk)?, Some(limits)),
        };
        let volume = limits.map(|limits| Box::new(Volume::new(limits, capacity as u64)));
        let gate = Self {
            ring,
            heavy: volume.as_ref().map_or(0, |volume| volume.allowance() + 1),
            volume,
            state: StateCell::new(limits.is_some()),
            scale: Scale::new(&levels),
            refusals: Refusals::default(),
            clock,
        };
        let quiet = gate.lock().finish();
        debug_assert!(!quiet.bell, "nobody sleeps yet");
        Some(gate)
    }

    /// Stores as many as fit, from the front; `true` asks for [`alarm`](Self::alarm).
    pub(crate) fn push_many(&self, items: &mut Vec<T>) -> bool {
        self.ring.push_many(items)
    }

    /// Reserves `n` places at once; `Some(true)` asks for [`alarm`](Self::alarm).
    pub(crate) fn reserve(&self, n: u64) -> Option<bool> {
        self.ring.reserve(n)
    }

    /// Turns a reserved place into an item: whether to raise the alarm, and whether the intake is shut.
    pub(crate) fn send(&self, item: T) -> (bool, bool) {
        let (alarm, word) = self.ring.send(item);
        (alarm, word.is_closed())
    }

    /// A producer has reached the armed level: see who waits for it.
    #[cold]
    pub(crate) fn alarm(&self) -> Effects {
        self.lock().finish()
    }

    pub(crate) fn lock(&self) -> Locked<'_, T, R> {
        self.lock_with(None)
    }

    /// A section for whoever has just looked at the clock, which takes longer than the rest of most sections.
    pub(crate) fn lock_at(&self, now: Tick) -> Locked<'_, T, R> {
        self.lock_with(Some(now))
    }

    #[inline(always)]
    fn lock_with(&self, now: Option<Tick>) -> Locked<'_, T, R> {
        let mut head = self.ring.lock();
        displace::note_displaced(&mut head);
        let head = Held::new(head, self.volume.as_deref());
        Locked { gate: self, head, effects: Effects::default(), now }
    }

    /// The published state.
    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// Whether a push may go straight to the ring: nobody is to be asked about the item, and it has no size.
    #[inline(always)]
    pub(crate) fn is_direct(&self) -> bool {
        self.state.is_direct()
    }

    /// Whether the strategy is to be asked about every item now.
    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        self.state.is_asked()
    }

    pub(crate) fn reflex(&self) -> Reflex {
        self.state.reflex()
    }

    /// How many places must come free before the depth, with so many items more, is below the high mark.
    pub(crate) fn excess(&self, items: u64) -> f64 {
        self.depth() as f64 + items as f64 - self.scale.high()
    }

    pub(crate) fn depth(&self) -> u64 {
        self.ring.depth()
    }

    pub(crate) fn len(&self) -> u64 {
        self.ring.len()
    }

    /// The present capacity.
    pub(crate) fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// The largest capacity: what it was built with.
    pub(crate) fn max_capacity(&self) -> usize {
        self.ring.max_capacity()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// A section under the head lock.
pub(crate) struct Locked<'a, T, R> {
    gate: &'a Gate<T, R>,
    head: Held<'a, T, R>,
    effects: Effects,
    /// Of this section, or shortly before it, once somebody has asked.
    now: Option<Tick>,
}

impl<T, R> Locked<'_, T, R> {
    /// What lives under the lock.
    pub(crate) fn desk(&mut self) -> &mut Desk<T, R> {
        &mut self.head
    }

    /// Items that are buffered, as far as this thread knows: it leaves the producers' word alone.
    pub(crate) fn about_buffered(&self) -> u64 {
        self.head.buffered(self.head.tail())
    }

    /// The position of the oldest buffered item: how many were taken since the start.
    pub(crate) fn taken(&self) -> u64 {
        self.head.taken_total()
    }

    /// A last try under the lock, where "full" is final; what is left of `parked` is to be queued, or is shut out.
    pub(crate) fn try_serve(&mut self, parked: &mut Parked<T>) -> Result<(), NoRoom> {
        // Whether this reaches the alarm does not matter: `finish` looks anyway.
        match parked {
            _ if self.is_outranked() => {}
            Parked::One(slot) => {
                if let Some((item, mut tag)) = slot.take() {
                    *slot = self.store(item, &mut tag).err().map(|item| (item, tag));
                }
            }
            Parked::Many(items, sizes) if self.gate.volume.is_some() => self.serve_many(items, sizes),
            Parked::Many(items, _) => {
                while let Some(item) = items.pop_front() {
                    if let Err(item) = self.gate.ring.push(item) {
                        items.push_front(item);
                        break;
                    }
                }
            }
            // In part, too: whoever waits must find the ring full.
            Parked::Permits { wanted, granted, size } => {
                if !self.head.tail().is_closed() {
                    *granted += self.grant(*wanted - *granted, *size);
                }
            }
        }
        match parked.is_served() {
            true => Ok(()),
            false if self.head.tail().is_closed() => Err(NoRoom::Closed),
            false => Err(NoRoom::Full),
        }
    }

    /// Queues a waiter. The caller has found the ring full under this lock.
    pub(crate) fn park(&mut self, parked: Parked<T>, waker: Waker) -> Key {
        let now = self.now();
        self.head.waits.reserve();
        let key = self.head.waiters.enqueue(parked, waker, now);
        if !fault(Fault::EnqueueSilent) {
            // A producer that waits is a reason to flush.
            self.rouse();
        }
        key
    }

    /// What the waiter finds, and a waker to be dropped outside the lock.
    pub(crate) fn poll_waiter(&mut self, key: Key, waker: Waker) -> (Wait<T>, Option<Waker>) {
        self.head.waiters.poll(key, waker)
    }

    /// Takes a waiter out, in whatever phase, and gives its granted places back. `reason` is why its items that are not
    /// handed over go back, if they were not shut out already; `None` is the producer's own wish.
    pub(crate) fn dequeue(&mut self, key: Key, reason: Option<RefuseReason>) -> (Wait<T>, Option<Waker>) {
        let before = self.head.waiters.items();
        if let Some(since) = self.head.waiters.since(key) {
            self.note_wait(since);
        }
        let waker = self.head.waiters.take_waker(key);
        let wait = self.head.waiters.remove(key);
        let left = (before - self.head.waiters.items()) as u64;
        match reason {
            Some(reason) => self.gate.refusals.add(reason, left),
            None => self.head.ledger.cancelled += left,
        }
        if reason.is_none() || matches!(wait, Wait::Shut(_) | Wait::Left(_)) {
            let (Wait::Served(parked) | Wait::Shut(parked) | Wait::Left(parked)) = &wait else { return (wait, waker) };
            let (granted, size) = parked.granted();
            if !fault(Fault::CancelKeepsGrant) {
                self.release(granted, size);
            }
        }
        (wait, waker)
    }

    /// Stores an item with a tag, if there is room and the intake is open.
    pub(crate) fn store(&mut self, item: T, tag: &mut Tag) -> Result<(), T> {
        if self.head.tail().is_closed() || self.is_outranked() {
            return Err(item);
        }
        self.place(item, tag)
    }

    /// Writes into `weights` what the items at these positions stand for: nothing if each stands for itself.
    pub(crate) fn weights(&mut self, positions: impl Iterator<Item = u64>, weights: &mut Vec<u64>) {
        weights.clear();
        if self.head.tags.is_empty() {
            return;
        }
        weights.extend(positions.map(|position| self.head.tags.weight(position)));
        if weights.iter().all(|weight| *weight == 1) {
            weights.clear();
        }
    }

    /// Moves up to `max` buffered items to the end of `out`.
    pub(crate) fn take(&mut self, max: usize, out: &mut Vec<T>) -> usize {
        self.take_within(max, None, out).0
    }

    /// The same for a batch, which may be bounded by size, too: how many, and whether there would have been more otherwise.
    pub(crate) fn take_batch(&mut self, max: usize, out: &mut Vec<T>) -> (usize, bool) {
        self.take_within(max, self.batch_size(), out)
    }

    /// Settles the taken items at `positions`: counts them, and gives their room free.
    pub(crate) fn settle(&mut self, positions: Range<u64>, outcome: Outcome) {
        self.settle_with(positions, outcome, None);
    }

    /// Where all would end that is settled, if it were settled in order.
    fn gone(&self) -> u64 {
        self.head.taken_total() - self.head.in_flight()
    }

    /// Like [`settle`](Self::settle), with what the sink said, for those who want to know.
    pub(crate) fn settle_with(&mut self, positions: Range<u64>, outcome: Outcome, error: Option<&SharedError>) {
        let size = self.unload(&positions);
        self.count_out(positions, outcome, error, size);
    }

    #[inline]
    fn count_out(&mut self, positions: Range<u64>, outcome: Outcome, error: Option<&SharedError>, size: u64) {
        if !self.head.tags.is_empty() {
            self.tell_fates(&positions, outcome, error);
        }
        self.note_peak();
        let from = if fault(Fault::RoomByPosition) { self.gone() } else { positions.start };
        self.head.free(positions.end.saturating_sub(from));
        if outcome != Outcome::Delivered {
            self.note_watched();
        }
        let desk: &mut Desk<T, R> = &mut self.head;
        if size > 0 {
            desk.ledger.sizes.add(outcome, size);
        }
        desk.ledger.settle(positions, outcome, &mut self.effects.wakers);
    }

    /// Shuts the intake: whoever waits is shut out, and the flusher is told.
    pub(crate) fn close(&mut self) {
        if !self.head.close() {
            return;
        }
        while let Some(since) = self.head.waiters.oldest() {
            let Some((items, (granted, size), waker)) = self.head.waiters.pop_shut() else { break };
            self.note_wait(since);
            self.gate.refusals.add(RefuseReason::Closed, items);
            self.effects.wakers.extend(waker);
            if granted > 0 {
                self.head.give_back(granted);
                self.unreserve(size);
            }
        }
        self.effects.bell = true;
    }

    /// Items and producers that wait.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        (self.head.waiters.items() as u64, self.head.waiters.queued() as u64)
    }

    /// The flusher sleeps until `items` are buffered (`None`: until something else happens).
    pub(crate) fn sleep(&mut self, items: Option<u64>) {
        let target = items.map(|items| self.head.target(items));
        self.head.sleeper = Some(target);
    }

    /// Wakes the flusher if it sleeps.
    pub(crate) fn rouse(&mut self) {
        if self.head.sleeper.take().is_some() {
            self.effects.bell = true;
        }
    }

    /// Has the flusher look, whether it sleeps or waits for the sink.
    pub(crate) fn ring_bell(&mut self) {
        self.effects.bell = true;
    }

    /// The state and its history.
    pub(crate) fn state(&self) -> (State, Transitions) {
        (self.gate.state.get(), self.head.machine.transitions())
    }

    /// What pushes are to know of the strategy.
    pub(crate) fn set_posture(&mut self, posture: Posture) {
        self.head.posture = posture;
        self.gate.state.set(self.gate.state.get(), posture);
    }

    /// Ends the section: serves the waiters, publishes the room, follows the state, arms the alarm, unlocks.
    pub(crate) fn finish(mut self) -> Effects {
        self.wind_up();
        self.effects
    }

    /// Ends a section that has moved items out and given no room free. As long as something is left, the depth, the alarm and
    /// who waits are as they were; only the age of what is left is another one. By size room may have come.
    pub(crate) fn finish_taking(self) -> Effects {
        let is_empty = self.head.buffered(self.head.tail()) == 0;
        if self.head.empty || is_empty || self.head.is_aging || self.is_outranked() {
            self.finish()
        } else {
            self.effects
        }
    }

    /// All of [`finish`](Self::finish) but the end of the section.
    pub(crate) fn wind_up(&mut self) {
        self.serve();
        self.follow_queue();
        self.head.publish();
        self.survey();
        // Nobody else tells when it is settled.
        self.effects.bell |= self.is_unsettled();
    }

    /// Ends a section that has moved no item and given no room free.
    pub(crate) fn leave(self) -> Effects {
        self.effects
    }

    /// Stores an item in free room, published or not.
    #[inline]
    fn place(&mut self, item: T, tag: &mut Tag) -> Result<(), T> {
        if self.gate.volume.is_some() {
            return self.place_sized(item, tag);
        }
        let place = self.head.place(item, None)?;
        self.attach(place, tag);
        Ok(())
    }

    /// Keeps what the item that was stored at this place carries.
    #[inline]
    fn attach(&mut self, place: Word, tag: &mut Tag) {
        if !tag.is_plain() {
            let position = self.head.position(place.place());
            self.head.tags.insert(position, mem::replace(tag, Tag::PLAIN));
        }
    }

    #[cold]
    fn tell_fates(&mut self, positions: &Range<u64>, outcome: Outcome, error: Option<&SharedError>) {
        while let Some(tag) = self.head.tags.pop_in(positions) {
            let told = tag.receipt.map(|receipt| (receipt, outcome.fate(error)));
            self.effects.fates.extend(told);
        }
    }
}
