//! What the process has used so far, by the kernel's account.

use std::ops::Sub;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};

/// CPU time and the times that a thread went to sleep, of all threads of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// User and system time, in milliseconds.
    pub(crate) cpu: f64,
    /// Voluntary context switches: each is a thread that has nothing to do, and so stands for a wake-up.
    pub(crate) switches: f64,
}

impl Usage {
    /// # Panics
    ///
    /// If the kernel has no account of the process, which it always has.
    pub(crate) fn now() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the kernel keeps one");
        let ms = |time: TimeVal| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3;
        Self {
            cpu: ms(usage.user_time()) + ms(usage.system_time()),
            switches: usage.voluntary_context_switches() as f64,
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { cpu: self.cpu - earlier.cpu, switches: self.switches - earlier.switches }
    }
}

/// The CPU time of the calling thread so far, in milliseconds.
///
/// # Panics
///
/// If the kernel has no such clock, which it always has.
pub(crate) fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("each thread has one");
    Duration::from(time).as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_is_a_switch() {
        let start = Usage::now();
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let used = Usage::now() - start;
        assert!(used.switches >= 10.0 && used.cpu < 1000.0, "{used:?}");
    }

    #[test]
    fn a_thread_is_charged_for_its_own_work() {
        let (own, all) = (thread_cpu(), Usage::now());
        let other = std::thread::spawn(|| while thread_cpu() < 20.0 {});
        other.join().expect("no panic");
        let (own, all) = (thread_cpu() - own, (Usage::now() - all).cpu);
        assert!(own < 10.0 && all >= 19.0, "{own} and {all}");
    }
}
