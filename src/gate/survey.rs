//! The look at the buffer with which a section ends: who sleeps until this level, what state is it, when to look again.

use super::{Desk, Locked};
use crate::ring::Word;
use crate::sync::{Fault, fault};
use crate::time::sooner_by;

impl<T, R> Locked<'_, T, R> {
    /// Follows the buffer: who sleeps until this level, what state is it, and at which level to look next.
    pub(super) fn survey(&mut self) {
        let (mut word, mut inside) = (self.head.tail_exact(), self.inside());
        loop {
            self.wake_sleeper(word, inside);
            self.note_first(word);
            let depth = self.head.depth(word);
            self.head.ledger.peak_depth = self.head.ledger.peak_depth.max(depth);
            // What may turn out lighter raises no state, and lowers none.
            let most = self.fullness(depth, inside);
            let least = match self.unsettled() {
                0 => most,
                unsettled => self.fullness(depth, inside.saturating_sub(unsettled)),
            };
            if let Some(state) = self.head.machine.observe_between(least, most, word.is_closed()) {
                self.gate.state.set(state, self.head.posture);
                self.effects.state = true;
                self.head.state_since = self.now();
                self.note_watched();
            }
            let at = self.next_alarm();
            self.head.arm(at);
            let heavy = self.arm_volume(word);
            // A claim between the two looks may have missed the alarm: look again unless it stays below it.
            let (now, inside_now) = (self.head.tail_exact(), self.inside());
            let is_below = at.is_none_or(|at| self.head.level(now).is_before(at));
            let is_settled = now == word || is_below && now.is_closed() == word.is_closed();
            let is_light = inside_now == inside || heavy.is_none_or(|at| inside_now < at);
            if is_settled && is_light || fault(Fault::SleepWithoutLook) {
                return;
            }
            (word, inside) = (now, inside_now);
        }
    }

    /// The lowest level at which somebody wants to know.
    fn next_alarm(&self) -> Option<Word> {
        let desk: &Desk<T, R> = &self.head;
        let first = desk.empty.then(|| self.head.target(1));
        let mark = desk.machine.mark_above().map(|depth| self.head.level_at(depth));
        sooner_by(desk.sleeper.flatten(), sooner_by(first, mark, Word::min), Word::min)
    }

    fn wake_sleeper(&mut self, word: Word, inside: u64) {
        let Some(Some(target)) = self.head.sleeper else { return };
        let is_heavy = self.heavy_at(word).is_some_and(|at| inside >= at);
        let stuck = is_heavy || self.head.buffered(word) > 0 && !self.head.has_spare(word);
        if stuck && !fault(Fault::TargetBeyondLimit) || !word.place().is_before(target) {
            self.rouse();
        }
    }
}
