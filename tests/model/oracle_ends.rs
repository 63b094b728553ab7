//! The oracle's endings: of one call of the sink, and of the controller.

use backpressure::LossReason;

use super::case::{Answer, Hook, Millis, Outcome};
use super::oracle::{End, Fid, Flight, Ghost, Oracle, Phase, Said};
use super::oracle_waits::{Pending, Stage};
use super::sink::mark;
use super::world::Id;

impl Oracle {
    /// The call of the batch at `first` followed an outcome.
    pub fn acted(&mut self, first: u64, outcome: Outcome) {
        if let Some(at) = self.ghosts.iter().position(|ghost| ghost.in_call && ghost.first == first) {
            return self.acted_as_a_ghost(at, outcome);
        }
        let Some(index) = self.flight_at(first) else { panic!("the sink answers for no batch") };
        let flight = &mut self.flights[index];
        let Phase::Calling { since, extra, limit } = flight.phase else { panic!("{:?} cannot answer", flight.phase) };
        if let Answer::Extend(more) = outcome.answer {
            flight.phase = Phase::Calling { since, extra: extra + more, limit };
            return;
        }
        (flight.marks, flight.is_taken, flight.is_kept) = (outcome.edit.marks, outcome.edit.take, outcome.edit.keep);
        if outcome.answer != Answer::Hang {
            self.judge(index, outcome.into());
        }
    }

    /// A call goes on although its batch was abandoned.
    fn acted_as_a_ghost(&mut self, at: usize, outcome: Outcome) {
        if matches!(outcome.answer, Answer::Extend(_)) {
            return;
        }
        let ghost = &mut self.ghosts[at];
        if outcome.edit.take {
            ghost.items.clear();
        }
        if outcome.edit.keep {
            ghost.in_call = false;
        } else if outcome.answer != Answer::Hang {
            self.land_ghost(at);
        }
    }

    /// A call was dropped before it answered: by the flush timeout, by drain's deadline, or with the flusher.
    pub fn cut(&mut self, first: u64) {
        if let Some(at) = self.ghosts.iter().position(|ghost| ghost.in_call && ghost.first == first) {
            return self.land_ghost(at);
        }
        if self.is_finished {
            return;
        }
        let Some(index) = self.flight_at(first) else { panic!("no call can be cut") };
        let phase = self.flights[index].phase;
        let Phase::Calling { since, extra, limit } = phase else { panic!("{phase:?} cannot be cut") };
        let timeout = limit.map(|limit| since + limit + extra);
        let is_late = |at: Millis| at.is_some_and(|at| at <= self.now);
        if self.flusher_gone || is_late(self.deadline) {
            // It is judged by the end.
            self.flights[index].phase = Phase::Ended(End::Cancelled);
            return self.count_end(End::Cancelled);
        }
        assert!(is_late(timeout), "cut off before its time");
        self.judge(index, End::TimedOut);
    }

    /// A guard that was kept elsewhere comes home; the flusher judges when it next runs.
    pub fn landed(&mut self, first: u64) {
        if let Some(at) = self.ghosts.iter().position(|ghost| ghost.first == first && !ghost.in_call) {
            return self.land_ghost(at);
        }
        let Some(index) = self.flight_at(first) else { panic!("a guard of no batch") };
        let flight = &mut self.flights[index];
        assert!(flight.is_kept);
        (flight.is_kept, flight.is_back) = (false, true);
    }

    fn land_ghost(&mut self, at: usize) {
        let ghost = self.ghosts.swap_remove(at);
        if ghost.is_abandoned {
            self.untold.extend(ghost.items.into_iter().map(|id| (Some(id), LossReason::Abandoned, None)));
        }
    }

    /// The flusher runs: it judges what came home since, in the order in which the calls had ended.
    pub fn flusher_runs(&mut self) {
        let is_home = |flight: &&Flight| matches!(flight.phase, Phase::Ended(_)) && !flight.is_kept;
        let mut home: Vec<_> = self.flights.iter().filter(is_home).collect();
        home.sort_by_key(|flight| flight.ended);
        self.landed = home.into_iter().map(|flight| self.seqs[&flight.items[0]]).collect();
        self.catch_up();
    }

    /// An attempt has ended, or its guard came home after it had.
    fn judge(&mut self, index: usize, end: End) {
        let Some(mut flight) = self.flights.remove(index) else { panic!("nothing to judge") };
        if !matches!(flight.phase, Phase::Ended(_)) {
            self.count_end(end);
            self.ends += 1;
            flight.ended = self.ends;
        }
        // A guard that was told of single failures has to come home before anyone knows them.
        let has_verdicts = || {
            let judged = |i| flight.marks.is_some_and(|marks| mark(marks, i) >= 2);
            (0..flight.items.len()).any(judged)
        };
        if flight.is_kept && (end != End::Ok || has_verdicts()) {
            flight.phase = Phase::Ended(end);
            self.flights.insert(index, flight);
            return;
        }
        if let End::Throttled(after) = end {
            self.pause = self.pause.max(self.now + after);
        }
        if flight.is_kept {
            let first = self.seqs[&flight.items[0]];
            let items = if flight.is_taken { Vec::new() } else { flight.items.clone() };
            self.ghosts.push(Ghost { first, items, is_abandoned: false, in_call: false });
        }
        let (mut left, mut failed) = (Vec::new(), Vec::new());
        let before = flight.items.len();
        for (i, id) in flight.items.iter().copied().enumerate() {
            let said = if flight.is_kept { 0 } else { flight.marks.map_or(0, |marks| mark(marks, i)) };
            match (said, end) {
                (1, _) | (0, End::Ok) => self.settle(id, None, None),
                (2, _) => failed.push((id, Some("expected"))),
                _ if flight.is_taken => failed.push((id, end.said())),
                _ => left.push(id),
            }
        }
        for (id, said) in failed {
            self.settle(id, Some(LossReason::Failed), said);
            self.untold.push_back(((!flight.is_taken).then_some(id), LossReason::Failed, said));
        }
        if left.is_empty() {
            self.serve();
            self.observe();
            return;
        }
        if left.len() < before {
            flight.id = None;
        }
        let first = self.seqs[&left[0]];
        flight.items = left;
        flight.phase = Phase::Ended(end);
        (flight.marks, flight.is_taken) = (None, false);
        self.flights.insert(index, flight);
        self.serve();
        self.observe();
        self.postponed = Some((first, end));
    }

    fn count_end(&mut self, end: End) {
        *self.count.flushes.entry(end.name()).or_default() += 1;
    }

    /// What is left of a judged batch is decided once `on_loss` has been told of what has failed.
    pub fn catch_up(&mut self) {
        loop {
            if self.config.hook == Hook::None {
                self.untold.clear();
            }
            if !self.untold.is_empty() {
                return;
            }
            if let Some((first, end)) = self.postponed.take() {
                let index = self.flight_at(first).expect("it waits to be decided about");
                self.requeue(index, end);
            } else if let Some(first) = self.landed.pop_front() {
                let index = self.flight_at(first).expect("it has come home");
                let Phase::Ended(end) = self.flights[index].phase else { panic!("its call goes on") };
                self.judge(index, end);
            } else {
                return;
            }
        }
    }

    /// What becomes of what is left: again, in halves, or failed.
    fn requeue(&mut self, index: usize, end: End) {
        let asked = match end {
            End::Cancelled => return,
            End::TooLarge => return self.halve(index),
            End::Permanent => return self.condemn(index, end.said()),
            End::Throttled(after) => after,
            End::Ok | End::Retry | End::Panicked | End::TimedOut => 0,
        };
        let attempts = self.flights[index].attempts;
        if self.config.attempts.is_some_and(|most| attempts >= most) {
            return self.condemn(index, end.said().or(Some("the retries are used up")));
        }
        let wait = (10_u64 << (attempts - 1).min(20)).min(40).max(asked);
        self.flights[index].phase = Phase::Due(Some(self.now + wait));
    }

    fn halve(&mut self, index: usize) {
        if self.flights[index].items.len() < 2 {
            return self.fail(index, End::TooLarge.said());
        }
        let first = &mut self.flights[index];
        let items = first.items.split_off(first.items.len() / 2);
        (first.id, first.attempts, first.phase) = (None, 0, Phase::Due(Some(self.now)));
        let reason = first.reason;
        self.flights.insert(index + 1, Flight::new(items, 0, reason, self.now));
    }

    /// The final verdict, unless the bad items are looked for.
    fn condemn(&mut self, index: usize, said: Said) {
        if self.config.bisect && self.flights[index].items.len() > 1 {
            return self.halve(index);
        }
        self.fail(index, said);
    }

    /// The final verdict.
    fn fail(&mut self, index: usize, said: Said) {
        let Some(flight) = self.flights.remove(index) else { return };
        for id in flight.items {
            self.settle(id, Some(LossReason::Failed), said);
            self.untold.push_back((Some(id), LossReason::Failed, said));
        }
        self.serve();
        self.observe();
    }

    pub fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let size = self.permit_size();
        for fid in std::mem::take(&mut self.queue) {
            let Some(mut pending) = self.pending.remove(&fid) else { continue };
            *pending.wait() = Stage::Shut;
            match &mut pending {
                Pending::Push { .. } => self.refuse(backpressure::RefuseReason::Closed, 1),
                Pending::All(all) => self.refuse(backpressure::RefuseReason::Closed, all.chunk.len()),
                Pending::Reserve { granted, .. } => {
                    let granted = std::mem::take(granted);
                    self.reserved -= granted;
                    self.weighed.reserved -= granted * size;
                }
                Pending::Flush | Pending::Drain { .. } => {}
            }
            self.pending.insert(fid, pending);
        }
        self.observe();
    }

    pub fn start_drain(&mut self, fid: Fid, limit: Millis) {
        self.close();
        if !std::mem::replace(&mut self.is_draining, true) {
            self.deadline = limit.map(|limit| self.now + limit);
        }
        self.drainers.push(fid);
    }

    /// The leftovers that this caller finds: whoever came first and is still there has them.
    pub fn fetch(&mut self, fid: Fid) -> Vec<Id> {
        if self.drainers.first() == Some(&fid) { std::mem::take(&mut self.leftovers) } else { Vec::new() }
    }

    /// A caller of `drain` is gone.
    pub fn leave_drain(&mut self, fid: Fid) {
        self.drainers.retain(|drainer| *drainer != fid);
        if self.drainers.is_empty() {
            let orphans = std::mem::take(&mut self.leftovers);
            self.abandoned(orphans);
        }
    }

    fn abandoned(&mut self, orphans: Vec<Id>) {
        self.untold.extend(orphans.into_iter().map(|id| (Some(id), LossReason::Abandoned, None)));
    }

    /// What the sink has said of the batches that are cut off holds.
    fn judge_cut_off(&mut self) {
        let firsts: Vec<_> = self.flights.iter().map(|flight| self.seqs[&flight.items[0]]).collect();
        for first in firsts {
            let Some(index) = self.flight_at(first) else { continue };
            let flight = &self.flights[index];
            match flight.phase {
                // A call that goes on is judged as if its guard were elsewhere, unless it is home already.
                Phase::Calling { .. } if flight.is_back => self.judge(index, End::Cancelled),
                Phase::Calling { .. } => self.count_end(End::Cancelled),
                Phase::Ended(End::Ok) if !flight.is_kept => self.judge(index, End::Ok),
                Phase::Ended(_) if !flight.is_kept => self.judge(index, End::Cancelled),
                Phase::Ended(_) | Phase::Due(_) => {}
            }
        }
    }

    /// The end, by the flusher, by its loss, or by a drain that waited long enough.
    pub fn finish(&mut self) {
        if self.is_finished {
            return;
        }
        // The intake is shut first: what the cut-off batches make free is nobody's any more.
        self.close();
        self.catch_up();
        self.is_finished = true;
        self.judge_cut_off();
        // What is left has no other way any more.
        self.postponed = None;
        self.landed.clear();
        let mut leftovers = Vec::new();
        for flight in std::mem::take(&mut self.flights) {
            let in_call = matches!(flight.phase, Phase::Calling { .. }) && !flight.is_back;
            for &id in &flight.items {
                self.settle(id, Some(LossReason::Abandoned), None);
            }
            if flight.is_kept || in_call {
                self.not_returned += flight.items.len() as u64;
                let first = self.seqs[&flight.items[0]];
                let items = if flight.is_taken { Vec::new() } else { flight.items };
                self.ghosts.push(Ghost { first, items, is_abandoned: true, in_call: in_call && !flight.is_kept });
            } else {
                leftovers.extend(flight.items);
            }
        }
        for id in std::mem::take(&mut self.buffered) {
            self.settle(id, Some(LossReason::Abandoned), None);
            leftovers.push(id);
        }
        self.permits_out = self.reserved;
        if self.drainers.is_empty() {
            self.abandoned(leftovers);
        } else {
            self.leftovers = leftovers;
        }
    }

    /// A permit sends its item.
    pub fn send(&mut self, id: Id) {
        self.count.offered += 1;
        self.reserved -= 1;
        self.weighed.reserved -= self.permit_size();
        if self.size(id) > self.permit_size() {
            self.send_too_heavy(id);
            return self.follow_queue();
        }
        self.replace(id);
        self.follow_queue();
        if self.is_finished {
            self.buffered.clear();
            self.settle(id, Some(LossReason::Abandoned), None);
            self.untold.push_back((Some(id), LossReason::Abandoned, None));
        }
    }

    pub fn release(&mut self, n: u64) {
        self.reserved -= n;
        self.weighed.reserved -= n * self.permit_size();
        self.serve();
        self.observe();
    }

    pub fn purge(&mut self) -> Vec<Id> {
        self.weighed.is_short = false;
        let purged: Vec<_> = self.buffered.drain(..).collect();
        for &id in &purged {
            self.settle(id, Some(LossReason::Purged), None);
        }
        self.serve();
        self.observe();
        purged
    }

    /// An idle flusher has nothing to do (I5).
    pub fn check_idle(&self) {
        if self.is_finished || self.flusher_gone {
            return;
        }
        assert!(self.deadline.is_none_or(|at| at > self.now), "drain's deadline has passed");
        for flight in &self.flights {
            match flight.phase {
                Phase::Due(_) => {}
                Phase::Calling { since, extra, limit } => {
                    let limit = limit.map(|limit| since + limit + extra);
                    assert!(limit.is_none_or(|at| at > self.now), "a call has run out of time");
                }
                Phase::Ended(_) => assert!(flight.is_kept, "a batch came home and waits"),
            }
        }
        if self.calls() == self.config.slots || self.pause > self.now {
            return;
        }
        if let Some(Flight { phase: Phase::Due(at), .. }) = self.first_due().map(|index| &self.flights[index]) {
            assert!(at.is_none_or(|at| at > self.now), "a retry is due");
            return;
        }
        assert!(!self.is_closed || self.depth() > 0, "drained, and not over");
        let Some(oldest) = self.buffered.front() else { return };
        assert!(!self.is_closed, "the intake is shut, and items wait");
        assert!(!self.is_flushing(), "a flush waits for items that do not leave");
        if self.is_paused {
            return;
        }
        assert!(!self.is_batch_full(), "a full batch waits");
        assert!(!self.is_tight(), "room is wanted, and items wait");
        let due = self.config.linger.map(|linger| self.accepted_at[oldest] + linger);
        assert!(due.is_none_or(|due| due > self.now), "an item has waited for longer than the linger");
    }
}

impl End {
    /// What the items have failed with, that have no verdict of their own.
    fn said(self) -> Said {
        match self {
            Self::Ok | Self::Cancelled => None,
            Self::Retry | Self::Throttled(_) | Self::TooLarge | Self::Permanent => Some("expected"),
            Self::Panicked => Some("the sink panicked"),
            Self::TimedOut => Some("the flush timed out"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Retry => "retry",
            Self::Throttled(_) => "throttled",
            Self::TooLarge => "too_large",
            Self::Permanent => "permanent",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }
}
