//! What the contestants do.

mod drain;
mod full;
mod growth;
mod idle;
mod memory;
mod overload;
mod pace;
mod pipeline;
mod polling;
mod push;
mod waiting;

#[cfg(test)]
pub(crate) use self::overload::run as overloaded;
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
    let kinds = [
        push::rows,
        drain::rows,
        polling::rows,
        full::rows,
        waiting::rows,
        pipeline::rows,
        pace::rows,
        idle::rows,
        memory::rows,
        overload::rows,
        growth::rows,
    ];
    kinds.into_iter().flat_map(|rows| rows(form)).collect()
}
