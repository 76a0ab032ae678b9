//! Which requests of this side are under way.

/// Who opened the connection. Request ids of a bidirectional connection are even on one side and odd on the other
/// (CORBA 3.0.3 section 15.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiative {
    /// This side: even ids.
    Ours,
    /// The peer: odd ids.
    Theirs,
}

/// Requests of this side that wait for their reply.
///
/// A request id is made of a place in the table and of how often the place was used, so a reply is found at once and one
/// that comes after its request was given up finds nothing.
///
/// ```text
/// id = use of the place | place | 1 bit: who opened the connection
/// ```
#[derive(Debug)]
pub struct RequestTable<T> {
    places: Vec<Place<T>>,
    /// The first free place, and so on.
    free: Option<u32>,
    used: usize,
    limit: usize,
    place_bits: u32,
    parity: u32,
}

#[derive(Debug)]
struct Place<T> {
    uses: u32,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    Free(Option<u32>),
    Waiting(T),
}

impl<T> RequestTable<T> {
    /// A table for at most `limit` requests at a time (65,536 at most, 1 at least). It allocates as it fills.
    #[must_use]
    pub fn new(initiative: Initiative, limit: u32) -> RequestTable<T> {
        let limit = limit.clamp(1, 1 << 16);
        RequestTable {
            places: Vec::new(),
            free: None,
            used: 0,
            limit: limit as usize,
            place_bits: limit.next_power_of_two().trailing_zeros(),
            parity: u32::from(initiative == Initiative::Theirs),
        }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a request and gives its id.
    ///
    /// # Errors
    /// The request, if the table is full.
    pub fn insert(&mut self, request: T) -> Result<u32, T> {
        let place = match self.free {
            Some(place) => place,
            None if self.places.len() < self.limit => {
                self.places.push(Place { uses: 0, state: State::Free(None) });
                u32::try_from(self.places.len() - 1).unwrap_or(0)
            }
            None => return Err(request),
        };
        let Some(entry) = self.places.get_mut(place as usize) else { return Err(request) };
        let State::Free(next) = entry.state else { return Err(request) };
        self.free = next;
        entry.state = State::Waiting(request);
        entry.uses = entry.uses.wrapping_add(1);
        self.used += 1;
        Ok(self.id(place, entry_uses(&self.places, place)))
    }

    fn id(&self, place: u32, uses: u32) -> u32 {
        (uses << self.place_bits | place) << 1 | self.parity
    }

    fn place(&self, id: u32) -> Option<u32> {
        let place = id >> 1 & ((1 << self.place_bits) - 1);
        (self.id(place, entry_uses(&self.places, place)) == id).then_some(place)
    }

    /// The request with an id.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&T> {
        match &self.places.get(self.place(id)? as usize)?.state {
            State::Waiting(request) => Some(request),
            State::Free(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let place = self.place(id)? as usize;
        match &mut self.places.get_mut(place)?.state {
            State::Waiting(request) => Some(request),
            State::Free(_) => None,
        }
    }

    /// Takes a request out: its reply has come, or nobody waits for it any more. `None` for an id that does not wait.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let place = self.place(id)?;
        let free = self.free;
        let entry = self.places.get_mut(place as usize)?;
        if let State::Free(_) = entry.state {
            return None;
        }
        let State::Waiting(request) = std::mem::replace(&mut entry.state, State::Free(free)) else { return None };
        self.free = Some(place);
        self.used -= 1;
        Some(request)
    }

    /// Takes all requests out: the connection has ended.
    pub fn drain(&mut self) -> impl Iterator<Item = (u32, T)> {
        let ids: Vec<u32> = (0u32..)
            .zip(&self.places)
            .filter(|(_, entry)| matches!(entry.state, State::Waiting(_)))
            .map(|(place, entry)| self.id(place, entry.uses))
            .collect();
        ids.into_iter().filter_map(|id| Some((id, self.remove(id)?)))
    }
}

fn entry_uses<T>(places: &[Place<T>], place: u32) -> u32 {
    places.get(place as usize).map_or(0, |entry| entry.uses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_even_or_odd_and_found_at_once() {
        for (initiative, parity) in [(Initiative::Ours, 0), (Initiative::Theirs, 1)] {
            let mut table = RequestTable::new(initiative, 3);
            let ids: Vec<u32> = (0..3).map(|n| table.insert(n).unwrap()).collect();
            assert_eq!(table.insert(9), Err(9));
            assert!(ids.iter().all(|id| id % 2 == parity));
            assert_eq!((table.get(ids[1]), table.len()), (Some(&1), 3));
            assert_eq!((table.remove(ids[1]), table.remove(ids[1]), table.get(ids[1])), (Some(1), None, None));
            let again = table.insert(5).unwrap();
            assert_ne!(again, ids[1]);
            *table.get_mut(again).unwrap() = 6;
            let mut rest: Vec<_> = table.drain().collect();
            rest.sort_unstable();
            assert_eq!(rest.iter().map(|entry| entry.1).sum::<i32>(), 8);
            assert!(table.is_empty());
        }
    }

    #[test]
    fn foreign_ids_find_nothing() {
        let mut table = RequestTable::new(Initiative::Ours, 1);
        assert_eq!((table.remove(0), table.remove(u32::MAX)), (None, None));
        let id = table.insert(1).unwrap();
        assert_eq!((table.get(id | 1), table.get(id ^ 2)), (None, None));
        table.remove(id);
        assert_eq!(table.get_mut(id), None);
    }

    #[test]
    fn a_table_of_one_place_outlives_its_counter() {
        let mut table = RequestTable::new(Initiative::Theirs, 1);
        table.places.push(Place { uses: u32::MAX - 1, state: State::Free(None) });
        table.free = Some(0);
        for n in 0..4 {
            let id = table.insert(n).unwrap();
            assert_eq!(table.remove(id), Some(n));
        }
    }
}
