//! Runs a model under many schedules, or the one that has failed.

use std::any::Any;
use std::env;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::thread;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Schedules of each kind, unless `BACKPRESSURE_SHUTTLE_SCHEDULES` says otherwise.
const SCHEDULES: usize = 200;

/// The seed of the schedules, unless `BACKPRESSURE_SHUTTLE_SEED` says otherwise.
const SEED: u64 = 0x5eed;

/// How many times PCT changes its mind: enough for a fault of three steps in a certain order.
const DEPTH: usize = 3;

/// No model takes a tenth of it: one that does goes round in circles.
const MOST_STEPS: usize = 200_000;

/// Explores `model`, as the main task, beside which the clock runs.
pub(crate) fn explore<F, M>(model: F)
where
    F: Fn() -> M + Clone + Send + Sync + 'static,
    M: Future<Output = ()> + 'static,
{
    if let Some(path) = env::var_os("BACKPRESSURE_SHUTTLE_REPLAY") {
        let mut replay = ReplayScheduler::new_from_file(path).expect("a file with a schedule");
        replay.set_allow_incomplete();
        return run(replay, model);
    }
    let number = |name: &str| env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let schedules = number("BACKPRESSURE_SHUTTLE_SCHEDULES").map_or(SCHEDULES, |n| n as usize);
    let seed = number("BACKPRESSURE_SHUTTLE_SEED").unwrap_or(SEED);
    run(RandomScheduler::new_from_seed(seed, schedules), model.clone());
    run(PctScheduler::new_from_seed(seed, DEPTH, schedules), model);
}

fn run<F, M>(scheduler: impl Scheduler + 'static, model: F)
where
    F: Fn() -> M + Send + Sync + 'static,
    M: Future<Output = ()> + 'static,
{
    let mut config = Config::new();
    config.stack_size = 512 * 1024;
    // That weak orderings are not modelled is known: they are loom's.
    config.silence_warnings = true;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.failure_persistence = FailurePersistence::File(Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))));
    let runner = Runner::new(scheduler, config);
    let result = catch_unwind(AssertUnwindSafe(|| {
        runner.run(move || {
            tokio::time::start();
            shuttle::future::block_on(model());
        })
    }));
    result.map_or_else(|panic| hint(panic), drop);
}

fn hint(panic: Box<dyn Any + Send>) {
    let name = thread::current().name().unwrap_or("TEST").to_owned();
    eprintln!(
        "to replay it: BACKPRESSURE_SHUTTLE_REPLAY=<the file above> cargo test --manifest-path shuttle/Cargo.toml -- \
         --exact {name}"
    );
    resume_unwind(panic);
}
