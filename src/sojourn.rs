//! How long items wait before they are taken, as a state.
//!
//! The signal is that of CoDel (K. Nichols, V. Jacobson: *Controlling Queue Delay*, 2012): the least sojourn within an
//! interval. A burst makes some items wait, and others not; only a queue that stands makes all of them wait.

use std::time::Duration;

use crate::state::State;
use crate::time::Tick;

/// No interval is shorter: a burst lasts some tens of milliseconds.
const SHORTEST: Duration = Duration::from_millis(100);

/// The least sojourn of an interval.
#[derive(Debug, Default)]
pub(crate) struct Sojourn {
    since: Option<Tick>,
    least: Option<Duration>,
    has_expired: bool,
}

impl Sojourn {
    /// Items were taken, of which the youngest has waited for so long at least.
    pub(crate) fn note_taken(&mut self, youngest: Duration) {
        self.least = Some(self.least.map_or(youngest, |least| least.min(youngest)));
    }

    /// Items were too old.
    pub(crate) fn note_expired(&mut self) {
        self.has_expired = true;
    }

    /// The state by age that follows `state`, once an interval is over. `latency` is how long a call of the sink takes: the
    /// interval has two of them. `next` is how long the item has waited that would be taken next: it counts if none was.
    pub(crate) fn state(
        &mut self,
        now: Tick,
        state: State,
        critical: Duration,
        latency: Option<Duration>,
        next: Option<Duration>,
    ) -> State {
        let since = *self.since.get_or_insert(now);
        if now.since(since) < latency.unwrap_or_default().saturating_mul(2).max(SHORTEST) {
            return state;
        }
        let ended = std::mem::take(self);
        self.since = Some(now);
        match ended.least.or(next) {
            None => state,
            Some(least) if ended.has_expired => state.max(grade(least, State::Normal, critical)),
            Some(least) => grade(least, state, critical),
        }
    }
}

/// Elevated from half of `critical` on, Critical from all of it on; left below three quarters of what it was entered at.
fn grade(sojourn: Duration, state: State, critical: Duration) -> State {
    let marks = [(State::Elevated, critical / 2), (State::Critical, critical)];
    let holds = |(at, mark): &(State, Duration)| sojourn >= *mark || state >= *at && sojourn >= *mark / 4 * 3;
    marks.iter().rfind(|mark| holds(mark)).map_or(State::Normal, |(state, _)| *state)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The states that follow Normal, with an item taken each 10 ms; `critical` is 100 ms.
    fn states(sojourns: impl IntoIterator<Item = u64>) -> Vec<State> {
        let mut signal = Sojourn::default();
        let mut state = State::Normal;
        let each = sojourns.into_iter().enumerate().map(|(i, sojourn)| {
            signal.note_taken(ms(sojourn));
            state = signal.state(Tick::at(ms(10 * i as u64)), state, ms(100), None, None);
            state
        });
        each.collect()
    }

    #[test]
    fn one_item_that_did_not_wait_clears_the_interval() {
        let burst = states((0..40).map(|i| if i % 10 == 5 { 0 } else { 500 }));
        assert!(burst.iter().all(|state| *state == State::Normal), "{burst:?}");
    }

    #[test]
    fn a_queue_that_stands_is_told_when_its_interval_is_over() {
        let standing = states([120; 25]);
        assert_eq!((standing[9], standing[10], standing[24]), (State::Normal, State::Critical, State::Critical));
        assert_eq!(states([60; 11])[10], State::Elevated);
        assert_eq!(states([49; 11])[10], State::Normal);
        assert_eq!(states([99; 11])[10], State::Elevated);
    }

    #[test]
    fn it_is_left_below_three_quarters_of_the_mark() {
        let grades = [(80, State::Critical), (74, State::Elevated), (38, State::Elevated), (37, State::Normal)];
        let mut state = State::Critical;
        for (sojourn, expected) in grades {
            state = grade(ms(sojourn), state, ms(100));
            assert_eq!(state, expected, "{sojourn}");
        }
        assert_eq!(grade(ms(80), State::Elevated, ms(100)), State::Elevated);
    }

    #[test]
    fn the_interval_has_two_calls_of_the_sink() {
        let mut signal = Sojourn::default();
        let mut at = |millis| {
            signal.note_taken(ms(500));
            signal.state(Tick::at(ms(millis)), State::Normal, ms(100), Some(ms(200)), None)
        };
        assert_eq!([0, 399, 400].map(&mut at), [State::Normal, State::Normal, State::Critical]);
    }

    #[test]
    fn when_nothing_is_taken_the_next_one_speaks() {
        let mut signal = Sojourn::default();
        let mut at = |millis, next| signal.state(Tick::at(ms(millis)), State::Normal, ms(100), None, next);
        assert_eq!(at(0, Some(ms(0))), State::Normal);
        assert_eq!(at(100, Some(ms(100))), State::Critical);
        assert_eq!(at(150, Some(ms(150))), State::Normal, "within an interval the state stays what it was");
        assert_eq!(at(250, None), State::Normal, "nothing is known");
    }

    #[test]
    fn an_interval_in_which_items_expired_does_not_lower_it() {
        let mut signal = Sojourn::default();
        let mut at = |millis, has_expired| {
            if has_expired {
                signal.note_expired();
            }
            signal.note_taken(ms(10));
            signal.state(Tick::at(ms(millis)), State::Critical, ms(100), None, None)
        };
        assert_eq!(at(0, true), State::Critical);
        assert_eq!(at(100, false), State::Critical);
        assert_eq!(at(200, false), State::Normal);
    }
}
