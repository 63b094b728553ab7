//! Many clients of one service that is down: when they come back.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, Retry};
use tokio::time::Instant;

use self::support::{SEC, ms, paused_for, secs};

const CLIENTS: usize = 1000;
const OUTAGE: Duration = secs(60);
const BASE: Duration = ms(50);
const CAP: Duration = secs(10);

/// When each client has called, in an outage after which the service is up.
fn calls(retry: impl Fn(u64) -> Retry + Send + 'static) -> Vec<Vec<Duration>> {
    paused_for(120 * SEC, move || async move {
        let start = Instant::now();
        let mut clients = Vec::new();
        for seed in 0..CLIENTS as u64 {
            let calls = Arc::new(Mutex::new(Vec::new()));
            let log = Arc::clone(&calls);
            let sink = move |batch: Batch<u32>| {
                log.lock().unwrap().push(start.elapsed());
                drop(batch);
                std::future::ready(if start.elapsed() < OUTAGE { Err(FlushError::retry("down")) } else { Ok(()) })
            };
            let c = BackpressureController::builder(4).fixed(4, ms(0)).retry(retry(seed)).spawn(sink).unwrap();
            c.try_push(1).unwrap();
            clients.push((c, calls));
        }
        let mut all = Vec::new();
        for (c, calls) in clients {
            assert!(c.flush().await.all_delivered(), "the service is up again");
            all.push(calls.lock().unwrap().clone());
        }
        assert!(start.elapsed() <= OUTAGE + CAP);
        all
    })
}

/// `min(cap, base * 2^n)` for the n-th wait.
fn plain(n: u32) -> Duration {
    CAP.min(BASE * 2_u32.pow(n.min(20)))
}

#[test]
fn s_r03_clients_do_not_come_back_in_step() {
    let all = calls(|seed| Retry::exponential(BASE, CAP).jitter_seed(seed));
    let millisecond = ms(1);
    for calls in &all {
        for (n, pair) in calls.windows(2).enumerate() {
            let (wait, d) = (pair[1] - pair[0], plain(n as u32));
            // tokio's timer rounds up to milliseconds.
            assert!(wait >= d / 2 && wait <= d + millisecond, "wait {n} is {wait:?}, of {d:?}");
        }
    }
    let mut instants: Vec<Duration> = all.concat().into_iter().filter(|at| *at >= secs(10)).collect();
    instants.sort_unstable();
    assert!(instants.len() > 5 * CLIENTS);
    // The window that begins with each call.
    let crowd = |from: usize| instants[from..].partition_point(|at| *at < instants[from] + ms(100));
    let most = (0..instants.len()).map(crowd).max().unwrap();
    assert!(most <= CLIENTS / 20, "{most} of {CLIENTS} clients within 100 ms");
}

#[test]
fn s_r03_each_controller_has_a_seed_of_its_own() {
    let crowd = |_| {
        let all = calls(|_| Retry::exponential(BASE, CAP));
        let mut instants: Vec<Duration> = all.concat().into_iter().filter(|at| *at >= secs(10)).collect();
        instants.sort_unstable();
        let crowd = |from: usize| instants[from..].partition_point(|at| *at < instants[from] + ms(100));
        (0..instants.len()).map(crowd).max().unwrap()
    };
    // Chance draws the seeds, and may exceed the bound by an item or two in one of them.
    let most = (0..3).map(crowd).min().unwrap();
    assert!(most <= CLIENTS / 20, "{most} of {CLIENTS} clients within 100 ms");
}

#[test]
fn s_r03_without_jitter_all_is_known_beforehand() {
    let all = calls(|_| Retry::exponential(BASE, CAP).without_jitter());
    let mut expected = vec![Duration::ZERO];
    for n in 0.. {
        let last = *expected.last().unwrap();
        if last >= OUTAGE {
            break;
        }
        expected.push(last + plain(n));
    }
    assert!(all.iter().all(|calls| *calls == expected), "{:?} is not {expected:?}", all[0]);
}
