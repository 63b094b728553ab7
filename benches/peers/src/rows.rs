//! What the contestants do.

mod drain;
mod full;
mod polling;
mod push;

use crate::harness::Contest;
use crate::options::Form;

/// Enters the contestants that are named, each by a generic function with its type as the first parameter.
macro_rules! enter {
    ($contest:expr, $run:ident::<_ $(, $more:ty)*>($($arg:expr),*): $peer:ty $(, $($rest:ty),*)?) => {
        enter!(
            $contest.enter(<$peer as crate::peer::Peer>::NAME, move || $run::<$peer $(, $more)*>($($arg),*)),
            $run::<_ $(, $more)*>($($arg),*): $($($rest),*)?
        )
    };
    ($contest:expr, $run:ident::<_ $(, $more:ty)*>($($arg:expr),*):) => { $contest };
}
use enter;

/// All rows, in the order of the table.
pub(crate) fn all(form: Form) -> Vec<Contest> {
    [push::rows(form), drain::rows(form), polling::rows(form), full::rows(form)].into_iter().flatten().collect()
}
