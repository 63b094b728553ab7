//! Items that share the youngest one's place: one for one, with all weights kept, whatever is claimed, sent or taken.

use super::{Rig, item, join, thread};
use crate::gate::{Merged, Tag};
use crate::sync::{Fault, explore, must_fail};

/// What a merge came to.
#[derive(Debug, PartialEq)]
enum Shared {
    Stored,
    /// For this one.
    Displaced(u32),
    Outweighed,
    Closed,
    Full,
}

impl Rig {
    /// Has `item`, which stands for `weight`, share the youngest one's place, with one more try if that is not written yet.
    fn merge(&self, mut item: u32, weight: u64, prefers_new: bool) -> Shared {
        for _ in 0..2 {
            let mut locked = self.gate.lock();
            let merged = locked.merge(item, &mut Tag { weight, ..Tag::PLAIN }, |_, _| prefers_new);
            self.apply(locked.finish());
            match merged {
                Merged::Stored => return Shared::Stored,
                Merged::Displaced(other) => return Shared::Displaced(other),
                Merged::Outweighed(back) => {
                    assert_eq!(back, item);
                    return Shared::Outweighed;
                }
                Merged::Closed(_) => return Shared::Closed,
                Merged::Full(_) => return Shared::Full,
                Merged::Unwritten(back) => item = back,
            }
            thread::yield_now();
        }
        Shared::Full
    }

    /// What is buffered, oldest first, with what it stands for; called when all threads have ended.
    fn weighed(&self) -> Vec<(u32, u64)> {
        let mut locked = self.gate.lock();
        let first = locked.taken();
        let positions = first..first + locked.figures().buffered;
        let mut weights = Vec::new();
        locked.weights(positions, &mut weights);
        drop(locked);
        self.empty().into_iter().enumerate().map(|(i, item)| (item, weights.get(i).copied().unwrap_or(1))).collect()
    }
}

/// The items `0 .. n`, each for itself.
fn plain(n: usize) -> impl Iterator<Item = (u32, u64)> {
    (0..n as u32).map(|item| (item, 1))
}

/// Two items share the place at the same time.
fn two_mergers(capacity: usize, prefer_new: [bool; 2]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let other = rig.spawn(move |rig| rig.merge(10, 5, prefer_new[0]));
        let mut gone = Vec::new();
        for (item, shared) in [(11, rig.merge(11, 7, prefer_new[1])), (10, join(other))] {
            gone.push(match shared {
                Shared::Displaced(other) => other,
                Shared::Outweighed => item,
                other => panic!("{other:?} of a full buffer at rest"),
            });
        }
        let left = rig.weighed();
        assert_eq!(left.iter().map(|(_, weight)| weight).sum::<u64>(), capacity as u64 - 1 + 1 + 5 + 7);
        let mut all: Vec<_> = left.into_iter().map(|(item, _)| item).chain(gone).collect();
        all.sort_unstable();
        assert_eq!(all, (0..capacity as u32).chain([10, 11]).collect::<Vec<_>>(), "each item is somewhere, once");
    }
}

/// An item shares a place while another is sent by the permit that holds the last one.
fn merger_and_permit(capacity: usize, prefers_new: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::reserved(capacity);
        let holder = rig.spawn(|rig| rig.send(10));
        let shared = rig.merge(11, 5, prefers_new);
        join(holder);
        assert_eq!(rig.gate.lock().figures().reserved, 0);
        let left = rig.weighed();
        let before = plain(capacity - 1);
        let expected: Vec<Vec<_>> = match shared {
            // Before the other was sent, it shared the place of the one before; afterwards the other's.
            Shared::Displaced(10) => vec![before.chain([(11, 6)]).collect()],
            Shared::Displaced(_) => vec![plain(capacity - 2).chain([(11, 6), (10, 1)]).collect()],
            Shared::Outweighed if capacity == 1 => vec![vec![(10, 6)]],
            Shared::Outweighed => vec![
                before.chain([(10, 6)]).collect(),
                plain(capacity - 2).chain([(capacity as u32 - 2, 6), (10, 1)]).collect(),
            ],
            Shared::Full => vec![before.chain([(10, 1)]).collect()],
            other => panic!("{other:?} while there is a permit"),
        };
        assert!(expected.contains(&left), "{shared:?}: {left:?}");
        // The two tries may both find the other claimed and not written.
        assert!(prefers_new || capacity == 1 || shared == Shared::Outweighed);
    }
}

/// An item shares the place of another that is claimed, and perhaps not written.
fn merger_and_claim(prefers_new: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(1, 0);
        let producer = rig.spawn(|rig| rig.push(10));
        let shared = rig.merge(11, 5, prefers_new);
        let is_in = join(producer);
        let left = rig.weighed();
        match shared {
            Shared::Stored => assert_eq!((is_in, left), (false, vec![(11, 5)])),
            Shared::Displaced(other) => assert_eq!((other, is_in, left), (10, true, vec![(11, 6)])),
            Shared::Outweighed => assert_eq!((is_in, left), (true, vec![(10, 6)])),
            Shared::Full => assert_eq!((is_in, left), (true, vec![(10, 1)])),
            Shared::Closed => panic!("nobody closes"),
        }
    }
}

/// An item shares a place while another is pushed, and finds no room; 100 waits.
fn merger_and_waiter(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let waiter = rig.wait(item(100));
        let producer = rig.spawn(|rig| rig.push(102));
        assert_eq!(rig.merge(101, 5, true), Shared::Displaced(capacity as u32 - 1));
        assert!(!join(producer), "it stays full");
        assert!(!waiter.is_woken(), "one for one: no room came of it");
        let expected: Vec<_> = plain(capacity - 1).chain([(101, 6), (100, 1)]).collect();
        // The one that waits comes in when all others are taken.
        let mut left = rig.weighed();
        assert_eq!(left.pop(), Some((100, 1)));
        assert_eq!(left, expected[..capacity]);
    }
}

/// An item shares a place while the flusher takes the oldest and settles it.
fn merger_and_flusher(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let merger = rig.spawn(|rig| rig.merge(10, 5, true));
        let taken = rig.take(1);
        rig.settle(taken.len() as u64);
        let shared = join(merger);
        let accounts = rig.gate.lock().desk().ledger.total;
        let left = rig.weighed();
        let youngest = capacity as u32 - 1;
        match shared {
            Shared::Displaced(other) => assert_eq!(other, youngest),
            Shared::Stored => assert_eq!(left.last(), Some(&(10, 5)), "there was room again"),
            Shared::Full => assert_eq!((capacity, taken.len(), left.len()), (1, 1, 0)),
            other => panic!("{other:?} of a buffer of written items"),
        }
        let evicted = u64::from(matches!(shared, Shared::Displaced(_)));
        assert_eq!((accounts.delivered, accounts.lost.evicted), (1, evicted));
        let inside = left.len() + taken.len() + usize::try_from(evicted).expect("0 or 1");
        assert_eq!(inside, capacity + usize::from(shared != Shared::Full));
    }
}

/// An item shares a place while the intake is shut.
fn merger_and_close(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let merger = rig.spawn(|rig| rig.merge(10, 5, true));
        rig.close();
        let evicted = rig.gate.lock().desk().ledger.total.lost.evicted;
        let shared = join(merger);
        let after = rig.gate.lock().desk().ledger.total.lost.evicted;
        assert_eq!(evicted, after, "nobody comes in after the close");
        assert_eq!(shared, if evicted == 1 { Shared::Displaced(capacity as u32 - 1) } else { Shared::Closed });
    }
}

#[test]
fn two_that_share_a_place_lose_nothing_and_their_weights_add_up() {
    for prefer_new in [[true, true], [true, false], [false, false]] {
        explore(two_mergers(1, prefer_new));
        explore(two_mergers(2, prefer_new));
    }
}

#[test]
fn a_permit_sends_its_item_whoever_shares_a_place() {
    for prefers_new in [true, false] {
        explore(merger_and_permit(1, prefers_new));
        explore(merger_and_permit(2, prefers_new));
        explore(merger_and_permit(3, prefers_new));
    }
}

#[test]
fn an_item_that_is_not_written_is_not_displaced() {
    explore(merger_and_claim(true));
    explore(merger_and_claim(false));
}

#[test]
fn sharing_a_place_makes_no_room() {
    explore(merger_and_waiter(1));
    explore(merger_and_waiter(2));
    explore(merger_and_waiter(3));
}

#[test]
fn what_is_taken_has_no_place_to_share() {
    explore(merger_and_flusher(1));
    explore(merger_and_flusher(2));
    explore(merger_and_flusher(3));
}

#[test]
fn nobody_shares_a_place_after_close() {
    explore(merger_and_close(1));
    explore(merger_and_close(2));
}

#[test]
fn twin_exchange_unwritten() {
    must_fail(Fault::ExchangeUnwritten, merger_and_claim(true));
    must_fail(Fault::ExchangeUnwritten, merger_and_permit(1, true));
    must_fail(Fault::ExchangeUnwritten, merger_and_permit(2, true));
}

#[test]
fn twin_merge_ignores_closed() {
    must_fail(Fault::MergeIgnoresClosed, merger_and_close(1));
}
