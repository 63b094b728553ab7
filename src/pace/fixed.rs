//! The pace that does not adapt: a batch size and a linger, on all slots.

use super::{Again, FlushReason, Pace, Plan, View};
use crate::time::Tick;

/// Takes a batch when it is full, when its oldest item has waited for the linger, or when room is wanted.
#[derive(Debug)]
pub(crate) struct Fixed;

impl Pace for Fixed {
    fn plan(&mut self, now: Tick, view: &View) -> Plan {
        let batch = view.max_batch.min(view.capacity).min(view.fits);
        let take = |reason| Plan::Take { most: batch, reason };
        if view.calls >= view.slots {
            return Plan::Sleep { items: None, until: None };
        }
        match view.again {
            Some(Again { due: Some(due), .. }) if due <= now => return Plan::Resend { most: u64::MAX },
            Some(Again { due, .. }) => return Plan::Sleep { items: None, until: due },
            None => {}
        }
        if view.buffered == 0 {
            return Plan::Sleep { items: Some(1), until: None };
        }
        if view.is_closed {
            return take(FlushReason::Drain);
        }
        if view.buffered >= batch && !view.is_paused {
            return take(FlushReason::Full);
        }
        if view.is_flushing {
            return take(FlushReason::Flush);
        }
        if view.is_paused {
            return Plan::Sleep { items: None, until: None };
        }
        if view.is_tight {
            return take(FlushReason::Room);
        }
        // `None` both times means never: the age is known as soon as there is an item.
        let due = view.oldest.unwrap_or(now).after(view.linger);
        match due {
            Some(due) if due <= now => take(FlushReason::Linger),
            until => Plan::Sleep { items: Some(batch), until },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::at(Duration::from_millis(millis))
    }

    fn view(buffered: u64) -> View {
        View {
            buffered,
            capacity: 100,
            oldest: Some(at(100)),
            is_tight: false,
            is_flushing: false,
            is_closed: false,
            is_paused: false,
            max_batch: 10,
            fits: u64::MAX,
            linger: Duration::from_millis(5),
            aim: None,
            calls: 0,
            slots: 1,
            again: None,
        }
    }

    fn plan(now: u64, view: View) -> Plan {
        Fixed.plan(at(now), &view)
    }

    fn take(reason: FlushReason) -> Plan {
        Plan::Take { most: 10, reason }
    }

    #[test]
    fn an_empty_buffer_sleeps_until_the_first_item_whatever_is_asked() {
        let all = View { is_tight: true, is_flushing: true, is_closed: true, is_paused: true, ..view(0) };
        for view in [view(0), all] {
            assert_eq!(plan(999, view), Plan::Sleep { items: Some(1), until: None });
        }
    }

    #[test]
    fn full_at_once_partial_at_its_linger() {
        assert_eq!(plan(100, view(10)), take(FlushReason::Full));
        assert_eq!(plan(104, view(9)), Plan::Sleep { items: Some(10), until: Some(at(105)) });
        assert_eq!(plan(105, view(9)), take(FlushReason::Linger));
    }

    #[test]
    fn pause_holds_all_but_flush_and_drain() {
        let paused = View { is_paused: true, is_tight: true, ..view(10) };
        assert_eq!(plan(999, paused), Plan::Sleep { items: None, until: None });
        assert_eq!(plan(100, View { is_flushing: true, ..paused }), take(FlushReason::Flush));
        assert_eq!(plan(100, View { is_closed: true, ..paused }), take(FlushReason::Drain));
    }

    #[test]
    fn room_is_a_reason() {
        assert_eq!(plan(100, View { is_tight: true, ..view(1) }), take(FlushReason::Room));
    }

    #[test]
    fn no_batch_is_larger_than_the_capacity() {
        let small = View { capacity: 4, ..view(4) };
        assert_eq!(plan(100, small), Plan::Take { most: 4, reason: FlushReason::Full });
        assert_eq!(plan(104, View { buffered: 3, ..small }), Plan::Sleep { items: Some(4), until: Some(at(105)) });
    }

    #[test]
    fn a_batch_that_failed_goes_first_when_it_is_due() {
        let again = |due| View { again: Some(Again { items: 3, due }), ..view(10) };
        assert_eq!(plan(104, again(Some(at(105)))), Plan::Sleep { items: None, until: Some(at(105)) });
        assert_eq!(plan(105, again(Some(at(105)))), Plan::Resend { most: u64::MAX });
        assert_eq!(plan(999, again(None)), Plan::Sleep { items: None, until: None });
    }

    #[test]
    fn no_more_calls_than_slots() {
        let busy = View { calls: 2, slots: 2, again: Some(Again { items: 3, due: Some(at(1)) }), ..view(10) };
        assert_eq!(plan(999, busy), Plan::Sleep { items: None, until: None });
        assert_eq!(plan(100, View { calls: 1, slots: 2, ..view(10) }), take(FlushReason::Full));
    }

    #[test]
    fn an_endless_linger_never_comes() {
        let view = View { linger: Duration::MAX, ..view(1) };
        assert_eq!(Fixed.plan(at(100), &view), Plan::Sleep { items: Some(10), until: None });
    }
}
