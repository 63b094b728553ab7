//! Those who want to know what became of an item: each is told once, as soon as it is counted, and is woken for it.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use backpressure::{Delivery, Fate, LossReason, WeakController};

use super::case::{Answer, Edit, Op, Outcome};
use super::harness::Harness;
use super::oracle::{Fid, Oracle};
use super::world::{Event, Flag, Id, Token, World};

/// The fate of an accepted item, as whoever has pushed it waits for it.
pub struct Tracked {
    id: Id,
    delivery: Delivery<Token>,
    waker: Arc<Witness>,
    is_polled: bool,
}

/// A waker that looks at the figures; some panic, too.
struct Witness {
    id: Id,
    flag: Flag,
    world: Arc<World>,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        self.flag.set();
        // Under the head lock it would wait for itself here.
        if let Some(handle) = self.world.weak.get().and_then(WeakController::upgrade) {
            let snapshot = handle.snapshot();
            snapshot.audit().unwrap();
            let settled = snapshot.delivered + snapshot.losses().total();
            self.world.note(Event::Woken { id: self.id, settled });
        }
        assert!(self.id % 16 != 9, "expected: a waker that panics");
    }
}

impl Harness {
    /// A tracked push was accepted: from here on somebody waits for the fate of its item.
    pub(super) fn track(&mut self, fid: Fid, delivery: Delivery<Token>) {
        let id = self.tracked_by[&fid];
        let waker = Arc::new(Witness { id, flag: Flag::default(), world: Arc::clone(&self.world) });
        self.deliveries.push(Tracked { id, delivery, waker, is_polled: false });
    }

    /// Whoever is to be told was woken and is told, and nobody else.
    pub(super) fn check_deliveries(&mut self) {
        let oracle = &self.oracle;
        self.deliveries.retain_mut(|tracked| {
            let id = tracked.id;
            let expected = oracle.fates[&id];
            assert!(!tracked.is_polled || tracked.waker.flag.is_set() == expected.is_some(), "{id}: woken for nothing");
            match (tracked.look(), expected) {
                (None, None) => true,
                (Some(fate), Some(told)) => {
                    let loss = told.loss.map(|(reason, said)| (reason, said.map(str::to_owned)));
                    assert_eq!(loss_of(fate), loss, "the fate of {id}");
                    false
                }
                (told, expected) => panic!("{id}: {told:?} was told for {expected:?}"),
            }
        });
    }

    /// Nothing is left that could settle an item: each fate was told. One that was not settled before all was dropped may be
    /// any.
    pub(super) fn each_was_told(&mut self) {
        for mut tracked in self.deliveries.drain(..) {
            let fate = tracked.look().unwrap_or_else(|| panic!("{} was left behind", tracked.id));
            let expected = self.oracle.fates[&tracked.id].map(|told| told.loss.map(|(reason, _)| reason));
            assert!(expected.is_none_or(|loss| loss == fate.loss()), "{}: {fate:?} for {expected:?}", tracked.id);
        }
    }

    /// The first batch tells the nonce, by which some draws are made.
    pub(super) async fn learn_nonce(&mut self) {
        let edit = Edit { marks: None, take: false, keep: false };
        self.step(&Op::Open(Outcome { edit, push: false, answer: Answer::Ok })).await;
        self.step(&Op::Reserve { places: 1 }).await;
        self.step(&Op::Send(0)).await;
        self.step(&Op::Flush).await;
        self.settle().await;
        assert_eq!((self.oracle.count.delivered, self.slots.len()), (1, 0));
    }
}

impl Tracked {
    fn look(&mut self) -> Option<Fate> {
        let waker = Waker::from(Arc::clone(&self.waker));
        let delivery = std::pin::pin!(tokio::task::unconstrained(&mut self.delivery));
        self.is_polled = true;
        match delivery.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(fate) => Some(fate),
            Poll::Pending => None,
        }
    }
}

impl Oracle {
    pub fn is_settled(&self, id: Id) -> bool {
        self.fates.get(&id).is_some_and(Option::is_some)
    }

    /// Whoever waits for the fate of an item was woken, when so many were settled: it is one of those.
    pub fn woken(&self, id: Id, settled: u64) {
        let told = self.fates[&id].unwrap_or_else(|| panic!("{id} is not settled, and its fate was told"));
        assert!(told.settled <= settled, "the fate of {id} was told before it was counted");
    }
}

fn loss_of(fate: Fate) -> Option<(LossReason, Option<String>)> {
    match fate {
        Fate::Lost { reason, error } => Some((reason, error.map(|error| error.to_string()))),
        _ => None,
    }
}
