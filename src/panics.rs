//! Where panics of other people's code end: the one place that catches them.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code that may panic; `None` if it did. The panic hook has reported it by then.
///
/// That the code may leave something half done is its owner's to care for: nothing of ours is in it by reference but what
/// is settled afterwards, whatever it says.
pub(crate) fn catch<R>(code: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(code)).map_err(discard).ok()
}

/// Drops what a panic carried, which may panic once more, with something else to drop: a chain that long is forgotten.
fn discard(mut payload: Box<dyn Any + Send>) {
    for _ in 0..8 {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    mem::forget(payload);
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    #[test]
    fn a_panic_goes_no_further_not_even_by_what_it_carries() {
        struct Grenade;
        impl Drop for Grenade {
            fn drop(&mut self) {
                panic_any(7);
            }
        }
        assert_eq!(catch(|| 1), Some(1));
        assert_eq!(catch(|| -> u8 { panic!("as asked") }), None);
        assert_eq!(catch(|| -> u8 { panic_any(Grenade) }), None);
    }
}
