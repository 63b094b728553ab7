//! The oracle's futures: what each must answer when it is polled now.

use std::collections::VecDeque;

use backpressure::{LossReason, RefuseReason, ReserveError};

use super::case::Millis;
use super::oracle::{Fid, Oracle};
use super::oracle_offers::Offer;
use super::world::Id;

/// A future that was made and has not answered.
#[derive(Debug)]
pub enum Pending {
    Push { id: Id, limit: Millis, wait: Stage },
    All(All),
    Reserve { places: u64, granted: u64, wait: Stage },
    Flush,
    Drain { limit: Millis, is_joined: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Fresh,
    /// Polled without a budget; it has done nothing yet.
    Deferred,
    Queued {
        deadline: Millis,
    },
    Served,
    Shut,
    /// A reservation of more places than there were at a moment.
    Unfit {
        most: usize,
    },
}

#[derive(Debug)]
pub struct All {
    pub next: Id,
    pub end: Id,
    pub panics_at: Option<Id>,
    pub chunk: VecDeque<Id>,
    pub accepted: usize,
    pub wait: Stage,
    pub has_panicked: bool,
    /// Pulled after the chunk, and too heavy.
    heavy: Option<Id>,
    is_exhausted: bool,
}

/// What a poll must answer.
#[derive(Debug, PartialEq)]
pub enum Expect {
    Pending,
    Pushed(Result<(), RefuseReason>),
    All(Result<usize, (RefuseReason, usize, Vec<Id>)>),
    Panic,
    Reserved(Result<usize, ReserveError>),
    Flushed,
    Drained,
}

impl All {
    pub fn new(first: Id, items: u32, panics_at: Option<u32>) -> Self {
        Self {
            next: first,
            end: first + items,
            panics_at: panics_at.map(|at| first + at).filter(|at| *at < first + items),
            chunk: VecDeque::new(),
            accepted: 0,
            wait: Stage::Fresh,
            has_panicked: false,
            heavy: None,
            is_exhausted: false,
        }
    }

    fn pull(&mut self, oracle: &mut Oracle) {
        while self.chunk.len() < 64 {
            if self.panics_at == Some(self.next) {
                self.has_panicked = true;
                break;
            }
            if self.next == self.end {
                self.is_exhausted = true;
                break;
            }
            let id = self.next;
            self.next += 1;
            oracle.count.offered += 1;
            oracle.weigh(id);
            if oracle.is_too_heavy(id) {
                self.heavy = Some(id);
                break;
            }
            self.chunk.push_back(id);
        }
    }
}

impl Oracle {
    /// Items in the queue.
    pub fn waiting(&self) -> u64 {
        let items = |fid: &Fid| match &self.pending[fid] {
            Pending::Push { .. } => 1,
            Pending::All(all) => all.chunk.len() as u64,
            _ => 0,
        };
        self.queue.iter().map(items).sum()
    }

    /// Offered, and still in the hands of a future that could not go on without a budget.
    pub fn deferred(&self) -> u64 {
        let items = |pending: &Pending| match pending {
            Pending::Push { wait: Stage::Deferred, .. } => 1,
            Pending::All(all) => {
                let chunk = if all.wait == Stage::Deferred { all.chunk.len() } else { 0 };
                (chunk + usize::from(all.heavy.is_some())) as u64
            }
            _ => 0,
        };
        self.pending.values().map(items).sum()
    }

    /// Hands free room to the oldest waiters.
    pub fn serve(&mut self) {
        while self.room() > 0 {
            let Some(&fid) = self.queue.front() else { return };
            let (free, size) = (self.places(), self.permit_size());
            let head = match &self.pending[&fid] {
                Pending::Push { id, .. } => Some(*id),
                Pending::All(all) => all.chunk.front().copied(),
                _ => None,
            };
            if head.map_or(free == 0, |id| self.size(id) > self.spare()) {
                return;
            }
            let Some(mut pending) = self.pending.remove(&fid) else { panic!("{fid} is queued and gone") };
            let is_served = match &mut pending {
                Pending::Push { id, .. } => {
                    self.accept(*id);
                    true
                }
                Pending::All(all) => {
                    if let Some(id) = all.chunk.pop_front() {
                        self.accept(id);
                        all.accepted += 1;
                    }
                    all.chunk.is_empty()
                }
                Pending::Reserve { places, granted, .. } => {
                    let more = free.min(*places - *granted);
                    *granted += more;
                    self.reserved += more;
                    self.weighed.reserved += more * size;
                    self.note_peak();
                    granted == places
                }
                other => panic!("{other:?} waits for no room"),
            };
            if is_served {
                self.queue.pop_front();
                *pending.wait() = Stage::Served;
            }
            self.pending.insert(fid, pending);
        }
    }

    /// Polls a future that was made and has not answered.
    pub fn poll(&mut self, fid: Fid, is_exhausted: bool) -> Expect {
        let Some(mut pending) = self.pending.remove(&fid) else { panic!("{fid} is polled and gone") };
        let expect = match &mut pending {
            Pending::Push { id, limit, wait } => self.poll_push(fid, *id, *limit, wait, is_exhausted),
            Pending::All(all) => self.poll_all(fid, all, is_exhausted),
            Pending::Reserve { places, granted, wait } => self.poll_reserve(fid, *places, granted, wait, is_exhausted),
            Pending::Flush => self.poll_flush(fid),
            Pending::Drain { limit, is_joined } => self.poll_drain(fid, *limit, is_joined, is_exhausted),
        };
        if expect == Expect::Pending {
            self.pending.insert(fid, pending);
        }
        expect
    }

    fn poll_push(&mut self, fid: Fid, id: Id, limit: Millis, wait: &mut Stage, is_exhausted: bool) -> Expect {
        match *wait {
            Stage::Served => return Expect::Pushed(Ok(())),
            Stage::Shut => return Expect::Pushed(Err(RefuseReason::Closed)),
            Stage::Queued { deadline } => {
                if deadline.is_none_or(|at| at > self.now) || is_exhausted {
                    return Expect::Pending;
                }
                self.leave(fid);
                self.refuse(RefuseReason::TimedOut, 1);
                self.follow_queue();
                return Expect::Pushed(Err(RefuseReason::TimedOut));
            }
            Stage::Fresh => {
                self.count.offered += 1;
                self.weigh(id);
            }
            Stage::Deferred => {}
            Stage::Unfit { .. } => panic!("an item fits"),
        }
        if is_exhausted && (self.is_closed || self.is_asked() || !self.tries(id)) {
            *wait = Stage::Deferred;
            return Expect::Pending;
        }
        match self.offer(id, false) {
            Offer::Stored => Expect::Pushed(Ok(())),
            Offer::Refused(reason) => Expect::Pushed(Err(reason)),
            Offer::Wait(strategy) => {
                let limit = [strategy, limit].into_iter().flatten().min();
                if limit == Some(0) {
                    self.refuse(RefuseReason::TimedOut, 1);
                    return Expect::Pushed(Err(RefuseReason::TimedOut));
                }
                *wait = Stage::Queued { deadline: limit.map(|limit| self.now + limit) };
                self.queue.push_back(fid);
                self.observe();
                Expect::Pending
            }
        }
    }

    fn poll_all(&mut self, fid: Fid, all: &mut All, is_exhausted: bool) -> Expect {
        loop {
            match all.wait {
                Stage::Queued { deadline } => {
                    if deadline.is_none_or(|at| at > self.now) || is_exhausted {
                        return Expect::Pending;
                    }
                    self.leave(fid);
                    self.refuse(RefuseReason::TimedOut, all.chunk.len());
                    self.follow_queue();
                    return self.end_all(all, RefuseReason::TimedOut);
                }
                Stage::Shut => return self.end_all(all, RefuseReason::Closed),
                Stage::Served | Stage::Fresh | Stage::Deferred => all.wait = Stage::Fresh,
                Stage::Unfit { .. } => panic!("an item fits"),
            }
            if all.chunk.is_empty() {
                if all.heavy.is_some() {
                    let reason = if self.is_closed { RefuseReason::Closed } else { RefuseReason::TooLarge };
                    return self.end_all(all, reason);
                }
                if all.has_panicked {
                    return Expect::Panic;
                }
                if all.is_exhausted {
                    return Expect::All(Ok(all.accepted));
                }
                all.pull(self);
                continue;
            }
            // In one claim, whatever state it leads to; weighed ones in one each.
            while let Some(&id) = all.chunk.front() {
                if self.is_closed || self.is_asked() || !self.tries(id) {
                    break;
                }
                all.chunk.pop_front();
                self.accept(id);
                all.accepted += 1;
                if self.bounds().is_some() {
                    self.observe();
                }
            }
            self.observe();
            let Some(&first) = all.chunk.front() else { continue };
            if is_exhausted {
                all.wait = Stage::Deferred;
                return Expect::Pending;
            }
            match self.offer(first, false) {
                Offer::Stored => {
                    all.chunk.pop_front();
                    all.accepted += 1;
                }
                // A sample is no reason to stop: the hook is told.
                Offer::Refused(RefuseReason::Sampled) => {
                    all.chunk.pop_front();
                    self.lose(first, LossReason::Refused(RefuseReason::Sampled));
                    self.tell_hook();
                }
                Offer::Refused(reason) => {
                    self.refuse(reason, all.chunk.len() - 1);
                    return self.end_all(all, reason);
                }
                Offer::Wait(Some(0)) => {
                    self.refuse(RefuseReason::TimedOut, all.chunk.len());
                    return self.end_all(all, RefuseReason::TimedOut);
                }
                Offer::Wait(limit) => {
                    all.wait = Stage::Queued { deadline: limit.map(|limit| self.now + limit) };
                    self.queue.push_back(fid);
                    self.observe();
                    return Expect::Pending;
                }
            }
        }
    }

    fn end_all(&mut self, all: &mut All, reason: RefuseReason) -> Expect {
        if all.has_panicked {
            return Expect::Panic;
        }
        let heavy = all.heavy.take();
        self.refuse(reason, usize::from(heavy.is_some()));
        // The rest is not asked for any further than it panics.
        let rest = all.next..all.panics_at.unwrap_or(all.end);
        Expect::All(Err((reason, all.accepted, all.chunk.drain(..).chain(heavy).chain(rest).collect())))
    }

    fn poll_reserve(&mut self, fid: Fid, n: u64, granted: &mut u64, wait: &mut Stage, is_exhausted: bool) -> Expect {
        let too_many = |capacity| Expect::Reserved(Err(ReserveError::TooMany { asked: n as usize, capacity }));
        match *wait {
            Stage::Unfit { most } => return too_many(most),
            Stage::Served => return Expect::Reserved(Ok(n as usize)),
            Stage::Shut => return Expect::Reserved(Err(ReserveError::Closed)),
            Stage::Queued { .. } => return Expect::Pending,
            Stage::Fresh | Stage::Deferred => {}
        }
        let size = self.permit_size();
        let by_weight = self.bounds().map_or(u64::MAX, |bounds| bounds.capacity / size);
        let most = by_weight.min(self.capacity as u64);
        if n > most {
            return too_many(most as usize);
        }
        if n == 0 || !self.is_closed && self.places_for_newcomer() >= n {
            assert!(n == 0 || self.queue.is_empty(), "free room and a waiter");
            self.reserved += n;
            self.weighed.reserved += n * size;
            self.note_peak();
            self.observe();
            return Expect::Reserved(Ok(n as usize));
        }
        if is_exhausted {
            return Expect::Pending;
        }
        if self.is_closed {
            return Expect::Reserved(Err(ReserveError::Closed));
        }
        *granted = self.places_for_newcomer().min(n);
        self.reserved += *granted;
        self.weighed.reserved += *granted * size;
        self.note_peak();
        *wait = Stage::Queued { deadline: None };
        self.queue.push_back(fid);
        self.observe();
        Expect::Pending
    }

    fn poll_flush(&mut self, fid: Fid) -> Expect {
        if !self.barriers.contains_key(&fid) {
            self.open_barrier(fid);
        }
        if self.barriers[&fid].outstanding == 0 { Expect::Flushed } else { Expect::Pending }
    }

    fn poll_drain(&mut self, fid: Fid, limit: Millis, is_joined: &mut bool, is_exhausted: bool) -> Expect {
        if !std::mem::replace(is_joined, true) {
            self.start_drain(fid, limit);
        }
        // A flusher that does not hand over in time is not waited for.
        if !self.is_finished && self.deadline.is_some_and(|at| at + 100 <= self.now) && !is_exhausted {
            self.finish();
        }
        if self.is_finished { Expect::Drained } else { Expect::Pending }
    }

    /// Takes a waiter out of the queue.
    fn leave(&mut self, fid: Fid) {
        let at = self.queue.iter().position(|queued| *queued == fid);
        self.queue.remove(at.unwrap_or_else(|| panic!("{fid} is not queued")));
    }

    /// A future is dropped before it answered.
    pub fn cancel(&mut self, fid: Fid) {
        let Some(pending) = self.pending.remove(&fid) else { return };
        let is_queued = self.queue.contains(&fid);
        if is_queued {
            self.leave(fid);
        }
        match pending {
            Pending::Push { wait, .. } => {
                self.count.cancelled += u64::from(is_queued || wait == Stage::Deferred);
                self.follow_queue();
            }
            Pending::All(all) => {
                let chunk = if all.wait == Stage::Shut { 0 } else { all.chunk.len() };
                self.count.cancelled += (chunk + usize::from(all.heavy.is_some())) as u64;
                self.follow_queue();
            }
            Pending::Reserve { granted, .. } => {
                self.reserved -= granted;
                self.weighed.reserved -= granted * self.permit_size();
                self.serve();
                self.observe();
            }
            Pending::Flush => {
                self.barriers.remove(&fid);
            }
            Pending::Drain { is_joined, .. } => {
                if is_joined {
                    self.leave_drain(fid);
                }
            }
        }
    }
}

impl Pending {
    pub fn wait(&mut self) -> &mut Stage {
        match self {
            Self::Push { wait, .. } | Self::Reserve { wait, .. } => wait,
            Self::All(all) => &mut all.wait,
            other => panic!("{other:?} does not wait for room"),
        }
    }
}
