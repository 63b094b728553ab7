//! The controller that is widely copied: it adapts the interval between batches of one size, and nothing else.
//!
//! 100 items an interval, from 100 ms to 30 s: times 1.5 after a flush of more than 1.5 targets, times 0.8 after one of less
//! than half a target. A batch that fails is lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::meter::Item;
use crate::rig::Rig;

const BATCH: usize = 100;
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 30.0;

#[derive(Debug, Default)]
pub(crate) struct IntervalOnly {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: VecDeque<Item>,
    pub(crate) accepted: u64,
    pub(crate) in_flight: u64,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
}

impl IntervalOnly {
    /// Runs until its runtime ends.
    pub(crate) fn spawn(rig: Arc<Rig>, target: f64) -> Arc<Self> {
        let controller = Arc::new(Self::default());
        tokio::spawn(Arc::clone(&controller).run(rig, target));
        controller
    }

    pub(crate) fn push(&self, item: Item) {
        let mut queue = self.queue();
        queue.items.push_back(item);
        queue.accepted += 1;
        drop(queue);
        self.arrived.notify_one();
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, rig: Arc<Rig>, target: f64) {
        let mut interval = SHORTEST;
        loop {
            tokio::time::sleep(Duration::from_secs_f64(interval)).await;
            let batch = self.batch().await;
            let started = rig.now();
            let answer = rig.flush(&batch).await;
            let mut queue = self.queue();
            queue.in_flight = 0;
            if answer.is_ok() {
                queue.delivered += batch.len() as u64;
                let latency = f64::from(rig.now() - started) / 1000.0;
                if latency > 1.5 * target {
                    interval = (1.5 * interval).min(LONGEST);
                } else if latency < 0.5 * target {
                    interval = (0.8 * interval).max(SHORTEST);
                }
            } else {
                queue.lost += batch.len() as u64;
            }
        }
    }

    async fn batch(&self) -> Vec<Item> {
        loop {
            {
                let mut queue = self.queue();
                let most = queue.items.len().min(BATCH);
                if most > 0 {
                    queue.in_flight = most as u64;
                    return queue.items.drain(..most).collect();
                }
            }
            self.arrived.notified().await;
        }
    }
}

impl Queue {
    pub(crate) fn buffered(&self) -> u64 {
        self.items.len() as u64
    }
}
