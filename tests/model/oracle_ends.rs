//! The oracle's endings: of one call of the sink, and of the controller.

use backpressure::LossReason;

use super::case::{Answer, Hook, Millis, Outcome};
use super::oracle::{End, Fid, Flight, Ghost, Oracle, Phase, Said};
use super::oracle_waits::{Pending, Stage};
use super::sink::mark;
use super::world::Id;

impl Oracle {
    /// The sink followed an outcome.
    pub fn acted(&mut self, outcome: Outcome) {
        if let Some(at) = self.ghosts.iter().position(|ghost| ghost.in_call) {
            return self.acted_as_a_ghost(at, outcome);
        }
        let Some(flight) = self.flights.front_mut() else { panic!("the sink answers for no batch") };
        let Phase::Calling { since, extra, limit } = flight.phase else { panic!("{:?} cannot answer", flight.phase) };
        if let Answer::Extend(more) = outcome.answer {
            flight.phase = Phase::Calling { since, extra: extra + more, limit };
            return;
        }
        (flight.marks, flight.is_taken, flight.is_kept) = (outcome.edit.marks, outcome.edit.take, outcome.edit.keep);
        if outcome.answer != Answer::Hang {
            self.judge(outcome.into());
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
    pub fn cut(&mut self) {
        if let Some(at) = self.ghosts.iter().position(|ghost| ghost.in_call) {
            return self.land_ghost(at);
        }
        if self.is_finished {
            return;
        }
        let Some(flight) = self.flights.front() else { panic!("no call can be cut") };
        let Phase::Calling { since, extra, limit } = flight.phase else { panic!("{:?} cannot be cut", flight.phase) };
        let timeout = limit.map(|limit| since + limit + extra);
        let first = [timeout, self.deadline].into_iter().flatten().min();
        assert!(self.flusher_gone || first.is_some_and(|at| at <= self.now), "cut off before its time");
        if self.flusher_gone {
            // It is judged by the end, which shuts the intake first.
            self.close();
        }
        let is_over = self.flusher_gone || self.deadline.is_some() && self.deadline == first;
        self.judge(if is_over { End::Cancelled } else { End::TimedOut });
    }

    /// A guard that was kept elsewhere comes home; the flusher judges when it next runs.
    pub fn landed(&mut self, first: u64) {
        if let Some(at) = self.ghosts.iter().position(|ghost| ghost.first == first && !ghost.in_call) {
            return self.land_ghost(at);
        }
        let seqs = &self.seqs;
        let flight = self.flights.iter_mut().find(|flight| seqs[&flight.items[0]] == first);
        let Some(flight) = flight else { panic!("a guard of no batch") };
        assert!(flight.is_kept);
        (flight.is_kept, flight.is_back) = (false, true);
    }

    fn land_ghost(&mut self, at: usize) {
        let ghost = self.ghosts.swap_remove(at);
        if ghost.is_abandoned {
            self.untold.extend(ghost.items.into_iter().map(|id| (Some(id), LossReason::Abandoned, None)));
        }
    }

    /// The flusher runs: it judges what came home since.
    pub fn flusher_runs(&mut self) {
        if let Some(Flight { phase: Phase::Ended(end), is_kept: false, .. }) = self.flights.front() {
            let end = *end;
            self.judge(end);
        }
    }

    /// An attempt has ended, or its guard came home after it had.
    fn judge(&mut self, end: End) {
        let Some(mut flight) = self.flights.pop_front() else { panic!("nothing to judge") };
        if !matches!(flight.phase, Phase::Ended(_)) {
            *self.count.flushes.entry(end.name()).or_default() += 1;
        }
        // A guard that was told of single failures has to come home before anyone knows them.
        let has_verdicts = || {
            let judged = |i| flight.marks.is_some_and(|marks| mark(marks, i) >= 2);
            (0..flight.items.len()).any(judged)
        };
        if flight.is_kept && (end != End::Ok || has_verdicts()) {
            flight.phase = Phase::Ended(end);
            self.flights.push_front(flight);
            return;
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
        flight.items = left;
        flight.phase = Phase::Ended(end);
        (flight.marks, flight.is_taken) = (None, false);
        self.flights.push_front(flight);
        self.serve();
        self.observe();
        self.postponed = Some(end);
    }

    /// What is left of a judged batch is decided once `on_loss` has been told of what has failed.
    pub fn catch_up(&mut self) {
        if self.config.hook == Hook::None {
            self.untold.clear();
        }
        if self.untold.is_empty() {
            if let Some(end) = self.postponed.take() {
                self.requeue(end);
            }
        }
    }

    /// What becomes of what is left: again, in halves, or failed.
    fn requeue(&mut self, end: End) {
        let asked = match end {
            End::Cancelled => {
                self.flights[0].phase = Phase::Ended(End::Cancelled);
                return;
            }
            End::TooLarge => return self.halve(),
            End::Permanent => return self.fail(end.said()),
            End::Throttled(after) => after,
            End::Ok | End::Retry | End::Panicked | End::TimedOut => 0,
        };
        let attempts = self.flights[0].attempts;
        if self.config.attempts.is_some_and(|most| attempts >= most) {
            return self.fail(end.said().or(Some("the retries are used up")));
        }
        let wait = (10_u64 << (attempts - 1).min(20)).min(40).max(asked);
        self.flights[0].phase = Phase::Due(Some(self.now + wait));
    }

    fn halve(&mut self) {
        if self.flights[0].items.len() < 2 {
            return self.fail(End::TooLarge.said());
        }
        let Some(mut first) = self.flights.pop_front() else { return };
        let items = first.items.split_off(first.items.len() / 2);
        let due = Phase::Due(Some(self.now));
        let second = Flight {
            id: None,
            items,
            attempts: 0,
            lost_before: 0,
            phase: due,
            is_kept: false,
            is_taken: false,
            is_back: false,
            marks: None,
        };
        self.flights.push_front(second);
        self.flights.push_front(Flight { id: None, attempts: 0, phase: due, ..first });
    }

    /// The final verdict.
    fn fail(&mut self, said: Said) {
        let Some(flight) = self.flights.pop_front() else { return };
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

    /// What the sink has said of the batch that is cut off holds.
    fn judge_cut_off(&mut self) {
        self.catch_up();
        if let Some(Flight { phase: Phase::Ended(end), is_kept: false, .. }) = self.flights.front() {
            let said = if *end == End::Ok { End::Ok } else { End::Cancelled };
            self.judge(said);
            self.postponed = self.postponed.map(|_| End::Cancelled);
        }
    }

    /// The end, by the flusher, by its loss, or by a drain that waited long enough.
    pub fn finish(&mut self) {
        if self.is_finished {
            return;
        }
        // The intake is shut first: what the cut-off batches make free is nobody's any more.
        self.close();
        self.judge_cut_off();
        self.catch_up();
        self.is_finished = true;
        if let Some(Flight { phase: Phase::Calling { .. }, is_back, .. }) = self.flights.front() {
            // A call that goes on is judged as if its guard were elsewhere, unless it is home already.
            if *is_back {
                self.judge(End::Cancelled);
                self.catch_up();
            } else {
                *self.count.flushes.entry(End::Cancelled.name()).or_default() += 1;
            }
        }
        // What is left has no other way any more.
        self.postponed = None;
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
        if let Some(flight) = self.flights.front() {
            match flight.phase {
                Phase::Due(at) => assert!(at.is_none_or(|at| at > self.now), "a retry is due"),
                Phase::Calling { since, extra, limit } => {
                    let limit = limit.map(|limit| since + limit + extra);
                    assert!(limit.is_none_or(|at| at > self.now), "a call has run out of time");
                }
                Phase::Ended(_) => assert!(flight.is_kept, "a batch came home and waits"),
            }
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
