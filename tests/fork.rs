//! A process that forks: not supported, and harmless. The child has the buffer and no flusher.
//!
//! A binary of its own: the process that forks should have no more threads than it needs.
#![allow(clippy::disallowed_methods, reason = "a child without a runtime waits in real time")]

#[cfg(unix)]
mod unix {
    use std::fs::{self, File};
    use std::io::Write;
    use std::time::Duration;

    use backpressure::{BackpressureController, Batch};

    /// The child has looked, and all was well.
    const FINE: i32 = 42;
    /// Its push panicked, or said something else than "in" or "no room".
    const ODD: i32 = 43;
    /// It used more of a processor than a push can.
    const SPUN: i32 = 44;

    #[test]
    fn s_k07_a_forked_child_neither_sends_nor_spins() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // The sink says by which process it was called, where both can: a file outlives a fork as no memory does.
        let path = format!("{}/fork.{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
        let mut file = File::options().create_new(true).append(true).open(&path).unwrap();
        let c = BackpressureController::<u64>::builder(16)
            .fixed(16, Duration::MAX)
            .spawn_on(runtime.handle(), move |batch: Batch<u64>| {
                let line = format!("{} {:?}\n", std::process::id(), &*batch);
                file.write_all(line.as_bytes()).unwrap();
                std::future::ready(Ok(()))
            })
            .unwrap();
        (0..3).for_each(|i| c.try_push(i).unwrap());
        // The flusher has seen them and sleeps: it holds nothing that the child could miss.
        std::thread::sleep(Duration::from_millis(100));

        let parent = std::process::id();
        // SAFETY: the child only pushes, which takes no lock but the controller's own, that nobody holds just now, sleeps, and
        // ends by `_exit`; an alarm ends it if anything takes longer.
        let child = unsafe { libc::fork() };
        if child == 0 {
            in_child(&c);
        }
        assert!(child > 0, "fork failed");
        assert_eq!(wait_for(child), Some(FINE), "the child");

        let report = runtime.block_on(c.drain(Duration::from_secs(5)));
        assert_eq!((report.delivered(), report.totals.accepted), (3, 3), "the parent");
        drop((c, runtime));
        let sent = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(sent, format!("{parent} [0, 1, 2]\n"), "by the parent, once");
    }

    fn in_child(c: &BackpressureController<u64>) -> ! {
        // SAFETY: it takes a number. The default action of its signal ends the process: the push may take a second.
        unsafe { libc::alarm(1) };
        let code = match c.try_push(3) {
            Ok(()) => FINE,
            Err(error) if error.into_inner() == 3 => FINE,
            Err(_) => ODD,
        };
        // SAFETY: as above; the rest may take longer, on a machine that is busy.
        unsafe { libc::alarm(30) };
        // Long enough to send what it has, if anything here did.
        std::thread::sleep(Duration::from_millis(300));
        let code = if cpu_time() < Duration::from_millis(100) { code } else { SPUN };
        // SAFETY: it ends the process, and runs nothing of the parent's on the way.
        unsafe { libc::_exit(code) }
    }

    /// What this process has used: a child begins with nothing.
    fn cpu_time() -> Duration {
        // SAFETY: all zeros is a valid value of this plain struct.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: it writes into the struct that it is given.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        time(usage.ru_utime) + time(usage.ru_stime)
    }

    /// The exit code of a child; `None` if a signal has ended it.
    fn wait_for(child: libc::pid_t) -> Option<i32> {
        let mut status = 0;
        // SAFETY: it writes the status into the number that it is given.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(ended, child);
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
    }
}
