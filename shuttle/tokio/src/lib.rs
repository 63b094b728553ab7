//! tokio as the crate uses it, under shuttle.
//!
//! Tasks and channels are shuttle-tokio's. What that does not model stands here: time, which it lets pass at once and
//! reads from the machine's clock, so that schedules would not replay; the cooperative budget; and the runtime's handle.

pub mod runtime;
pub mod sync;
pub mod time;

pub use shuttle_tokio::spawn;

/// Tasks, and their budget.
pub mod task {
    pub use shuttle_tokio::task::{JoinError, JoinHandle, spawn_blocking, yield_now};

    /// The budget of a task: shuttle decides when it is used up.
    pub mod coop {
        use std::task::{Context, Poll};

        use shuttle::rand::Rng;
        pub use shuttle_tokio::task::coop::consume_budget;

        /// What a task has spent.
        #[derive(Debug)]
        pub struct RestoreOnPending(());

        impl RestoreOnPending {
            /// Keeps it spent.
            pub fn made_progress(&self) {}
        }

        /// One time in four the budget is used up; the task is polled again.
        pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<RestoreOnPending> {
            if shuttle::rand::thread_rng().gen_range(0..4) == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(RestoreOnPending(()))
        }
    }
}
