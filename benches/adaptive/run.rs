//! Takes one writer through one course, on a clock that stands still while anything is to be done.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep_until;

use crate::audit::Auditor;
use crate::course::{BUFFER, Course};
use crate::meter::{Item, Meter, Trace};
use crate::rig::Rig;
use crate::sink::Sink;
use crate::writer::{Books, Who, Writer};

/// Items come every so many milliseconds; the trace is written every so many of these ticks.
const TICK: u64 = 2;
const TRACE: u64 = 25;

/// What has come of it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) meter: Meter,
    /// As they were at the end.
    pub(crate) books: Books,
    /// How often the writer's task was polled in the rest after the end.
    pub(crate) rest_polls: u64,
}

/// Runs the course from its start to its end.
pub(crate) fn run(who: Who, course: &Course, seed: u64) -> Run {
    on_paused_clock(async {
        let sink = Sink::start(course.sink.clone(), seed);
        drive(who, course, &sink, seed).await
    })
}

/// Runs on one thread, from one timer to the next without waiting for them.
pub(crate) fn on_paused_clock<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be built").block_on(future)
}

/// Runs a course of one writer in front of a sink that others may use, too. The course starts now.
pub(crate) async fn drive(who: Who, course: &Course, sink: &Arc<Sink>, seed: u64) -> Run {
    let rig = Rig::new(Arc::clone(sink));
    let writer = Arc::new(Writer::start(who, course, &rig, seed));
    let auditor = audit_each_flush(&rig, &writer);
    let mut source = Source { course, accepted: 0, dropped: 0, carry: 0.0 };
    for tick in 0.. {
        let now = tick * TICK;
        if now as f64 / 1000.0 > course.end {
            break;
        }
        sleep_until(rig.origin() + Duration::from_millis(now)).await;
        source.offer(now as u32, &writer);
        let books = writer.audit();
        assert_eq!(books.accepted, source.accepted, "what was taken in is in the books");
        auditor.has_found_nothing();
        if tick % TRACE == 0 {
            trace(&rig, &books, writer.polls());
        }
    }
    finish(rig, &writer, auditor, &source).await
}

/// Offers what the load says, as far as there is room.
struct Source<'a> {
    course: &'a Course,
    accepted: u64,
    dropped: u64,
    carry: f64,
}

impl Source<'_> {
    fn offer(&mut self, now: u32, writer: &Writer) {
        self.carry += self.course.load.rate(f64::from(now) / 1000.0) * TICK as f64 / 1000.0;
        let items = (self.carry + 1e-9).floor();
        self.carry -= items;
        let items = items as u64;
        // What is in flight does not count, so that all writers have the same buffer.
        let room = BUFFER.saturating_sub(writer.audit().buffered).min(items);
        for _ in 0..room {
            let is_taken = writer.push(Item { at: now, seq: self.accepted as u32 });
            assert!(is_taken, "there is room");
            self.accepted += 1;
        }
        self.dropped += items - room;
    }
}

fn audit_each_flush(rig: &Arc<Rig>, writer: &Arc<Writer>) -> Auditor {
    let (ended, rig, writer) = (Arc::clone(&rig.ended), Arc::clone(rig), Arc::clone(writer));
    Auditor::start(ended, move || {
        let books = writer.audit();
        assert!(books.delivered <= rig.meter().delivered, "nothing is delivered that the sink has not taken");
    })
}

fn trace(rig: &Rig, books: &Books, polls: u64) {
    let at = rig.now();
    let mut meter = rig.meter();
    let calls = meter.calls;
    let &Books { batch, slots, buffered, is_unreachable, .. } = books;
    meter.trace.push(Trace { at, batch, slots, buffered, calls, polls, is_unreachable });
}

async fn finish(rig: Arc<Rig>, writer: &Writer, auditor: Auditor, source: &Source<'_>) -> Run {
    // What ends at this very moment is settled first.
    tokio::task::yield_now().await;
    let polls = writer.polls();
    tokio::time::sleep(Duration::from_secs_f64(source.course.rest)).await;
    let rest_polls = writer.polls() - polls;
    auditor.has_found_nothing();
    let books = writer.audit();
    let mut meter = std::mem::take(&mut *rig.meter());
    meter.dropped = source.dropped;
    assert_eq!(books.delivered, meter.delivered, "what the sink has taken is delivered");
    Run { meter, books, rest_polls }
}
