//! Does each operation on the real controller and on the oracle, and compares.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use backpressure::{
    Admission, BackpressureController, Builder, Flusher, Permit, Pressure, ReserveError, Retry, Sample, State,
    StateWatch, Strategy, Watermarks,
};
use tokio::task::coop;

use super::case::{Case, Config, Hook, Limit, Op, Outcome};
use super::fates::Tracked;
use super::oracle::{Fid, Oracle};
use super::oracle_waits::{All, Expect, Pending, Stage};
use super::oracle_weights::weight_of;
use super::settings::{retry, strategy};
use super::sink::Sink;
use super::slots::{Done, Slot, Source, duration};
use super::world::{Event, Flag, Id, Token, World, lock};

type Controller = BackpressureController<Token>;

/// Runs a case on the paused clock; panics where the controller and the oracle disagree.
pub fn run(case: &Case) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let ledger = runtime.block_on(async {
        let mut harness = Harness::new(&case.config);
        harness.check();
        if case.is_later() {
            harness.learn_nonce().await;
        }
        for op in &case.ops {
            harness.step(op).await;
        }
        let ledger = Arc::clone(&harness.world.ledger);
        harness.end(case.config.ending).await;
        ledger
    });
    drop(runtime);
    ledger.check();
}

pub(super) struct Harness {
    pub(super) oracle: Oracle,
    pub(super) world: Arc<World>,
    pub(super) main: Option<Controller>,
    pub(super) handles: Vec<Controller>,
    pub(super) flusher: Option<Pin<Box<Flusher>>>,
    pub(super) flusher_flag: Arc<Flag>,
    pub(super) slots: Vec<Slot>,
    pub(super) permits: Vec<Permit<Token>>,
    pub(super) deliveries: Vec<Tracked>,
    /// The items of tracked pushes.
    pub(super) tracked_by: HashMap<Fid, Id>,
    pub(super) watch: StateWatch,
    pub(super) watch_flag: Arc<Flag>,
    pub(super) seen: Option<State>,
    pub(super) next_fid: Fid,
    pub(super) exhaust: bool,
    /// Panics of tokens that were thrown outside the controller's care.
    pub(super) outside: u64,
}

impl Harness {
    fn new(config: &Config) -> Self {
        let world = Arc::new(World { drop_panics: config.drop_panics, ..World::default() });
        let mut builder = Controller::builder(config.capacity)
            .strategy(strategy(config.strategy, &world))
            .watermarks(Watermarks::new(config.marks.0, config.marks.1).unwrap())
            .fixed(config.batch, duration(config.linger))
            .flush_timeout(duration(config.flush_timeout));
        builder = builder.retry(retry(config.attempts)).bisect(config.bisect);
        if let Some(bounds) = config.bounds {
            let weigh =
                |token: &Token| weight_of(token.id).unwrap_or_else(|| panic!("expected: a weigher that panics"));
            builder = builder.weigher(weigh).capacity_weight(bounds.capacity).max_item_weight(bounds.item);
            builder = bounds.batch.into_iter().fold(builder, Builder::max_batch_weight);
        }
        if config.hook != Hook::None {
            let (world, hook) = (Arc::downgrade(&world), config.hook);
            builder = builder.on_loss(move |loss| {
                let Some(world) = world.upgrade() else { return };
                let id = loss.item.map(Token::disarm);
                let said = loss.error.map(|error| error.to_string());
                world.note(Event::Lost { id, reason: loss.reason, said });
                match (hook, id) {
                    (Hook::Panics, Some(id)) if id % 8 == 5 => panic!("expected: a hook that panics"),
                    (Hook::Pushes, Some(id)) if id % 4 == 0 => world.push_from_inside(true),
                    _ => {}
                }
            });
        }
        let (main, flusher) = builder.build_concurrent(config.slots, Sink(Arc::clone(&world))).unwrap();
        let _ = world.weak.set(main.downgrade());
        let flusher_flag = Arc::<Flag>::default();
        Waker::from(Arc::clone(&flusher_flag)).wake();
        Self {
            oracle: Oracle::new(config.clone()),
            world,
            watch: main.watch(),
            main: Some(main),
            handles: Vec::new(),
            flusher: Some(Box::pin(flusher)),
            flusher_flag,
            slots: Vec::new(),
            permits: Vec::new(),
            deliveries: Vec::new(),
            tracked_by: HashMap::new(),
            watch_flag: Arc::default(),
            seen: None,
            next_fid: 0,
            exhaust: false,
            outside: 0,
        }
    }

    pub(super) fn main(&self) -> &Controller {
        self.main.as_ref().expect("only the end drops it")
    }

    pub(super) async fn step(&mut self, op: &Op) {
        self.act(op).await;
        self.follow(false);
        self.check();
    }

    async fn act(&mut self, op: &Op) {
        match *op {
            Op::TryPush => self.try_push(),
            Op::Push { limit, poll } => {
                let token = self.world.new_token();
                let (id, millis) = (token.id, if let Limit::At(limit) = limit { limit } else { None });
                let slot = Slot::push(self.fid(), self.main().clone(), token, limit);
                self.start(slot, Pending::Push { id, limit: millis, wait: Stage::Fresh }, poll).await;
            }
            Op::PushAll { items, panics_at } => {
                let next = self.world.ids(items);
                let all = All::new(next, items, panics_at);
                let source =
                    Source { world: Arc::clone(&self.world), next, end: next + items, panics_at: all.panics_at };
                let slot = Slot::push_all(self.fid(), self.main().clone(), source);
                self.start(slot, Pending::All(all), true).await;
            }
            Op::Reserve { places } => {
                let slot = Slot::reserve(self.fid(), self.main().clone(), places);
                let pending = Pending::Reserve { places: places as u64, granted: 0, wait: Stage::Fresh };
                self.start(slot, pending, true).await;
            }
            Op::TryReserve => self.try_reserve(),
            Op::Poll(index) => {
                if let Some(at) = pick(&self.slots, index) {
                    self.poll(at).await;
                }
            }
            Op::Cancel(index) => {
                if let Some(at) = pick(&self.slots, index) {
                    let slot = self.slots.remove(at);
                    self.oracle.cancel(slot.fid);
                    self.outside += u64::from(slot.cancel());
                }
            }
            Op::Send(index) => {
                if let Some(at) = pick(&self.permits, index) {
                    let token = self.world.new_token();
                    self.oracle.weigh(token.id);
                    self.oracle.send(token.id);
                    self.permits.remove(at).send(token);
                }
            }
            Op::Release(index) => {
                if let Some(at) = pick(&self.permits, index) {
                    self.oracle.release(1);
                    self.permits.remove(at).release();
                }
            }
            Op::Open(outcome) => self.open(outcome),
            Op::DropKept(index) => self.drop_kept(index),
            Op::Advance(millis) => self.advance(millis).await,
            Op::Flush => {
                let slot = Slot::flush(self.fid(), self.main().clone());
                self.start(slot, Pending::Flush, true).await;
            }
            Op::Drain(limit) => self.drain(limit).await,
            Op::Close => {
                self.oracle.close();
                self.main().close();
            }
            Op::Pause => {
                self.oracle.is_paused = true;
                self.main().pause();
            }
            Op::Resume => {
                self.oracle.is_paused = false;
                self.main().resume();
            }
            Op::Purge => {
                let expected = self.oracle.purge();
                let purged: Vec<_> = self.main().purge().into_iter().map(Token::disarm).collect();
                assert_eq!(purged, expected, "purged, oldest first");
            }
            Op::PollFlusher => {
                tokio::task::yield_now().await;
                self.poll_flusher();
            }
            Op::Drive => self.drive().await,
            Op::Settle => self.settle().await,
            Op::CloneHandle => self.handles.push(self.main().clone()),
            Op::DropHandle => drop(self.handles.pop()),
            Op::Upgrade => self.handles.extend(self.main().downgrade().upgrade()),
            Op::Exhaust => self.exhaust = true,
            Op::DropFlusher => self.drop_flusher(),
            Op::SetCapacity(to) => self.set_capacity(to % (self.main().max_capacity() + 2)),
            Op::PushTracked { poll } => {
                let token = self.world.new_token();
                let id = token.id;
                self.oracle.fates.insert(id, None);
                let slot = Slot::push_tracked(self.fid(), self.main().clone(), token);
                self.tracked_by.insert(slot.fid, id);
                self.start(slot, Pending::Push { id, limit: None, wait: Stage::Fresh }, poll).await;
            }
            Op::DropDelivery(index) => {
                if let Some(at) = pick(&self.deliveries, index) {
                    drop(self.deliveries.swap_remove(at));
                }
            }
            Op::Reconfigure(levers) => self.reconfigure(levers),
        }
    }

    fn fid(&mut self) -> Fid {
        self.next_fid += 1;
        self.next_fid
    }

    fn try_push(&mut self) {
        let token = self.world.new_token();
        self.oracle.next_id = token.id + 1;
        let expected = self.oracle.try_push(token.id, false);
        let result = self.main().try_push(token).map_err(super::world::given_back);
        assert_eq!(result, expected, "try_push");
    }

    fn try_reserve(&mut self) {
        let expected = match (self.oracle.is_closed, self.oracle.places_for_newcomer()) {
            (true, _) => Err(ReserveError::Closed),
            (false, 0) => Err(ReserveError::Full),
            (false, _) => Ok(()),
        };
        let result = self.main().try_reserve();
        assert_eq!(result.as_ref().map(drop).map_err(|error| *error), expected, "try_reserve");
        if let Ok(permit) = result {
            self.oracle.reserved += 1;
            self.oracle.weighed.reserved += self.oracle.permit_size();
            self.oracle.note_peak();
            self.oracle.observe();
            self.permits.push(permit);
        }
    }

    fn open(&mut self, outcome: Outcome) {
        let wakers = {
            let mut script = self.world.script();
            script.outcomes.push_back(outcome);
            std::mem::take(&mut script.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn drop_kept(&mut self, index: usize) {
        let kept = {
            let mut script = self.world.script();
            let at = pick(&script.kept, index);
            at.map(|at| script.kept.remove(at))
        };
        if let Some(kept) = kept {
            self.oracle.landed(kept.first);
            drop(kept.batch);
        }
    }

    pub(super) async fn advance(&mut self, millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
        self.oracle.now += millis;
    }

    pub(super) async fn drain(&mut self, limit: super::case::Millis) {
        let slot = Slot::drain(self.fid(), self.main().clone(), limit);
        self.start(slot, Pending::Drain { limit, is_joined: false }, true).await;
    }

    async fn start(&mut self, slot: Slot, pending: Pending, poll: bool) {
        self.oracle.pending.insert(slot.fid, pending);
        self.slots.push(slot);
        if poll {
            self.poll(self.slots.len() - 1).await;
        }
    }

    /// Polls a future, with a fresh budget or with none.
    async fn poll(&mut self, at: usize) {
        let is_exhausted = std::mem::take(&mut self.exhaust);
        if is_exhausted {
            poll_fn(|cx| {
                while let Poll::Ready(budget) = coop::poll_proceed(cx) {
                    budget.made_progress();
                }
                Poll::Ready(())
            })
            .await;
        } else {
            tokio::task::yield_now().await;
        }
        let fid = self.slots[at].fid;
        self.oracle.next_id = self.world.ids(0);
        let expected = self.oracle.poll(fid, is_exhausted);
        let polled = self.slots[at].poll();
        match polled {
            Poll::Pending => assert_eq!(expected, Expect::Pending, "future {fid} is pending"),
            Poll::Ready(done) => {
                let slot = self.slots.remove(at);
                self.done(fid, done, expected);
                drop(slot);
            }
        }
        self.follow(false);
    }

    fn done(&mut self, fid: Fid, done: Done, expected: Expect) {
        let answer = match done {
            Done::Pushed(result) => Expect::Pushed(result),
            Done::Tracked(result) => Expect::Pushed(result.map(|delivery| self.track(fid, delivery))),
            Done::All(result) => Expect::All(result),
            Done::Panicked => Expect::Panic,
            Done::Reserved(Ok(permits)) => {
                let n = permits.len();
                self.permits.extend(permits);
                Expect::Reserved(Ok(n))
            }
            Done::Reserved(Err(error)) => Expect::Reserved(Err(error)),
            Done::Flushed(report) => {
                if let Some(barrier) = self.oracle.barriers.remove(&fid) {
                    barrier.check(&report);
                }
                Expect::Flushed
            }
            Done::Drained(report) => {
                let leftovers: Vec<_> = report.leftovers.into_iter().map(Token::disarm).collect();
                assert_eq!(leftovers, self.oracle.fetch(fid), "the leftovers, in order");
                assert_eq!(
                    (report.not_returned, report.permits_out),
                    (self.oracle.not_returned, self.oracle.permits_out)
                );
                report.totals.audit().unwrap();
                self.oracle.leave_drain(fid);
                Expect::Drained
            }
        };
        assert_eq!(answer, expected, "future {fid}");
    }

    /// Polls the flusher once; whether it did anything.
    fn poll_flusher(&mut self) -> bool {
        let Some(flusher) = &mut self.flusher else { return false };
        self.flusher_flag.take();
        self.oracle.flusher_runs();
        let waker = Waker::from(Arc::clone(&self.flusher_flag));
        let polled = flusher.as_mut().poll(&mut Context::from_waker(&waker));
        let ended = polled.is_ready();
        if let Poll::Ready(result) = polled {
            result.unwrap();
            self.flusher = None;
        }
        self.follow(ended) || ended
    }

    pub(super) async fn drive(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "the flusher wakes itself for ever");
            tokio::task::yield_now().await;
            if !self.flusher_flag.is_set() || self.flusher.is_none() {
                break;
            }
            self.poll_flusher();
            self.check();
        }
        let did = self.poll_flusher();
        assert!(!did, "the flusher had something to do and was not woken");
        self.check();
        self.oracle.check_idle();
    }

    /// Polls all that is woken until nothing is; then a poll that nobody asked for must find nothing new (I5).
    pub(super) async fn settle(&mut self) {
        self.exhaust = false;
        for round in 0.. {
            assert!(round < 10_000, "somebody wakes somebody for ever");
            self.drive().await;
            let Some(at) = self.slots.iter().position(|slot| slot.is_polled && slot.flag.is_set()) else { break };
            self.poll(at).await;
            self.check();
        }
        let polled: Vec<_> = self.slots.iter().filter(|slot| slot.is_polled).map(|slot| slot.fid).collect();
        let before = self.slots.len();
        for fid in polled {
            if let Some(at) = self.slots.iter().position(|slot| slot.fid == fid) {
                self.poll(at).await;
            }
        }
        assert_eq!(self.slots.len(), before, "a future was ready and was not woken");
        self.check_watch();
    }

    pub(super) fn drop_flusher(&mut self) {
        if self.flusher.is_some() {
            self.oracle.flusher_gone = true;
            self.flusher = None;
            self.follow(true);
        }
    }

    /// Takes in what happened in user code; `ended` if the flusher has ended. Whether anything happened.
    pub(super) fn follow(&mut self, ended: bool) -> bool {
        let log = self.world.take_log();
        let did = !log.is_empty();
        let oracle = &mut self.oracle;
        for event in log {
            if !matches!(event, Event::Pushing { by_hook: true, .. } | Event::Pushed(_)) {
                oracle.catch_up();
            }
            match event {
                Event::Called(call) => oracle.called(&call),
                Event::Acted(first, outcome) => oracle.acted(first, outcome),
                Event::Cut(first) => oracle.cut(first),
                Event::Lost { id, reason, said } => {
                    if ended && oracle.untold.is_empty() {
                        oracle.finish();
                    }
                    oracle.told(id, reason, &said);
                }
                Event::Woken { id, settled } => {
                    if ended && !oracle.is_settled(id) {
                        oracle.finish();
                    }
                    oracle.woken(id, settled);
                }
                Event::Pushing { id, by_hook } => oracle.pushing(id, by_hook),
                Event::Pushed(result) => oracle.pushed(result),
            }
        }
        if ended {
            oracle.finish();
        }
        oracle.check_told();
        assert_eq!(std::mem::take(&mut *lock(&self.world.asked)), std::mem::take(&mut oracle.asked), "what was asked");
        did
    }

    /// All figures, and the state as everyone sees it.
    pub(super) fn check(&mut self) {
        self.check_deliveries();
        let Some(main) = &self.main else { return };
        let snapshot = main.snapshot();
        let thrown = self.world.ledger.thrown.load(Ordering::Relaxed) - self.outside;
        self.oracle.compare(&snapshot, thrown);
        let depth = self.oracle.depth() as usize;
        let reserved = self.oracle.reserved as usize;
        assert_eq!((main.depth(), main.len(), main.is_empty()), (depth, depth - reserved, depth == reserved));
        assert!(depth <= main.max_capacity());
        assert_eq!((main.capacity(), main.weight()), (self.oracle.capacity, self.oracle.inside()));
        assert_eq!((main.state(), self.watch.current()), (snapshot.state, snapshot.state));
        assert_eq!((main.is_closed(), main.is_paused()), (self.oracle.is_closed, self.oracle.is_paused));
        assert!((0.0..=1.0).contains(&main.pressure()));
        if let (Some(oldest), true) = (self.oracle.buffered.front(), self.oracle.flights.is_empty()) {
            let age = Duration::from_millis(self.oracle.now - self.oracle.accepted_at[oldest]);
            // Without a flusher that looks, the age is only known to be at least this.
            assert!(main.oldest_age().is_some_and(|bound| bound >= age), "{:?} < {age:?}", main.oldest_age());
        }
    }

    /// A watcher sees the last state, and was woken for it (I6).
    fn check_watch(&mut self) {
        let Some(state) = self.main.as_ref().map(Controller::state) else { return };
        let woken = self.watch_flag.take();
        let waker = Waker::from(Arc::clone(&self.watch_flag));
        let before = self.seen;
        loop {
            let mut next = std::pin::pin!(tokio::task::unconstrained(self.watch.changed()));
            match next.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(state)) => self.seen = Some(state),
                Poll::Ready(None) => {
                    assert_eq!(self.seen, Some(State::Draining), "it ends after the last state");
                    break;
                }
                Poll::Pending => break,
            }
        }
        if let Some(seen) = self.seen {
            assert_eq!(seen, state, "the last state that a watcher saw");
        } else {
            assert_eq!(state, State::Normal, "a watcher was told of no state");
        }
        assert!(before == self.seen || woken || before.is_none(), "{before:?} to {:?} without a wake", self.seen);
    }
}

pub(super) fn pick<T>(list: &[T], index: usize) -> Option<usize> {
    (!list.is_empty()).then(|| index % list.len())
}
