//! How a run ends, and what must hold then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::case::{Answer, Edit, Ending, Op, Outcome};
use super::harness::Harness;
use super::oracle::{Fid, Phase};

impl Harness {
    pub(super) async fn end(mut self, ending: Ending) {
        match ending {
            Ending::Drain => self.end_by_drain().await,
            Ending::Deadline => {
                self.drain(Some(50)).await;
                self.settle().await;
                for millis in [20, 29, 1, 50, 50] {
                    self.advance(millis).await;
                    self.settle().await;
                }
                let passed = self.oracle.deadline.is_some_and(|at| at + 100 <= self.oracle.now);
                assert!(self.oracle.is_finished || !passed, "drain does not end at its deadline");
                if passed {
                    assert!(self.slots.iter().all(|slot| !slot.is_polled), "a future outlives the end");
                }
            }
            Ending::DropFlusher => {
                self.drop_flusher();
                self.check();
                self.settle().await;
                assert!(self.oracle.is_finished);
                assert!(self.slots.iter().all(|slot| !slot.is_polled), "a future outlives the flusher");
            }
            Ending::DropHandles => self.end_by_dropping().await,
        }
        self.cleanup();
    }

    /// A sink that works at last, and everything comes to its end.
    async fn end_by_drain(&mut self) {
        self.works();
        while !self.world.script().kept.is_empty() {
            self.step(&Op::DropKept(0)).await;
        }
        while !self.permits.is_empty() {
            self.step(&Op::Release(0)).await;
        }
        self.drain(None).await;
        self.settle().await;
        for _ in 0..20 {
            // A release may grant one to the next who waits.
            while !self.permits.is_empty() {
                self.step(&Op::Release(0)).await;
            }
            if self.oracle.is_finished && !self.slots.iter().any(|slot| slot.is_polled) {
                break;
            }
            self.advance(100).await;
            self.settle().await;
        }
        let hangs = self.config_hangs();
        assert!(hangs || self.oracle.is_finished || self.oracle.flusher_gone, "drain does not end");
        if self.oracle.is_finished {
            assert_eq!(self.oracle.depth(), self.oracle.permits_out.min(self.oracle.reserved));
            assert!(self.slots.iter().all(|slot| !slot.is_polled), "a future outlives the end");
        }
    }

    /// A call hangs, and nothing cuts it off.
    fn config_hangs(&self) -> bool {
        let present = self.oracle.flights.iter().filter_map(|flight| match flight.phase {
            Phase::Calling { limit, .. } => Some(limit),
            _ => None,
        });
        present.chain([self.oracle.config.flush_timeout]).any(|limit| limit.is_none_or(|limit| limit > 500))
    }

    fn works(&mut self) {
        let ok = Outcome { edit: Edit { marks: None, take: false, keep: false }, push: false, answer: Answer::Ok };
        let wakers = {
            let mut script = self.world.script();
            script.outcomes.clear();
            script.default = Some(ok);
            std::mem::take(&mut script.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Nobody has a handle any more: the flusher finishes in the background.
    async fn end_by_dropping(&mut self) {
        self.works();
        while !self.world.script().kept.is_empty() {
            self.step(&Op::DropKept(0)).await;
        }
        while !self.slots.is_empty() {
            self.step(&Op::Cancel(0)).await;
        }
        while !self.permits.is_empty() {
            self.step(&Op::Release(0)).await;
        }
        self.handles.clear();
        let weak = self.main().downgrade();
        self.oracle.start_drain(Fid::MAX, Some(25_000));
        self.main = None;
        self.oracle.leave_drain(Fid::MAX);
        self.follow(false);
        assert!(weak.upgrade().is_none(), "the last handle is gone");
        self.drive().await;
        for millis in [100, 1_000, 10_000, 15_000] {
            self.advance(millis).await;
            self.drive().await;
        }
        // A drain that was asked for has its own deadline, or none.
        let is_due = self.oracle.deadline.is_some_and(|at| at <= self.oracle.now);
        assert!(self.oracle.is_finished || !is_due, "the flusher does not finish in the background");
        if self.oracle.flights.is_empty() {
            assert!(self.oracle.is_finished, "all is settled, and the flusher goes on");
        }
    }

    /// Whatever is left is dropped, in an order of no importance.
    fn cleanup(mut self) {
        for slot in self.slots.drain(..) {
            self.oracle.cancel(slot.fid);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(slot)));
        }
        self.permits.clear();
        self.flusher = None;
        let kept = std::mem::take(&mut self.world.script().kept);
        drop(kept);
        self.each_was_told();
        self.world.script().wakers.clear();
        self.handles.clear();
        self.main = None;
    }
}
