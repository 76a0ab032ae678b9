//! The requests of this side that await their replies.

/// This side's role in opening the connection. In a bidirectional connection, the initiator's
/// request ids are even and the acceptor's request ids are odd (CORBA 3.0.3 section 15.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSide {
    /// This side opened the connection: its request ids are even.
    Initiator,
    /// The peer opened the connection: the request ids of this side are odd.
    Acceptor,
}

/// A table of the requests of this side that wait for their reply.
///
/// A request id encodes the slot in the table and the number of times that the slot was used. The
/// slot of an abandoned request stays in use until its reply arrives (CORBA 3.0.3 section 15.4.2)
/// or the table is drained.
///
/// ```text
/// id = number of uses of the slot | index of the slot | 1 bit: the connection side
/// ```
#[derive(Debug)]
pub struct RequestTable<T> {
    slots: Vec<RequestSlot<T>>,
    first_free: Option<u32>,
    waiting: usize,
    abandoned: usize,
    limit: usize,
    slot_bits: u32,
    parity: u32,
}

#[derive(Debug)]
struct RequestSlot<T> {
    uses: u32,
    state: SlotState<T>,
}

#[derive(Debug)]
enum SlotState<T> {
    Free(Option<u32>),
    Waiting(T),
    /// The caller no longer waits; the reply may still arrive.
    Abandoned,
}

/// The relation of a reply to the requests of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMatch<T> {
    /// The request was waiting for this reply.
    Matched(T),
    /// The caller had abandoned the request.
    Abandoned,
    /// No request has this id.
    Unknown,
}

impl<T> RequestTable<T> {
    /// Creates a table for at most `limit` waiting and abandoned requests together. The limit is
    /// clamped to 1..=65,536.
    #[must_use]
    pub fn new(initiative: ConnectionSide, limit: u32) -> RequestTable<T> {
        let limit = limit.clamp(1, 1 << 16);
        RequestTable {
            slots: Vec::new(),
            first_free: None,
            waiting: 0,
            abandoned: 0,
            limit: limit as usize,
            slot_bits: limit.next_power_of_two().trailing_zeros(),
            parity: u32::from(initiative == ConnectionSide::Acceptor),
        }
    }

    /// Returns the number of requests that wait.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting
    }

    /// Returns the number of abandoned requests whose replies may still arrive.
    #[must_use]
    pub fn abandoned_count(&self) -> usize {
        self.abandoned
    }

    /// Returns true if at least one request waits.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Adds a request and returns its id.
    ///
    /// # Errors
    /// The request, if the table is full.
    pub fn insert(&mut self, request: T) -> Result<u32, T> {
        let place = match self.first_free {
            Some(place) => place,
            None if self.slots.len() < self.limit => {
                self.slots.push(RequestSlot { uses: 0, state: SlotState::Free(None) });
                u32::try_from(self.slots.len() - 1).unwrap_or(0)
            }
            None => return Err(request),
        };
        let Some(entry) = self.slots.get_mut(place as usize) else { return Err(request) };
        let SlotState::Free(next) = entry.state else { return Err(request) };
        self.first_free = next;
        entry.state = SlotState::Waiting(request);
        entry.uses = entry.uses.wrapping_add(1);
        self.waiting += 1;
        Ok(self.id(place, slot_uses(&self.slots, place)))
    }

    fn id(&self, place: u32, uses: u32) -> u32 {
        (uses << self.slot_bits | place) << 1 | self.parity
    }

    fn slot_index(&self, id: u32) -> Option<u32> {
        let place = id >> 1 & ((1 << self.slot_bits) - 1);
        (self.id(place, slot_uses(&self.slots, place)) == id).then_some(place)
    }

    /// Returns the waiting request with this id.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&T> {
        match &self.slots.get(self.slot_index(id)? as usize)?.state {
            SlotState::Waiting(request) => Some(request),
            SlotState::Free(_) | SlotState::Abandoned => None,
        }
    }

    /// Returns the waiting request with this id, mutably.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let place = self.slot_index(id)? as usize;
        match &mut self.slots.get_mut(place)?.state {
            SlotState::Waiting(request) => Some(request),
            SlotState::Free(_) | SlotState::Abandoned => None,
        }
    }

    /// Removes and returns the waiting request with this id; `None` if no request with this id
    /// waits.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        self.get(id)?;
        match self.match_reply(id) {
            ReplyMatch::Matched(request) => Some(request),
            ReplyMatch::Abandoned | ReplyMatch::Unknown => None,
        }
    }

    /// Removes and returns a request whose caller no longer waits. The request's id stays in use
    /// until the reply arrives. Returns `None` if no request with this id waits.
    pub fn abandon(&mut self, id: u32) -> Option<T> {
        self.get(id)?;
        let place = self.slot_index(id)?;
        let entry = self.slots.get_mut(place as usize)?;
        let SlotState::Waiting(request) = std::mem::replace(&mut entry.state, SlotState::Abandoned) else {
            return None;
        };
        self.waiting -= 1;
        self.abandoned += 1;
        Some(request)
    }

    /// Removes the request to which a received reply belongs.
    pub fn match_reply(&mut self, id: u32) -> ReplyMatch<T> {
        let Some(place) = self.slot_index(id) else { return ReplyMatch::Unknown };
        let Some(entry) = self.slots.get_mut(place as usize) else { return ReplyMatch::Unknown };
        if let SlotState::Free(_) = entry.state {
            return ReplyMatch::Unknown;
        }
        let was = std::mem::replace(&mut entry.state, SlotState::Free(self.first_free));
        self.first_free = Some(place);
        if let SlotState::Waiting(request) = was {
            self.waiting -= 1;
            ReplyMatch::Matched(request)
        } else {
            self.abandoned -= 1;
            ReplyMatch::Abandoned
        }
    }

    /// Removes all requests while the returned iterator advances. The iterator returns the waiting
    /// requests with their ids.
    pub fn drain(&mut self) -> impl Iterator<Item = (u32, T)> {
        let taken: Vec<u32> = (0u32..)
            .zip(&self.slots)
            .filter(|(_, entry)| !matches!(entry.state, SlotState::Free(_)))
            .map(|(place, entry)| self.id(place, entry.uses))
            .collect();
        taken.into_iter().filter_map(|id| match self.match_reply(id) {
            ReplyMatch::Matched(request) => Some((id, request)),
            ReplyMatch::Abandoned | ReplyMatch::Unknown => None,
        })
    }
}

fn slot_uses<T>(places: &[RequestSlot<T>], place: u32) -> u32 {
    places.get(place as usize).map_or(0, |entry| entry.uses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_even_or_odd_by_the_side() {
        for (initiative, parity) in [(ConnectionSide::Initiator, 0), (ConnectionSide::Acceptor, 1)] {
            let mut table = RequestTable::new(initiative, 3);
            let ids: Vec<u32> = (0..3).map(|n| table.insert(n).unwrap()).collect();
            assert_eq!(table.insert(9), Err(9));
            assert!(ids.iter().all(|id| id % 2 == parity));
            assert_eq!((table.get(ids[1]), table.waiting_count()), (Some(&1), 3));
            assert_eq!((table.remove(ids[1]), table.remove(ids[1]), table.get(ids[1])), (Some(1), None, None));
            let again = table.insert(5).unwrap();
            assert_ne!(again, ids[1]);
            *table.get_mut(again).unwrap() = 6;
            let mut rest: Vec<_> = table.drain().collect();
            rest.sort_unstable();
            assert_eq!(rest.iter().map(|entry| entry.1).sum::<i32>(), 8);
            assert!(!table.has_waiting());
        }
    }

    #[test]
    fn id_of_an_abandoned_request_is_not_reused_before_its_late_reply() {
        let mut table = RequestTable::new(ConnectionSide::Initiator, 2);
        let late = table.insert(0).unwrap();
        assert_eq!((table.abandon(late), table.abandon(late), table.remove(late)), (Some(0), None, None));
        assert_eq!((table.waiting_count(), table.abandoned_count()), (0, 1));
        for n in 0..8 {
            if n == 4 {
                table.slots[1].uses = u32::MAX - 1;
            }
            let id = table.insert(1).unwrap();
            assert_ne!(id, late);
            assert_eq!(table.insert(2), Err(2), "the slot of the late reply is taken");
            assert_eq!(table.match_reply(id), ReplyMatch::Matched(1));
        }
        assert_eq!((table.match_reply(late), table.match_reply(late)), (ReplyMatch::Abandoned, ReplyMatch::Unknown));
        assert_eq!((table.abandoned_count(), table.insert(3).is_ok(), table.insert(4).is_ok()), (0, true, true));
        table.abandon(late);
        assert_eq!(table.drain().count(), 2);
        assert_eq!((table.waiting_count(), table.abandoned_count()), (0, 0));
    }

    #[test]
    fn unknown_ids_match_no_request() {
        let mut table = RequestTable::new(ConnectionSide::Initiator, 1);
        assert_eq!((table.remove(0), table.remove(u32::MAX)), (None, None));
        let id = table.insert(1).unwrap();
        assert_eq!((table.get(id | 1), table.get(id ^ 2)), (None, None));
        table.remove(id);
        assert_eq!(table.get_mut(id), None);
    }

    #[test]
    fn use_counter_of_a_slot_wraps_around() {
        let mut table = RequestTable::new(ConnectionSide::Acceptor, 1);
        table.slots.push(RequestSlot { uses: u32::MAX - 1, state: SlotState::Free(None) });
        table.first_free = Some(0);
        for n in 0..4 {
            let id = table.insert(n).unwrap();
            assert_eq!(table.remove(id), Some(n));
        }
    }
}
