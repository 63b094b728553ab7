//! The oracle's offers: what the strategy says of each, which draws it makes, and what an item that comes in displaces.

use backpressure::{LossReason, RefuseReason, State};

use super::case::{Draws, Hook, Kind, Millis};
use super::oracle::Oracle;
use super::world::Id;

/// What becomes of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Stored,
    Refused(RefuseReason),
    Wait(Millis),
}

/// What a strategy says.
enum Decision {
    Wait(Millis),
    Admit,
    Evict,
    Refuse(RefuseReason),
    /// It was kept, and stands for so many.
    Keep {
        draw: Draw,
        shares: bool,
    },
}

#[derive(Clone, Copy)]
struct Draw {
    hash: u64,
    rate: u32,
}

/// A question to a strategy of the user's: about this item, in this state, at this depth of that capacity.
pub type Asked = (Id, State, usize, usize);

impl Oracle {
    /// An offer that counts, up to the point where it would have to wait.
    pub fn offer(&mut self, id: Id, in_hook: bool) -> Offer {
        let offer = if self.is_closed {
            Offer::Refused(RefuseReason::Closed)
        } else if self.is_too_heavy(id) {
            Offer::Refused(RefuseReason::TooLarge)
        } else if !self.is_asked() && self.tries(id) {
            self.store(id)
        } else {
            self.ask(id, in_hook)
        };
        if let Offer::Refused(reason) = offer {
            self.refuse(reason, 1);
        }
        self.observe();
        self.tell_hook();
        offer
    }

    fn ask(&mut self, id: Id, in_hook: bool) -> Offer {
        match self.decide(id) {
            Decision::Refuse(reason) => Offer::Refused(reason),
            Decision::Keep { draw, .. } if self.tries(id) => {
                self.weights.insert(id, u64::from(draw.rate));
                self.store(id)
            }
            _ if self.tries(id) => self.store(id),
            Decision::Wait(limit) => Offer::Wait(limit),
            Decision::Evict if !in_hook => self.evict(id),
            Decision::Keep { draw, shares: true } if !in_hook => self.merge(id, draw),
            Decision::Admit | Decision::Evict | Decision::Keep { .. } => Offer::Refused(RefuseReason::Full),
        }
    }

    fn store(&mut self, id: Id) -> Offer {
        assert!(self.queue.is_empty(), "free room and a waiter");
        self.accept(id);
        Offer::Stored
    }

    /// Whether the strategy is asked about every item now.
    pub fn is_asked(&self) -> bool {
        let from = match self.config.strategy {
            Kind::CustomFrom(state) => Some(state),
            Kind::Sample { rates: [1, 1, 1], .. } => None,
            Kind::Sample { rates: [1, 1, _], .. } => Some(State::Critical),
            Kind::Sample { rates: [1, ..], .. } => Some(State::Elevated),
            Kind::Sample { .. } => Some(State::Normal),
            _ => None,
        };
        from.is_some_and(|from| self.state() >= from)
    }

    /// One item in so many is kept at present, by the rule of a sample.
    pub fn sample_rate(&self) -> u32 {
        match (self.config.strategy, self.state()) {
            (Kind::Sample { rates: [rate, ..], .. }, State::Normal) => rate,
            (Kind::Sample { rates: [_, rate, _], .. }, State::Elevated) => rate,
            (Kind::Sample { .. }, State::Draining) => 1,
            (Kind::Sample { rates: [.., rate], .. }, _) => rate,
            _ => 1,
        }
    }

    fn decide(&mut self, id: Id) -> Decision {
        let full = Decision::Refuse(RefuseReason::Full);
        if matches!(self.config.strategy, Kind::Custom | Kind::CustomFrom(_)) {
            self.asked.push((id, self.state(), self.depth() as usize, self.capacity));
        }
        match self.config.strategy {
            Kind::Block => Decision::Wait(None),
            Kind::BlockFor(limit) => Decision::Wait(Some(limit)),
            Kind::DropOldest => Decision::Evict,
            Kind::DropNewest => Decision::Admit,
            Kind::Custom => match id % 8 {
                0 | 4 => Decision::Wait(None),
                1 | 5 => Decision::Wait(Some(10)),
                2 | 6 => Decision::Evict,
                3 => full,
                _ => self.caught(),
            },
            Kind::CustomFrom(_) => match id % 16 {
                0 | 13 => Decision::Wait(None),
                1 => Decision::Wait(Some(10)),
                8 => Decision::Wait(Some(0)),
                2 | 11 => Decision::Evict,
                3 => full,
                4 | 9 | 15 => Decision::Admit,
                5 => self.draw(Draws::Nonce, 2),
                6 | 12 => self.draw(Draws::Nonce, 1),
                10 => self.draw(Draws::Nonce, 5),
                14 => self.draw(Draws::Nonce, 3),
                _ => self.caught(),
            },
            Kind::Sample { by: Draws::Key(_), .. } if id % 16 == 7 => self.caught(),
            Kind::Sample { by: Draws::Key(seed), .. } => {
                Draw::new(seed, u64::from(id) / 3, self.sample_rate()).decide(false)
            }
            Kind::Sample { by, .. } => self.draw(by, self.sample_rate()),
        }
    }

    /// The user's code has panicked.
    fn caught(&mut self) -> Decision {
        self.count.panics += 1;
        Decision::Refuse(RefuseReason::Full)
    }

    /// The next draw of a running number.
    fn draw(&mut self, by: Draws, rate: u32) -> Decision {
        let seed = match by {
            Draws::Seed(seed) | Draws::Key(seed) => seed,
            Draws::Nonce => self.nonce.expect("the first batch has told it"),
        };
        self.draws += 1;
        Draw::new(seed, self.draws - 1, rate).decide(true)
    }

    /// One for one, whoever waits.
    fn evict(&mut self, id: Id) -> Offer {
        let Some(victims) = self.victims_for(id) else { return Offer::Refused(RefuseReason::Full) };
        for victim in self.buffered.drain(..victims).collect::<Vec<_>>() {
            self.settle(victim, Some(LossReason::Evicted), None);
            self.lose(victim, LossReason::Evicted);
        }
        self.replace(id);
        if self.bounds().is_some() {
            self.serve();
        }
        Offer::Stored
    }

    /// Of an item that was kept and the youngest one there is room for one: it stands for both.
    fn merge(&mut self, id: Id, draw: Draw) -> Offer {
        let Some(&youngest) = self.buffered.back() else { return Offer::Refused(RefuseReason::Full) };
        let (old, new) = (self.weight(youngest), u64::from(draw.rate));
        let is_new = draw.prefers_new(old, new) && self.may_replace(youngest, id);
        self.weights.insert(if is_new { id } else { youngest }, old + new);
        if !is_new {
            return Offer::Refused(RefuseReason::Sampled);
        }
        self.buffered.pop_back();
        self.displace(youngest, id);
        if self.bounds().is_some() {
            self.serve();
        }
        Offer::Stored
    }

    pub fn weight(&self, id: Id) -> u64 {
        self.weights.get(&id).copied().unwrap_or(1)
    }

    /// `on_loss` is to be told.
    pub fn lose(&mut self, id: Id, reason: LossReason) {
        self.untold.push_back((Some(id), reason, None));
        self.in_offer.push(id);
    }

    /// What the hook does while an offer goes on, which is before the offer is over.
    pub fn tell_hook(&mut self) {
        for id in std::mem::take(&mut self.in_offer) {
            if self.config.hook == Hook::Pushes && id % 4 == 0 {
                let new = self.next_id;
                self.next_id += 1;
                let expected = self.try_push(new, true);
                self.foreseen.push_back((new, expected));
            }
        }
    }

    pub fn try_push(&mut self, id: Id, in_hook: bool) -> Result<(), RefuseReason> {
        self.count.offered += 1;
        self.weigh(id);
        match self.offer(id, in_hook) {
            Offer::Stored => Ok(()),
            Offer::Refused(reason) => Err(reason),
            Offer::Wait(_) => {
                self.refuse(RefuseReason::Full, 1);
                Err(RefuseReason::Full)
            }
        }
    }

    /// A push from inside the sink or the hook begins.
    pub fn pushing(&mut self, id: Id, by_hook: bool) {
        if let Some((_, expected)) = self.foreseen.pop_front_if_is(id) {
            self.inside.push(expected);
            return;
        }
        self.next_id = id + 1;
        let expected = if by_hook {
            self.try_push(id, true)
        } else {
            self.count.offered += 1;
            self.weigh(id);
            match self.offer(id, false) {
                Offer::Stored => Ok(()),
                Offer::Refused(reason) => Err(reason),
                Offer::Wait(_) => {
                    self.refuse(RefuseReason::WouldDeadlock, 1);
                    Err(RefuseReason::WouldDeadlock)
                }
            }
        };
        self.inside.push(expected);
    }

    pub fn pushed(&mut self, result: Result<(), RefuseReason>) {
        assert_eq!(self.inside.pop(), Some(result), "a push from inside user code");
    }
}

trait PopFrontIfIs {
    fn pop_front_if_is(&mut self, id: Id) -> Option<(Id, Result<(), RefuseReason>)>;
}

impl PopFrontIfIs for std::collections::VecDeque<(Id, Result<(), RefuseReason>)> {
    fn pop_front_if_is(&mut self, id: Id) -> Option<(Id, Result<(), RefuseReason>)> {
        if self.front().is_some_and(|(front, _)| *front == id) { self.pop_front() } else { None }
    }
}

impl Draw {
    /// Independent of all others: a hash of the number, by a hash of the seed.
    fn new(seed: u64, number: u64, rate: u32) -> Self {
        Self { hash: mix(mix(seed) ^ number), rate }
    }

    /// Of the hashes, one in so many is low enough.
    fn decide(self, shares: bool) -> Decision {
        if self.hash <= u64::MAX / u64::from(self.rate) {
            Decision::Keep { draw: self, shares }
        } else {
            Decision::Refuse(RefuseReason::Sampled)
        }
    }

    /// In proportion to the weights.
    fn prefers_new(self, old: u64, new: u64) -> bool {
        (u128::from(mix(self.hash)) * u128::from(old + new)) >> 64 < u128::from(new)
    }
}

/// SplitMix64.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
