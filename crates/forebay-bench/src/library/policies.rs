//! Policies that no library here offers, as small as they can be: what a comparison needs of them
//! is whom they let go.

use std::collections::{BTreeSet, HashMap};

/// Lets anybody go.
pub(crate) struct Random {
    room: usize,
    keys: Vec<String>,
    places: HashMap<String, usize>,
    state: u64,
}

impl Random {
    pub(crate) fn new(room: usize) -> Self {
        Self { room, keys: Vec::new(), places: HashMap::new(), state: 0x2545_f491_4f6c_dd1d }
    }

    /// Returns true if the key is stored, and stores it.
    pub(crate) fn ask(&mut self, key: &str) -> bool {
        if self.places.contains_key(key) {
            return true;
        }
        if self.keys.len() < self.room {
            self.places.insert(key.to_owned(), self.keys.len());
            self.keys.push(key.to_owned());
            return false;
        }
        let place = self.drawn();
        let leaving = std::mem::replace(&mut self.keys[place], key.to_owned());
        self.places.remove(&leaving);
        self.places.insert(key.to_owned(), place);
        false
    }

    fn drawn(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % self.room
    }
}

/// Lets those go that were asked for least often since they came, of these who came first.
pub(crate) struct Frequency {
    room: usize,
    turn: u64,
    uses: HashMap<String, (u64, u64)>,
    order: BTreeSet<(u64, u64, String)>,
}

impl Frequency {
    pub(crate) fn new(room: usize) -> Self {
        Self { room, turn: 0, uses: HashMap::new(), order: BTreeSet::new() }
    }

    /// Returns true if the key is stored, and stores it.
    pub(crate) fn ask(&mut self, key: &str) -> bool {
        self.turn += 1;
        let known = self.uses.get(key).copied();
        match known {
            Some((count, since)) => {
                self.order.remove(&(count, since, key.to_owned()));
            }
            None if self.uses.len() >= self.room => {
                if let Some((_, _, leaving)) = self.order.pop_first() {
                    self.uses.remove(&leaving);
                }
            }
            None => {}
        }
        let now = known.map_or((1, self.turn), |(count, since)| (count + 1, since));
        self.uses.insert(key.to_owned(), now);
        self.order.insert((now.0, now.1, key.to_owned()));
        known.is_some()
    }
}
