//! A case: the settings of a controller, and what is done to it; as values and as bytes.

use backpressure::State;

/// Milliseconds; `None` is never.
pub type Millis = Option<u64>;

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub config: Config,
    pub ops: Vec<Op>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub capacity: usize,
    pub batch: usize,
    /// Calls of the sink at once.
    pub slots: usize,
    /// Batches that fail for good are halved.
    pub bisect: bool,
    pub linger: Millis,
    pub strategy: Kind,
    pub attempts: Option<u32>,
    pub flush_timeout: Millis,
    pub marks: (f64, f64),
    pub hook: Hook,
    /// Some items panic when they are dropped.
    pub drop_panics: bool,
    pub ending: Ending,
    /// By weight, with a weigher.
    pub bounds: Option<Bounds>,
}

/// The bounds by weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub capacity: u64,
    pub item: u64,
    pub batch: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Block,
    BlockFor(u64),
    DropOldest,
    DropNewest,
    /// By the item: waits, waits for 10 ms, evicts, refuses, or panics.
    Custom,
    /// By the item, from a state on: all of it, and samples.
    CustomFrom(State),
    /// One in so many in the states Normal, Elevated, and from Critical on.
    Sample {
        rates: [u32; 3],
        by: Draws,
    },
}

/// What the draws of a sample are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draws {
    Seed(u64),
    /// The controller's nonce.
    Nonce,
    /// Three successive items share a key; for some items there is none, but a panic.
    Key(u64),
}

/// What `on_loss` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    None,
    Notes,
    /// It panics for some items.
    Panics,
    /// It pushes a new item for some items.
    Pushes,
}

/// How the run ends, if no operation has ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Drained, with a sink that works.
    Drain,
    /// Drained with a short deadline while the sink hangs, with guards and permits still out.
    Deadline,
    /// The flusher is dropped.
    DropFlusher,
    /// Every handle is dropped.
    DropHandles,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    TryPush,
    /// Makes a push and polls it, or leaves it for later.
    Push {
        limit: Limit,
        poll: bool,
    },
    PushAll {
        items: u32,
        panics_at: Option<u32>,
    },
    Reserve {
        places: usize,
    },
    TryReserve,
    Poll(usize),
    Cancel(usize),
    Send(usize),
    Release(usize),
    /// One more outcome for the sink.
    Open(Outcome),
    DropKept(usize),
    Advance(u64),
    Flush,
    Drain(Millis),
    Close,
    Pause,
    Resume,
    Purge,
    PollFlusher,
    /// Polls the flusher as long as it is woken.
    Drive,
    /// Polls all that is woken, until nothing is.
    Settle,
    CloneHandle,
    DropHandle,
    Upgrade,
    /// The next future is polled with an exhausted budget.
    Exhaust,
    DropFlusher,
    /// In `0 ..= built + 1`, both ends refused.
    SetCapacity(usize),
    PushTracked {
        poll: bool,
    },
    /// Nobody wants to know any more.
    DropDelivery(usize),
    Reconfigure(Levers),
}

/// Settings that change at once; what is not named stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levers {
    /// In `0 ..= built + 1`, both ends refused, as of `batch`.
    pub capacity: Option<usize>,
    pub strategy: Option<Kind>,
    pub marks: Option<(f64, f64)>,
    pub batch: Option<usize>,
    pub linger: Option<Millis>,
    /// `Some(0)` is refused.
    pub attempts: Option<Option<u32>>,
    /// Zero is refused.
    pub flush_timeout: Option<Millis>,
}

/// The time limit of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `push`.
    None,
    /// `push_timeout`; `None` is `Duration::MAX`.
    At(Millis),
}

/// What the sink does with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub edit: Edit,
    /// It pushes an item into its own controller first.
    pub push: bool,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Ok,
    Retry,
    Throttled(u64),
    TooLarge,
    Permanent,
    Panic,
    /// Panics before there is a future.
    PanicAtOnce,
    /// Never answers.
    Hang,
    /// Asks for more time and goes on with the next outcome.
    Extend(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// For each item, by its index modulo 4, two bits: nothing, deliver, fail, retry.
    pub marks: Option<u8>,
    pub take: bool,
    /// The guard is moved elsewhere.
    pub keep: bool,
}

/// The first byte of an operation that changes the capacity: one that no kept input had when the operation came, so that
/// all mean what they meant.
pub const SET_CAPACITY: u8 = 115;

/// Likewise of the operations that came later: tracked pushes and changes of the settings.
pub const LATER: u8 = 231;

/// Likewise the bytes of the strategies that came later, in the settings of a case.
pub const LATER_KINDS: std::ops::RangeInclusive<u8> = 233..=245;

/// Likewise the bytes of the batches with more than one call at once, half of them with batches that are bisected.
pub const SLOTS: std::ops::RangeInclusive<u8> = 233..=238;
/// Likewise the bytes of the bounds by weight, in the place of the flush timeout.
pub const WEIGHED: std::ops::RangeInclusive<u8> = 244..=248;

const BOUNDS: [Bounds; 5] = [
    Bounds { capacity: 10, item: 10, batch: None },
    Bounds { capacity: 20, item: 6, batch: Some(5) },
    Bounds { capacity: 6, item: 4, batch: Some(4) },
    Bounds { capacity: 3, item: 3, batch: Some(2) },
    Bounds { capacity: 40, item: 9, batch: Some(9) },
];

const KINDS: [Kind; 13] = [
    Kind::Sample { rates: [1, 2, 3], by: Draws::Seed(1) },
    Kind::CustomFrom(State::Elevated),
    Kind::Sample { rates: [1, 1, 1], by: Draws::Seed(2) },
    Kind::CustomFrom(State::Normal),
    Kind::Sample { rates: [2, 3, 10], by: Draws::Nonce },
    Kind::CustomFrom(State::Critical),
    Kind::Sample { rates: [1, 2, 3], by: Draws::Key(3) },
    Kind::Sample { rates: [1, 1, 2], by: Draws::Seed(u64::MAX) },
    Kind::CustomFrom(State::Blocked),
    Kind::Sample { rates: [1, 2, 1], by: Draws::Nonce },
    Kind::Sample { rates: [2, 2, 2], by: Draws::Key(0) },
    Kind::CustomFrom(State::Draining),
    Kind::Sample { rates: [3, 1, 1], by: Draws::Seed(4) },
];

impl Case {
    /// A case of any bytes.
    pub fn decode(bytes: &[u8]) -> Self {
        let mut config = [0; 8];
        let (head, tail) = bytes.split_at(bytes.len().min(8));
        config[..head.len()].copy_from_slice(head);
        let ops = tail.chunks(3).map(|op| [0, 1, 2].map(|i| op.get(i).copied().unwrap_or(0)));
        Self { config: Config::decode(config), ops: ops.map(|[kind, a, b]| Op::decode(kind, a, b)).collect() }
    }
}

impl Case {
    /// It may ask for draws that are made by the controller's nonce.
    pub fn is_later(&self) -> bool {
        matches!(self.config.strategy, Kind::CustomFrom(_) | Kind::Sample { .. })
            || self.ops.iter().any(|op| matches!(op, Op::Reconfigure(_)))
    }
}

impl Config {
    fn decode([capacity, batch, linger, strategy, attempts, timeout, flags, ending]: [u8; 8]) -> Self {
        let capacity = pick(&[3, 1, 2, 5, 8, 64], capacity);
        Self {
            capacity,
            batch: pick(&[2, 1, 3, capacity / 2, capacity], batch).clamp(1, capacity),
            slots: if SLOTS.contains(&batch) { pick(&[2, 3, 4], batch) } else { 1 },
            bisect: SLOTS.contains(&batch) && batch % 2 == 0,
            linger: pick(&[Some(5), Some(0), Some(100), None], linger),
            strategy: if LATER_KINDS.contains(&strategy) {
                KINDS[usize::from(strategy - LATER_KINDS.start())]
            } else {
                pick(
                    &[
                        Kind::Block,
                        Kind::DropOldest,
                        Kind::BlockFor(20),
                        Kind::DropNewest,
                        Kind::Custom,
                        Kind::BlockFor(0),
                        Kind::Block,
                        Kind::DropOldest,
                    ],
                    strategy,
                )
            },
            attempts: pick(&[None, Some(1), Some(2), Some(3)], attempts),
            flush_timeout: pick(&[Some(50), Some(1000), None], timeout),
            marks: pick(&[(0.5, 0.8), (0.01, 1.0), (0.3, 0.31)], flags >> 4),
            hook: pick(&[Hook::Notes, Hook::None, Hook::Panics, Hook::Pushes], flags),
            drop_panics: flags & 4 != 0,
            ending: pick(&[Ending::Drain, Ending::Deadline, Ending::DropFlusher, Ending::DropHandles], ending),
            bounds: WEIGHED.contains(&timeout).then(|| BOUNDS[usize::from(timeout - WEIGHED.start())]),
        }
    }
}

impl Op {
    fn decode(kind: u8, a: u8, b: u8) -> Self {
        let index = usize::from(a);
        match kind {
            SET_CAPACITY => return Self::SetCapacity(index),
            LATER => {
                return match a % 8 {
                    0..=2 => Self::PushTracked { poll: b % 4 != 1 },
                    3 => Self::DropDelivery(usize::from(b)),
                    _ => Self::Reconfigure(Levers::decode(a >> 3, b)),
                };
            }
            _ => {}
        }
        match kind % 64 {
            0..=7 => Self::TryPush,
            8..=13 => Self::Push { limit: Limit::None, poll: a % 4 != 1 },
            14..=16 => Self::Push { limit: Limit::At(pick(&[Some(5), Some(0), Some(20), None], a)), poll: b % 4 != 1 },
            17..=19 => Self::PushAll {
                items: pick(&[2, 0, 1, 3, 5, 8, 64, 80], a),
                panics_at: (b % 8 == 1).then(|| u32::from(b / 8) % 9),
            },
            20 | 21 => Self::Reserve { places: pick(&[1, 2, 1, 3, 0, 65, 5, 64], a) },
            22 => Self::TryReserve,
            23..=27 => Self::Poll(index),
            28 | 29 => Self::Cancel(index),
            30 | 31 => Self::Send(index),
            32 => Self::Release(index),
            33..=43 => Self::Open(Outcome::decode(a, b)),
            44 | 45 => Self::DropKept(index),
            46..=48 => Self::Advance(pick(&[5, 1, 10, 20, 50, 100, 1000, 26_000], a)),
            49 => Self::Flush,
            50 => Self::Pause,
            51 => Self::Resume,
            52 => Self::Purge,
            53 => Self::PollFlusher,
            54..=56 => Self::Drive,
            57..=59 => Self::Settle,
            60 => pick(&[Self::CloneHandle, Self::DropHandle, Self::Upgrade], a),
            61 => Self::Exhaust,
            62 => match b % 4 {
                0 => Self::Drain(pick(&[Some(100), Some(0), Some(10), Some(10_000), None], a)),
                1 => Self::Close,
                _ => Self::Flush,
            },
            _ => match b % 8 {
                0 => Self::DropFlusher,
                _ => Self::Settle,
            },
        }
    }
}

impl Levers {
    /// `which` in 5 bits.
    fn decode(which: u8, b: u8) -> Self {
        let named = |bit: u8| which & (1 << bit) != 0;
        let kinds: Vec<_> = [Kind::Block, Kind::DropOldest, Kind::DropNewest, Kind::BlockFor(20), Kind::Custom]
            .into_iter()
            .chain(KINDS)
            .collect();
        Self {
            capacity: named(0).then_some(usize::from(b)),
            strategy: named(1).then(|| pick(&kinds, b)),
            marks: named(2).then(|| pick(&[(0.5, 0.8), (0.01, 1.0), (0.3, 0.31), (0.9, 1.0)], b >> 1)),
            batch: named(3).then_some(usize::from(b >> 2)),
            linger: (named(3) && b & 1 == 0 || which == 0).then(|| pick(&[Some(5), Some(0), Some(100), None], b >> 3)),
            attempts: (named(4) && b & 1 == 0).then(|| pick(&[None, Some(1), Some(2), Some(3), Some(0)], b >> 1)),
            flush_timeout: (named(4) && b & 2 == 0)
                .then(|| pick(&[Some(50), Some(1000), None, Some(20), Some(0)], b >> 3)),
        }
    }
}

impl Outcome {
    fn decode(a: u8, b: u8) -> Self {
        let answer = pick(
            &[
                Answer::Ok,
                Answer::Ok,
                Answer::Ok,
                Answer::Ok,
                Answer::Retry,
                Answer::Retry,
                Answer::Throttled(30),
                Answer::TooLarge,
                Answer::TooLarge,
                Answer::Permanent,
                Answer::Panic,
                Answer::PanicAtOnce,
                Answer::Hang,
                Answer::Hang,
                Answer::Extend(40),
                Answer::Retry,
            ],
            a,
        );
        let edit = Edit { marks: (a & 16 != 0).then_some(b), take: a & 32 != 0, keep: a & 64 != 0 };
        Self { edit, push: a & 128 != 0, answer }
    }
}

fn pick<T: Clone>(choices: &[T], byte: u8) -> T {
    choices[usize::from(byte) % choices.len()].clone()
}
