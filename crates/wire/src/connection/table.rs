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
/// A request id is made of a place in the table and of how often the place was used, so a reply is found at once. The place of a
/// request that was given up stays taken until its reply has come: its id is not given again before (CORBA 3.0.3 section 15.4.2).
///
/// ```text
/// id = use of the place | place | 1 bit: who opened the connection
/// ```
#[derive(Debug)]
pub struct RequestTable<T> {
    places: Vec<Place<T>>,
    /// The first free place, and so on.
    free: Option<u32>,
    waiting: usize,
    forgotten: usize,
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
    /// Given up; the reply may still come.
    Forgotten,
}

/// What a reply is to this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered<T> {
    /// The request waited for it.
    Waiting(T),
    /// Its request was given up.
    Forgotten,
    /// Nobody asked for it.
    Unasked,
}

impl<T> RequestTable<T> {
    /// A table for at most `limit` requests at a time (65,536 at most, 1 at least). It allocates as it fills.
    #[must_use]
    pub fn new(initiative: Initiative, limit: u32) -> RequestTable<T> {
        let limit = limit.clamp(1, 1 << 16);
        RequestTable {
            places: Vec::new(),
            free: None,
            waiting: 0,
            forgotten: 0,
            limit: limit as usize,
            place_bits: limit.next_power_of_two().trailing_zeros(),
            parity: u32::from(initiative == Initiative::Theirs),
        }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Requests that were given up and whose replies may still come. They have their places.
    #[must_use]
    pub fn forgotten(&self) -> usize {
        self.forgotten
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
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
        self.waiting += 1;
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
            State::Free(_) | State::Forgotten => None,
        }
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let place = self.place(id)? as usize;
        match &mut self.places.get_mut(place)?.state {
            State::Waiting(request) => Some(request),
            State::Free(_) | State::Forgotten => None,
        }
    }

    /// Takes a request out to which no reply will come, because it was not sent or wants none. `None` for an id that does not wait.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        self.get(id)?;
        match self.answer(id) {
            Answered::Waiting(request) => Some(request),
            Answered::Forgotten | Answered::Unasked => None,
        }
    }

    /// Nobody waits for the reply to a request any more; its id stays taken until the reply comes.
    pub fn forget(&mut self, id: u32) -> Option<T> {
        self.get(id)?;
        let place = self.place(id)?;
        let entry = self.places.get_mut(place as usize)?;
        let State::Waiting(request) = std::mem::replace(&mut entry.state, State::Forgotten) else { return None };
        self.waiting -= 1;
        self.forgotten += 1;
        Some(request)
    }

    /// A reply has come: takes its request out.
    pub fn answer(&mut self, id: u32) -> Answered<T> {
        let Some(place) = self.place(id) else { return Answered::Unasked };
        let Some(entry) = self.places.get_mut(place as usize) else { return Answered::Unasked };
        if let State::Free(_) = entry.state {
            return Answered::Unasked;
        }
        let was = std::mem::replace(&mut entry.state, State::Free(self.free));
        self.free = Some(place);
        if let State::Waiting(request) = was {
            self.waiting -= 1;
            Answered::Waiting(request)
        } else {
            self.forgotten -= 1;
            Answered::Forgotten
        }
    }

    /// Takes all requests out: the connection has ended.
    pub fn drain(&mut self) -> impl Iterator<Item = (u32, T)> {
        let taken: Vec<u32> = (0u32..)
            .zip(&self.places)
            .filter(|(_, entry)| !matches!(entry.state, State::Free(_)))
            .map(|(place, entry)| self.id(place, entry.uses))
            .collect();
        taken.into_iter().filter_map(|id| match self.answer(id) {
            Answered::Waiting(request) => Some((id, request)),
            Answered::Forgotten | Answered::Unasked => None,
        })
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
    fn an_id_is_not_given_again_before_its_late_reply() {
        let mut table = RequestTable::new(Initiative::Ours, 2);
        let late = table.insert(0).unwrap();
        assert_eq!((table.forget(late), table.forget(late), table.remove(late)), (Some(0), None, None));
        assert_eq!((table.len(), table.forgotten()), (0, 1));
        for n in 0..8 {
            if n == 4 {
                // As after four thousand million calls.
                table.places[1].uses = u32::MAX - 1;
            }
            let id = table.insert(1).unwrap();
            assert_ne!(id, late);
            assert_eq!(table.insert(2), Err(2), "the place of the late reply is taken");
            assert_eq!(table.answer(id), Answered::Waiting(1));
        }
        assert_eq!((table.answer(late), table.answer(late)), (Answered::Forgotten, Answered::Unasked));
        assert_eq!((table.forgotten(), table.insert(3).is_ok(), table.insert(4).is_ok()), (0, true, true));
        table.forget(late);
        assert_eq!(table.drain().count(), 2);
        assert_eq!((table.len(), table.forgotten()), (0, 0));
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
