//! Connections of a lane that nobody finds any more and that are not over: requests of them run or wait, their peers have not taken
//! what was said last, or have not closed.
//!
//! Invariant: whoever does not find a connection finds it here, or it is over. It is listed in one step with being given up, and goes
//! from here when nothing is left to do. So what is owed to a peer that sends nothing any more leaves as soon as it reads,
//! whatever else of the same connection still runs.
//!
//! Each of them has a descriptor and what its peer has not taken. It counts among the `connections` that a pool may hold, and so does one that is over
//! while requests keep its descriptor. Where there are so many, the one whose end has taken longest goes for a new one, unless a silent
//! one does; one whose requests wait for something else than its peer does not: its descriptor would stay as long as they do, and its
//! peer is owed their replies. What they hold counts among `held_octets`, and how long a peer may take nothing of it is bounded by
//! `output_timeout`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_net::Peer;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{PiMutex, Scope};
use corelane_sys::slots::Retired;

use super::connection::{Connection, Farewell, Progress};
use super::lane::Lane;
use super::request;
use crate::clock;
use crate::event::Event;
use crate::fault::Fault;
use crate::orb::Core;

type Place = (u32, u32);

/// The list, by place and in the order in which their ends began, with the moment when each did.
#[derive(Debug)]
pub(super) struct Endings(PiMutex<List<(Monotonic, Arc<Connection>)>>);

/// Values by place, in the order in which they came. Every step takes as long whatever their number.
#[derive(Debug)]
struct List<T> {
    all: HashMap<Place, Linked<T>>,
    first: Option<Place>,
    last: Option<Place>,
}

/// One of them, between the one that came before it and the one that came after.
#[derive(Debug)]
struct Linked<T> {
    value: T,
    before: Option<Place>,
    after: Option<Place>,
}

impl<T> List<T> {
    fn new() -> Self {
        List { all: HashMap::new(), first: None, last: None }
    }

    /// At the end; nothing is done where that place has a value.
    fn insert(&mut self, place: Place, value: impl FnOnce() -> T) {
        if self.all.contains_key(&place) {
            return;
        }
        let before = self.last.replace(place);
        *self.link_after(before) = Some(place);
        self.all.insert(place, Linked { value: value(), before, after: None });
    }

    fn remove(&mut self, place: Place) -> Option<T> {
        let Linked { value, before, after } = self.all.remove(&place)?;
        *self.link_after(before) = after;
        match after.and_then(|after| self.all.get_mut(&after)) {
            Some(after) => after.before = before,
            None => self.last = before,
        }
        Some(value)
    }

    /// What says which one comes after the one at a place, or which is the first.
    fn link_after(&mut self, before: Option<Place>) -> &mut Option<Place> {
        match before.and_then(|before| self.all.get_mut(&before)) {
            Some(before) => &mut before.after,
            None => &mut self.first,
        }
    }

    fn iter(&self) -> impl Iterator<Item = (Place, &T)> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let place = next?;
            let linked = self.all.get(&place)?;
            next = linked.after;
            Some((place, &linked.value))
        })
    }
}

impl Endings {
    pub(super) fn new() -> Self {
        Endings(PiMutex::new("ending connections", Scope::Lane, List::new()))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.lock().all.len()
    }

    fn find(&self, place: Place) -> Option<Arc<Connection>> {
        self.0.lock().all.get(&place).map(|ending| Arc::clone(&ending.value.1))
    }

    /// All of them, one at a time: what is done with each is done without the lock, which is the whole lane's, and nobody keeps the
    /// descriptor of another one meanwhile.
    pub(super) fn each(&self) -> impl Iterator<Item = Arc<Connection>> + '_ {
        let places: Vec<Place> = self.0.lock().iter().map(|(place, _)| place).collect();
        places.into_iter().filter_map(|place| self.find(place))
    }

    fn insert(&self, connection: &Arc<Connection>) {
        self.0.lock().insert(connection.place, || (clock::now(), Arc::clone(connection)));
    }

    /// Gives a connection up by `retire`, and lists it if somebody is in it.
    fn insert_if_used<T>(&self, connection: &Arc<Connection>, retire: impl FnOnce() -> Retired<T>) -> Retired<T> {
        let mut list = self.0.lock();
        let retired = retire();
        if matches!(retired, Retired::Deferred) {
            list.insert(connection.place, || (clock::now(), Arc::clone(connection)));
        }
        retired
    }

    /// It is over.
    fn forget(&self, connection: &Connection) {
        // Dropped without the lock: that may close it.
        let forgotten = self.0.lock().remove(connection.place);
        connection.note_over();
        drop(forgotten);
    }

    /// Takes out the one that began first, of those that are so.
    fn take_oldest(&self, is_so: impl Fn(&Connection) -> bool) -> Option<(Monotonic, Arc<Connection>)> {
        let mut list = self.0.lock();
        let (place, _) = list.iter().find(|(_, (_, connection))| is_so(connection))?;
        list.remove(place)
    }
}

impl Lane {
    /// The peer sends nothing any more. What it has asked for before is answered all the same.
    #[cold]
    pub(crate) fn peer_ended(&self, core: &Arc<Core>, connection: &Connection) {
        connection.note_peer_ended();
        self.ended(core, connection.place);
    }

    /// The peer broke the protocol: it is told so, and the connection ends.
    #[cold]
    pub(crate) fn refuse(&self, core: &Arc<Core>, connection: &Arc<Connection>, fault: Fault) {
        core.events().report(&Event::ProtocolFault { peer: connection.stream.peer().clone(), fault });
        connection.finish(&request::message_error(), clock::now(), self.closing_time);
        self.ended(core, connection.place);
    }

    /// The connection is over: nobody finds it any more; it ends when the last thread in it is out.
    #[cold]
    pub(crate) fn ended(&self, core: &Arc<Core>, place: Place) {
        let found = self.connections.get(place.0, place.1).map(|connection| Arc::clone(&connection));
        let Some(connection) = found else { return };
        // Counted before: the last thread may be out before `retire` returns. Until it is listed, or is gone, `is_closing` sees it here.
        self.ending.fetch_add(1, Ordering::AcqRel);
        let retired = self.endings.insert_if_used(&connection, || self.connections.retire(place.0, place.1));
        let was_deferred = matches!(retired, Retired::Deferred);
        let was_there = !matches!(retired, Retired::Stale);
        if let Retired::Taken(connection) = retired {
            self.end(connection);
        }
        if !was_deferred {
            self.ending.fetch_sub(1, Ordering::AcqRel);
        }
        if !was_there {
            return;
        }
        core.events().connection_closed();
        // Its descriptor may be free; if not, whoever is last in it says so.
        drop(connection);
        self.accept_again();
    }

    /// Nobody who found it is in the connection any more: while the ORB closes, the peer is told so. Who was told of a fault has time to
    /// read it, and who has closed its sending side and still reads its replies has them.
    #[cold]
    pub(super) fn end(&self, connection: Arc<Connection>) {
        if connection.is_dismissed() && !connection.is_finished() {
            connection.end_with(&request::close_connection());
            return self.endings.forget(&connection);
        }
        connection.note_left();
        self.endings.insert(&connection);
        let now = clock::now();
        // One whose peer has had its time is left to the next look at all of them, which tells of it.
        let has_had_its_time = !connection.is_closed() && connection.unread_for(now) > self.config.output_timeout;
        if !has_had_its_time && self.go_on(&connection, now) != Progress::On {
            return;
        }
        if self.stops() {
            // Nobody would come back to it.
            connection.close();
            self.endings.forget(&connection);
        } else {
            // Listed before: what has happened since is reported now.
            self.watch_room(&connection, true);
        }
    }

    /// Something has happened to the connection that was at `place`.
    #[cold]
    pub(super) fn go_on_ending(&self, core: &Core, place: Place) {
        if let Some(connection) = self.endings.find(place) {
            self.go_on_and_tell(core, &connection, clock::now());
            drop(connection);
            self.accept_again();
        }
    }

    fn go_on_and_tell(&self, core: &Core, connection: &Arc<Connection>, now: Monotonic) {
        if self.go_on(connection, now) == Progress::Unread {
            core.events().replies_unread([connection.stream.peer().clone()]);
        }
    }

    /// As far as it goes now.
    fn go_on(&self, connection: &Arc<Connection>, now: Monotonic) -> Progress {
        self.send_on(connection);
        let closes = self.closing.load(Ordering::SeqCst);
        let farewell = Farewell {
            last: closes.then(request::close_connection),
            closing_time: self.closing_time,
            output_timeout: self.config.output_timeout,
        };
        let progress = connection.linger(&farewell, now);
        if progress != Progress::On {
            self.endings.forget(connection);
        }
        progress
    }

    /// Sends what waits for the peer, for requests that may have more to say; those that waited for that go on.
    #[cold]
    fn send_on(&self, connection: &Arc<Connection>) {
        if connection.is_congested() {
            match connection.flush() {
                Ok(true) => {
                    for (waiting, message) in connection.take_postponed() {
                        self.resume(waiting, message);
                    }
                }
                Ok(false) => {}
                Err(_) => drop(connection.close()),
            }
        }
    }

    /// Whether connections are still on their way to the end; they go on as far as they can now.
    pub(crate) fn is_closing(&self, core: &Core) -> bool {
        // In this order: what has ended is listed before it is not counted any more.
        let ending = self.ending.load(Ordering::Acquire) > 0;
        let now = clock::now();
        for connection in self.endings.each() {
            connection.hurry(now, self.closing_time);
            self.go_on_and_tell(core, &connection, now);
        }
        ending || self.endings.len() > 0
    }

    /// Cuts those that nobody is in: nobody goes on with them any more. These peers have not taken their last replies.
    pub(crate) fn cut_endings(&self) -> Vec<Peer> {
        let oldest = || self.endings.take_oldest(Connection::is_left).map(|(_, connection)| connection);
        let cut = std::iter::from_fn(oldest).filter(|connection| connection.close() && connection.has_unsent());
        cut.map(|connection| connection.stream.peer().clone()).collect()
    }

    /// Time has passed: looks at all of them.
    pub(super) fn tidy_endings(&self, core: &Core, now: Monotonic) {
        for connection in self.endings.each() {
            // Once: one that is closed stays listed while a request of it runs.
            if connection.unread_for(now) > self.config.output_timeout && connection.close() {
                core.events().replies_unread([connection.stream.peer().clone()]);
            }
            self.go_on_and_tell(core, &connection, now);
        }
    }

    /// Closes the connection whose end has taken longest, for a new one, of those whose descriptor is free with that. False if there is none.
    #[cold]
    pub(super) fn cut_an_ending(&self, core: &Core) -> bool {
        let Some((since, connection)) = self.endings.take_oldest(Connection::is_unused) else { return false };
        let octets = connection.account().held();
        connection.close();
        connection.note_over();
        connection.account().forfeit();
        let (peer, after) = (connection.stream.peer().clone(), clock::now().since(since));
        core.events().report(&Event::EndCut { peer, octets, after });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_keeps_its_order_whatever_leaves_it() {
        let (mut list, mut model) = (List::new(), Vec::<(Place, u32)>::new());
        let mut state = 1u32;
        for number in 0..2000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let place = (state >> 16 & 7, 0);
            if state >> 30 == 0 {
                let at = model.iter().position(|(other, _)| *other == place);
                assert_eq!(list.remove(place), at.map(|at| model.remove(at).1));
            } else {
                list.insert(place, || number);
                if model.iter().all(|(other, _)| *other != place) {
                    model.push((place, number));
                }
            }
            assert!(list.iter().map(|(place, number)| (place, *number)).eq(model.iter().copied()));
            assert_eq!(
                (list.first, list.last),
                (model.first().map(|(place, _)| *place), model.last().map(|(place, _)| *place))
            );
        }
        for (place, number) in model {
            assert_eq!(list.remove(place), Some(number));
        }
        assert_eq!((list.first, list.last, list.all.len()), (None, None, 0));
    }
}
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod run;
