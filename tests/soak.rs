//! A storm in real time on several threads, for `BACKPRESSURE_SOAK_SECONDS` (3 unless told): producers of all kinds, a sink
//! that works, fails, panics, hangs and recovers, flushes, pauses, purges, drains and restarts, while another thread audits.
//! Each round builds new controllers; at its end each token was dropped once, and every fate was told. It ends with a report
//! of all rounds.
#![allow(clippy::disallowed_methods, reason = "a soak lasts for real time")]

use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use backpressure::{
    Admission, BackpressureController, Batch, FlushError, LossReason, Pressure, Retry, Sample, Snapshot, State,
    Strategy,
};
use tokio::time::{sleep, timeout};

/// The most of one round.
const TOKENS: usize = 1 << 24;

/// The tokens of one round: made and dropped how often.
struct Ledger {
    dropped: Box<[AtomicU8]>,
    made: AtomicU64,
}

struct Token(u64, Arc<Ledger>);

impl Drop for Token {
    fn drop(&mut self) {
        self.1.dropped[self.0 as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Ledger {
    fn new() -> Arc<Self> {
        Arc::new(Self { dropped: (0..TOKENS).map(|_| AtomicU8::new(0)).collect(), made: AtomicU64::new(0) })
    }

    /// `None` once the round has made enough.
    fn token(self: &Arc<Self>) -> Option<Token> {
        let id = self.made.fetch_add(1, Ordering::Relaxed);
        (id < TOKENS as u64).then(|| Token(id, Arc::clone(self)))
    }

    fn check(&self) {
        let made = (self.made.load(Ordering::Relaxed) as usize).min(TOKENS);
        for (id, dropped) in self.dropped.iter().enumerate() {
            let times = dropped.load(Ordering::Relaxed);
            assert_eq!(times, u8::from(id < made), "token {id} of {made} was dropped {times} times");
        }
    }
}

/// A cheap generator: the storm need not repeat.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

type Controller = BackpressureController<Token>;

/// Own counts of one controller.
#[derive(Default)]
struct Count {
    offered: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    purged: AtomicU64,
    /// Of tracked items.
    fates: AtomicU64,
    /// Told to `on_loss`.
    told: AtomicU64,
    /// The last position that the sink has delivered, plus one.
    last: AtomicU64,
    disorder: AtomicBool,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Count {
    fn result<T, E>(&self, result: &Result<T, E>) {
        add(if result.is_ok() { &self.accepted } else { &self.refused }, 1);
    }
}

struct Rig {
    c: Controller,
    flusher: tokio::task::JoinHandle<()>,
    count: Arc<Count>,
    /// The guards that the sink has put elsewhere.
    kept: Arc<Mutex<Vec<Batch<Token>>>>,
    /// The sink does nothing but work.
    works: Arc<AtomicBool>,
}

fn build(strategy: Strategy<Token>, capacity: usize, is_weighed: bool, seed: u64) -> Rig {
    let count = Arc::<Count>::default();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let works = Arc::new(AtomicBool::new(false));
    let (told, sunk, keep, is_well) = (Arc::clone(&count), Arc::clone(&count), Arc::clone(&kept), Arc::clone(&works));
    let mut dice = Dice(seed);
    let sink = move |mut batch: Batch<Token>| {
        let roll = if is_well.load(Ordering::Relaxed) { 99 } else { dice.roll(60) };
        let (sunk, keep) = (Arc::clone(&sunk), Arc::clone(&keep));
        assert!(roll != 0, "expected: a sink that panics at once");
        async move {
            let positions: Vec<_> = (0..batch.len()).map(|i| batch.seq(i)).collect();
            // Order holds through retries, splits and single verdicts.
            if positions.first().is_some_and(|first| *first < sunk.last.load(Ordering::Relaxed)) {
                sunk.disorder.store(true, Ordering::Relaxed);
            }
            match roll {
                1 => panic!("expected: a sink that panics"),
                2 => std::future::pending().await,
                3 => return Err(FlushError::throttled("busy", Duration::from_millis(3))),
                4 | 5 => return Err(FlushError::retry("down")),
                6 => return Err(FlushError::too_large("long")),
                7 => return Err(FlushError::permanent("never")),
                8 => batch.fail(0, "poison"),
                9 => batch.retry(batch.len() - 1),
                10 => drop(batch.take()),
                11 => {
                    drop(batch.take());
                    return Err(FlushError::retry("down"));
                }
                12 => {
                    keep.lock().unwrap().push(batch);
                    return Err(FlushError::retry("down"));
                }
                13 => keep.lock().unwrap().push(batch),
                14..18 => sleep(Duration::from_millis(1)).await,
                _ => {}
            }
            if !matches!(roll, 8 | 9) {
                sunk.last.fetch_max(positions.last().map_or(0, |last| last + 1), Ordering::Relaxed);
            }
            Ok(())
        }
    };
    let builder = Controller::builder(capacity);
    // The mean is 3, so that now the weight is what is short, and now the places; 4 and more are too heavy for those that are prepaid.
    let builder = if is_weighed {
        builder.weigher(|token: &Token| token.0 % 7).capacity_weight(3 * capacity as u64 + 6)
    } else {
        builder
    };
    let (c, flusher) = builder
        .strategy(strategy)
        .fixed((capacity / 2).max(1), Duration::from_millis(1))
        .flush_timeout(Duration::from_millis(20))
        .retry(Retry::exponential(Duration::from_micros(100), Duration::from_millis(2)).max_attempts(9))
        .on_loss(move |loss| add(&told.told, u64::from(!matches!(loss.reason, LossReason::Refused(_)))))
        .build(sink)
        .unwrap();
    let flusher = tokio::spawn(async move { flusher.await.unwrap() });
    Rig { c, flusher, count, kept, works }
}

async fn produce(kind: u64, c: Controller, count: Arc<Count>, ledger: Arc<Ledger>, end: Instant) {
    let mut dice = Dice(kind + 1);
    while Instant::now() < end && !c.is_closed() {
        let Some(token) = ledger.token() else { return };
        match kind {
            0 => {
                add(&count.offered, 1);
                count.result(&c.try_push(token));
                tokio::task::yield_now().await;
            }
            1 => {
                add(&count.offered, 1);
                count.result(&c.push(token).await);
            }
            2 => {
                add(&count.offered, 1);
                count.result(&c.push_timeout(token, Duration::from_millis(dice.roll(4))).await);
            }
            3 => {
                let tokens: Vec<_> =
                    std::iter::once(token).chain((0..dice.roll(100)).map_while(|_| ledger.token())).collect();
                let n = tokens.len();
                let accepted = match c.push_all(tokens).await {
                    Ok(accepted) => accepted,
                    Err(error) => error.accepted(),
                };
                add(&count.accepted, accepted as u64);
                // Whether the rest was pulled, and so offered, is not ours to know.
                add(&count.offered, if accepted == n { n as u64 } else { accepted as u64 });
            }
            4 => {
                drop(token);
                let Ok(permits) = c.reserve_many(1 + dice.roll(c.capacity() as u64) as usize).await else { return };
                for permit in permits {
                    if let (true, Some(token)) = (dice.roll(3) > 0, ledger.token()) {
                        add(&count.accepted, 1);
                        permit.send(token);
                    }
                    if dice.roll(8) == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            }
            5 => {
                add(&count.offered, 1);
                let result = c.push_tracked(token).await;
                count.result(&result);
                if let Ok(delivery) = result
                    && dice.roll(4) == 0
                {
                    let fate = timeout(Duration::from_millis(5), delivery).await;
                    add(&count.fates, u64::from(fate.is_ok()));
                }
            }
            _ => {
                // A push that may be given up; its fate is the controller's to tell.
                let _ = timeout(Duration::from_micros(200), c.push(token)).await;
                let _ = timeout(Duration::from_micros(200), c.reserve()).await;
            }
        }
    }
}

fn produce_blocking(c: &Controller, count: &Count, ledger: &Arc<Ledger>, end: Instant) {
    while Instant::now() < end && !c.is_closed() {
        let Some(token) = ledger.token() else { return };
        add(&count.offered, 1);
        count.result(&c.blocking_push_timeout(token, Duration::from_millis(2)));
        let Some(token) = ledger.token() else { return };
        add(&count.offered, 1);
        count.result(&c.blocking_push(token));
    }
}

async fn meddle(c: Controller, count: Arc<Count>, kept: Arc<Mutex<Vec<Batch<Token>>>>, end: Instant) {
    let mut dice = Dice(c.capacity() as u64 + 77);
    while Instant::now() < end {
        match dice.roll(9) {
            8 => c.set_capacity(1 + dice.roll(c.max_capacity() as u64) as usize).unwrap(),
            0 => {
                c.pause();
                sleep(Duration::from_millis(2)).await;
                c.resume();
            }
            1 => add(&count.purged, c.purge().len() as u64),
            2 | 3 => {
                let before = c.snapshot();
                if let Ok(report) = timeout(Duration::from_millis(50), c.flush()).await {
                    assert!(report.total() <= c.snapshot().accepted - before.delivered);
                }
            }
            4 => drop(c.downgrade().upgrade()),
            _ => {
                let guards = std::mem::take(&mut *kept.lock().unwrap());
                drop(guards);
            }
        }
        sleep(Duration::from_millis(1)).await;
    }
    drop(std::mem::take(&mut *kept.lock().unwrap()));
}

/// All rounds together.
#[derive(Default)]
struct Report {
    rounds: usize,
    audits: u64,
    tokens: u64,
    fates: u64,
    totals: Snapshot,
}

impl Report {
    fn add(&mut self, round: &Snapshot) {
        let (sum, lost) = (&mut self.totals, round.losses());
        sum.offered += round.offered;
        sum.accepted += round.accepted;
        sum.cancelled += round.cancelled;
        sum.delivered += round.delivered;
        sum.retried += round.retried;
        sum.panics += round.panics;
        sum.failed += lost.failed;
        sum.evicted += lost.evicted;
        sum.purged += lost.purged;
        sum.abandoned += lost.abandoned;
        sum.flushes.ok += round.flushes.total();
        self.rounds += 1;
    }

    fn print(&self) {
        let Self { rounds, audits, tokens, fates, totals } = self;
        println!("{rounds} rounds, {audits} audits, {tokens} tokens, each dropped once; {fates} fates awaited");
        println!(
            "{} offered: {} accepted, {} refused, {} cancelled",
            totals.offered,
            totals.accepted,
            totals.offered - totals.accepted - totals.cancelled,
            totals.cancelled
        );
        println!(
            "{} delivered, {} failed, {} evicted, {} purged, {} abandoned; {} retried, in {} flushes",
            totals.delivered,
            totals.failed,
            totals.evicted,
            totals.purged,
            totals.abandoned,
            totals.retried,
            totals.flushes.ok
        );
    }
}

async fn round(strategy: Strategy<Token>, capacity: usize, ending: u64, length: Duration, all: &mut Report) {
    let ledger = Ledger::new();
    let is_weighed = all.rounds % 2 == 1;
    let seed = capacity as u64 * 31 + ending + 1;
    let Rig { c, flusher, count, kept, works } = build(strategy, capacity, is_weighed, seed);
    let end = Instant::now() + length;
    let is_over = Arc::new(AtomicBool::new(false));
    let (audited, over) = (c.clone(), Arc::clone(&is_over));
    let auditor = thread::spawn(move || {
        let mut audits = 0_u64;
        while !over.load(Ordering::Relaxed) {
            let snapshot = audited.snapshot();
            snapshot.audit().unwrap();
            assert!(snapshot.depth <= snapshot.max_capacity, "{snapshot:?}");
            assert!(audited.depth() <= audited.max_capacity() && audited.len() <= audited.max_capacity());
            audits += 1;
            thread::sleep(Duration::from_micros(100));
        }
        audits
    });
    let mut tasks: Vec<_> = (0..9)
        .map(|kind| tokio::spawn(produce(kind % 7, c.clone(), Arc::clone(&count), Arc::clone(&ledger), end)))
        .collect();
    tasks.push(tokio::spawn(meddle(c.clone(), Arc::clone(&count), Arc::clone(&kept), end)));
    let (blocking, counts, tokens) = (c.clone(), Arc::clone(&count), Arc::clone(&ledger));
    let blocked = thread::spawn(move || produce_blocking(&blocking, &counts, &tokens, end));
    let mut watch = c.watch();
    sleep(length / if ending == 3 { 2 } else { 1 }).await;
    works.store(ending != 1, Ordering::Relaxed);
    let mut leftovers = 0;
    let mut not_returned = 0;
    match ending {
        0 | 1 => {
            // All guards come home, so a sink that works lets it end early.
            if ending == 0 {
                drop(std::mem::take(&mut *kept.lock().unwrap()));
            }
            let limit = Duration::from_millis(if ending == 0 { 30_000 } else { 30 });
            let started = Instant::now();
            let report = c.drain(limit).await;
            assert!(started.elapsed() < limit + Duration::from_secs(10), "drain took {:?}", started.elapsed());
            report.totals.audit().unwrap();
            (leftovers, not_returned) = (report.leftovers.len() as u64, report.not_returned);
        }
        2 => c.close(),
        _ => flusher.abort(),
    }
    for task in tasks {
        timeout(Duration::from_secs(30), task).await.expect("a producer hangs").unwrap();
    }
    tokio::task::spawn_blocking(move || blocked.join()).await.unwrap().expect("a blocked thread");
    drop(std::mem::take(&mut *kept.lock().unwrap()));
    if ending == 2 {
        let report = timeout(Duration::from_secs(30), c.drain(Duration::MAX)).await.expect("a closed one drains");
        report.totals.audit().unwrap();
        assert!(report.is_clean());
    }
    let _ = timeout(Duration::from_secs(30), flusher).await.expect("the flusher ends");
    is_over.store(true, Ordering::Relaxed);
    let audits = tokio::task::spawn_blocking(move || auditor.join()).await.unwrap().expect("the auditor");
    assert!(audits > 0);
    assert!(!count.disorder.load(Ordering::Relaxed), "order");
    while watch.changed().await.is_some() {}
    assert_eq!((watch.current(), c.state()), (State::Draining, State::Draining));
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((snapshot.depth, snapshot.waiting, snapshot.waiting_producers), (0, 0, 0), "{snapshot:?}");
    assert_eq!(snapshot.purged, get(&count.purged));
    // `on_loss` has heard of all that was lost and has not come back otherwise; what was not returned was told when it came
    // home, unless the sink had moved it out.
    let (told, lost) = (get(&count.told), snapshot.losses().total() - snapshot.purged - leftovers);
    assert!(told <= lost && told + not_returned >= lost, "{told} of {lost} losses were told\n{snapshot:?}");
    assert!(get(&count.accepted) <= snapshot.accepted, "accepted");
    assert!(get(&count.offered) <= snapshot.offered, "offered");
    assert!(get(&count.refused) <= snapshot.refused.total(), "refused");
    drop(c);
    ledger.check();
    all.audits += audits;
    all.tokens += ledger.made.load(Ordering::Relaxed).min(TOKENS as u64);
    all.fates += get(&count.fates);
    all.add(&snapshot);
}

#[test]
fn nothing_is_lost_in_a_storm_and_everything_ends() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().downcast_ref::<&str>().is_some_and(|message| message.starts_with("expected")) {
            before(info);
        }
    }));
    let seconds = std::env::var("BACKPRESSURE_SOAK_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let total = Duration::from_secs(seconds);
    // 4 threads of which some may be blocked by others that the system has put aside.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let end = Instant::now() + total;
    let length = (total / 20).clamp(Duration::from_millis(100), Duration::from_secs(5));
    let custom: Strategy<Token> =
        Strategy::Custom(Arc::new(|token: &Token, pressure: &Pressure| match (token.0 % 4, pressure.state) {
            (0, _) => Admission::Wait,
            (1, _) => Admission::WaitFor(Duration::from_millis(1)),
            (2, State::Blocked) => Admission::EvictOldest,
            _ => Admission::Refuse,
        }));
    let strategies = [
        Strategy::Block,
        Strategy::BlockFor(Duration::from_millis(1)),
        Strategy::DropOldest,
        Strategy::DropNewest,
        Strategy::Sample(Sample::new()),
        custom,
    ];
    let mut all = Report::default();
    let most = std::env::var("BACKPRESSURE_SOAK_TOKENS").ok().and_then(|n| n.parse().ok()).unwrap_or(u64::MAX);
    while (Instant::now() < end && all.tokens < most) || all.rounds == 0 {
        let rounds = all.rounds;
        let strategy = strategies[rounds % strategies.len()].clone();
        let capacity = [3, 64, 1, 1000, 8, 10_000, 2, 100, 1_000, 20, 5_000][rounds % 11];
        runtime.block_on(round(strategy, capacity, rounds as u64 % 4, length, &mut all));
    }
    all.print();
}
