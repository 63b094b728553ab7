//! Tokens whose drops are counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// How often each id was made and dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drops {
    ids: Arc<Mutex<BTreeMap<u64, (u32, u32)>>>,
}

/// An item that is dropped exactly once, or a test fails.
pub(crate) struct Token {
    id: u64,
    drops: Drops,
}

impl Drops {
    /// A token with the next id, from 0 on: for a test that doesn't choose them.
    pub(crate) fn next(&self) -> Token {
        let mut ids = self.ids.lock().unwrap();
        let id = ids.len() as u64;
        ids.entry(id).or_default().0 += 1;
        Token { id, drops: self.clone() }
    }

    pub(crate) fn token(&self, id: u64) -> Token {
        self.ids.lock().unwrap().entry(id).or_default().0 += 1;
        Token { id, drops: self.clone() }
    }

    /// Tokens that are alive.
    pub(crate) fn alive(&self) -> u64 {
        self.ids.lock().unwrap().values().map(|(made, dropped)| u64::from(made - dropped)).sum()
    }

    /// There were `n` ids, each was made once and dropped once.
    pub(crate) fn assert_each_once(&self, n: u64) {
        let ids = self.ids.lock().unwrap();
        assert_eq!(ids.len() as u64, n, "ids");
        let wrong: Vec<_> = ids.iter().filter(|(_, counts)| **counts != (1, 1)).take(10).collect();
        assert!(wrong.is_empty(), "(id, (made, dropped)): {wrong:?}");
    }
}

impl Token {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // An assertion that failed has poisoned it.
        if let Ok(mut ids) = self.drops.ids.lock() {
            ids.entry(self.id).or_default().1 += 1;
        }
    }
}

impl PartialEq<u64> for Token {
    fn eq(&self, id: &u64) -> bool {
        self.id == *id
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

pub(crate) fn ids(tokens: &[Token]) -> Vec<u64> {
    tokens.iter().map(Token::id).collect()
}
