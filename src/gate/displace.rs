//! An item that finds no room takes that of another: the oldest one's, or a share of the youngest one's.

use std::mem;

use super::{Claim, Desk, Effects, Gate, Locked, Means, Tag};
use crate::ledger::Outcome;
use crate::ring::{HeadGuard, Popped, Rotation};
use crate::state::Reflex;
use crate::sync::{Backoff, Fault, fault};

/// How an eviction ended.
#[derive(Debug)]
pub(crate) enum Evicted<T> {
    /// The item is in, for the victim, or in room that has come meanwhile.
    Stored,
    /// The intake is shut.
    Closed(T),
    /// Nothing can be displaced: all is in flight or reserved.
    Full(T),
    /// The oldest is claimed and not written yet; or what is needed by size may come of another one that is not.
    Unwritten(T),
}

/// What became of an item that was to share the youngest one's place.
#[derive(Debug)]
pub(crate) enum Merged<T> {
    /// There was room.
    Stored,
    /// It stands for both; the other one comes back.
    Displaced(T),
    /// The youngest stands for both.
    Outweighed(T),
    /// The intake is shut.
    Closed(T),
    /// Nothing is buffered: all is in flight or reserved.
    Full(T),
    /// The youngest is claimed and not written yet; or it may fit by size as soon as another one is.
    Unwritten(T),
}

/// How an item that finds no room takes the place of the oldest one.
#[must_use = "a place that stays unwritten is waited for"]
pub(crate) enum Eviction<'a, T, R> {
    /// By an ordinary claim: on credit, or of room that has come meanwhile.
    Unlocked(Claim<'a, T, R>),
    Locked(Rotation<'a, T, Desk<T, R>>),
}

impl<T, R> Eviction<'_, T, R> {
    /// Stores the item: the victim, if anybody minds it, and whether to raise the [`alarm`](Gate::alarm).
    #[inline(always)]
    pub(crate) fn admit(self, item: T) -> (Option<T>, bool) {
        match self {
            Self::Unlocked(claim) => (None, claim.fill(item)),
            Self::Locked(mut rotation) => {
                // The depth is what it was, so there is no peak to note.
                rotation.ledger.total.lost.evicted += 1;
                // Only where every push that finds no room evicts may the next ones do so unasked.
                let lends = rotation.posture.reflex == Reflex::Evict;
                let (victim, alarm) = rotation.rotate(item, lends);
                (Some(victim), alarm)
            }
        }
    }
}

impl<T, R> Gate<T, R> {
    /// An eviction at its plainest: the buffer is full, no item has a tag, and nobody waits, flushes or wants to hear of it.
    /// Everything else is [`evict`](Locked::evict)'s.
    #[must_use]
    pub(crate) fn eviction(&self) -> Option<Eviction<'_, T, R>> {
        // One of many that want the lock all the time: for a while it lets the others go first, and looks whether one of them has
        // left credit.
        let mut backoff = Backoff::patient();
        while !backoff.is_exhausted() {
            if self.ring.has_credit() {
                if let Some(claim) = self.ring.claim(Means::Credit) {
                    return Some(Eviction::Unlocked(claim));
                }
                backoff.spin();
            } else if let Some(head) = self.ring.try_lock_to_evict() {
                return Self::rotation(head).map(Eviction::Locked);
            } else {
                backoff.spin();
            }
        }
        Self::rotation(self.ring.lock()).map(Eviction::Locked)
    }

    /// The same under the lock, unless somebody holds it: a quarter of the instructions of `evict`.
    #[inline(always)]
    #[must_use]
    pub(crate) fn try_eviction(&self) -> Option<Eviction<'_, T, R>> {
        Self::rotation(self.ring.try_lock_to_evict()?).map(Eviction::Locked)
    }

    #[inline(always)]
    fn rotation(mut head: HeadGuard<'_, T, Desk<T, R>>) -> Option<Rotation<'_, T, Desk<T, R>>> {
        note_displaced(&mut head);
        if head.is_concerned() {
            return None;
        }
        head.rotation()
    }
}

/// Counts what was evicted on credit: by whoever takes the lock, before anything else.
#[inline(always)]
pub(super) fn note_displaced<T, R>(head: &mut HeadGuard<'_, T, Desk<T, R>>) {
    head.ledger.total.lost.evicted += head.take_displaced();
}

impl<T, R> Desk<T, R> {
    /// Whether an eviction concerns anybody here. One test of four words.
    #[inline(always)]
    fn is_concerned(&self) -> bool {
        self.tags.len() | self.waiters.queued() | self.ledger.barriers() | usize::from(self.is_watched) != 0
    }
}

impl<T, R> Locked<'_, T, R> {
    /// Displaces the oldest item, which comes back, for `item`: one for one, so no room comes of it, and nobody's turn passes.
    /// Ends with [`finish_eviction`](Self::finish_eviction).
    pub(crate) fn evict(&mut self, item: T, tag: &mut Tag) -> (Evicted<T>, Option<T>) {
        if self.head.tail().is_closed() && !fault(Fault::EvictIgnoresClosed) {
            return (Evicted::Closed(item), None);
        }
        // Room that has come meanwhile is the waiters' first.
        self.serve();
        let item = match self.place(item, tag) {
            Ok(()) => return (Evicted::Stored, None),
            Err(item) => item,
        };
        let victim = match self.head.pop() {
            Popped::Item(victim) => victim,
            Popped::Empty => return (Evicted::Full(item), None),
            Popped::Unwritten => return (Evicted::Unwritten(item), None),
        };
        let position = self.head.taken_total() - 1;
        self.settle(position..position + 1, Outcome::Evicted);
        // The victim's room is not published: nobody else can have it.
        let evicted = match self.head.place_instead(item, None) {
            Ok(place) => {
                self.attach(place, tag);
                Evicted::Stored
            }
            Err(item) => Evicted::Full(item),
        };
        (evicted, Some(victim))
    }

    /// Ends a section that evicted: one item left for each that came, so the state need not be followed.
    pub(crate) fn finish_eviction(mut self) -> Effects {
        self.head.publish();
        if self.effects.is_none() && !self.gate.ring.is_due(self.head.tail()) {
            return self.effects;
        }
        self.finish()
    }

    /// Has an item share the youngest one's place: by `draws_new`, given both weights, one of them goes and the other
    /// stands for both, so that the sum of the weights is kept (a weighted reservoir of one: Chao 1982).
    pub(crate) fn merge(&mut self, item: T, tag: &mut Tag, draws_new: impl FnOnce(u64, u64) -> bool) -> Merged<T> {
        if self.head.tail().is_closed() && !fault(Fault::MergeIgnoresClosed) {
            return Merged::Closed(item);
        }
        self.serve();
        let item = match self.store(item, tag) {
            Ok(()) => return Merged::Stored,
            Err(item) => item,
        };
        let Some(position) = self.figures().youngest() else { return Merged::Full(item) };
        let weight = self.head.tags.weight(position);
        // One that is too heavy for the place cannot have it, whatever is drawn.
        let has_way = if draws_new(weight, tag.weight) { self.make_way(position, tag.size) } else { Some(false) };
        match has_way {
            Some(true) => {}
            Some(false) => {
                self.head.tags.add_weight(position, tag.weight);
                return Merged::Outweighed(item);
            }
            None => return Merged::Unwritten(item),
        }
        let displaced = match self.head.exchange(position, item) {
            Ok(displaced) => displaced,
            Err(item) => return Merged::Unwritten(item),
        };
        let desk: &mut Desk<T, R> = &mut self.head;
        desk.ledger.displace(position, &mut self.effects.wakers);
        self.tell_fates(&(position..position + 1), Outcome::Evicted, None);
        let mut tag = mem::replace(tag, Tag::PLAIN);
        tag.weight = tag.weight.saturating_add(weight);
        self.head.tags.insert(position, tag);
        Merged::Displaced(displaced)
    }
}
