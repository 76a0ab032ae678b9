//! Peers that connect and say nothing: which of them makes room for a new one, and how long one may take to say anything at all.
//! [`rank`] is pure; the lane carries out what follows from it.
//!
//! A connection that makes room ends at once and for certain: nothing of it is running, and nothing begins to, because whoever serves a
//! message counts as a user of its place, and the place is given up in one step if it has none. The peer is told
//! CloseConnection, after which a client may repeat elsewhere what it had just sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{PiMutex, Scope};
use corelane_sys::slots::Retired;

use super::connection::Connection;
use super::lane::Lane;
use crate::clock;
use crate::event::Event;
use crate::orb::Core;

/// No message has come yet.
pub(crate) const NEVER: u32 = 0;
/// Seconds after which a connection that has been used before may make room.
const IDLE: u32 = 10;
/// Connections that one look at all of them finds: the next newcomers cost no further look.
const CHOSEN: usize = 64;

/// What a connection's peer has done last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Silent {
    /// Nothing yet.
    Always,
    /// It has begun its first message.
    Begun,
    /// It has sent messages, the last one a while ago.
    Idle,
}

/// How soon a connection has to make room: the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    silent: Silent,
    heard: u32,
    number: u64,
}

/// Ranks a connection, the `number`th of its ORB, by when its last message came and whether one has begun; `None`: it stays.
#[must_use]
pub(crate) fn rank(heard: u32, unfinished: bool, now: u32, number: u64) -> Option<Rank> {
    let silent = match (heard, unfinished) {
        (NEVER, false) => Silent::Always,
        (NEVER, true) => Silent::Begun,
        (_, false) if now.saturating_sub(heard) >= IDLE => Silent::Idle,
        _ => return None,
    };
    Some(Rank { silent, heard, number })
}

/// What a lane knows of its silent connections.
#[derive(Debug)]
pub(crate) struct Silence {
    began: Monotonic,
    /// Seconds since then and one, as of the last look: a clock that costs a load.
    now: AtomicU32,
    /// Those that make room next, the first one last.
    chosen: PiMutex<Vec<(Rank, (u32, u32))>>,
}

impl Silence {
    pub(super) fn new(now: Monotonic) -> Self {
        let chosen = PiMutex::new("silent connections", Scope::Lane, Vec::new());
        Silence { began: now, now: AtomicU32::new(1), chosen }
    }

    #[inline]
    pub(super) fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Time has passed.
    pub(super) fn look(&self, now: Monotonic) {
        let seconds = u32::try_from(now.since(self.began).as_secs()).unwrap_or(u32::MAX);
        self.now.store(seconds.saturating_add(1), Ordering::Relaxed);
    }
}

impl Lane {
    /// Closes the connection whose peer has been silent longest: a client loses nothing by it. If none has been silent for long enough, the
    /// one whose end has taken longest. False if there is none of either.
    #[cold]
    pub(super) fn make_place(&self, core: &Arc<Core>) -> bool {
        self.dismiss_chosen(core)
            || {
                let chosen = self.choose_silent();
                *self.silence.chosen.lock() = chosen;
                self.dismiss_chosen(core)
            }
            || self.cut_an_ending(core)
    }

    /// Closes the first of the chosen that still may be closed.
    fn dismiss_chosen(&self, core: &Arc<Core>) -> bool {
        while let Some((rank, place)) = self.next_silent() {
            let found = self.connections.get(place.0, place.1).map(|connection| Arc::clone(&connection));
            if let Some(connection) = found
                && connection.rank(self.silence.now()) == Some(rank)
                && !connection.has_unread()
                && self.dismiss(core, &connection, true)
            {
                return true;
            }
        }
        false
    }

    /// The same for want of descriptors, in another lane if there is nothing to close in this one.
    #[cold]
    pub(super) fn free_a_descriptor(&self, core: &Arc<Core>) -> bool {
        self.make_place(core) || core.all_lanes().iter().any(|lane| lane.make_place(core))
    }

    fn next_silent(&self) -> Option<(Rank, (u32, u32))> {
        self.silence.chosen.lock().pop()
    }

    /// Looks at all connections for those that make room next.
    fn choose_silent(&self) -> Vec<(Rank, (u32, u32))> {
        let now = self.silence.now();
        let mut chosen = Vec::new();
        for connection in self.connections.iter() {
            let Some(rank) = connection.rank(now) else { continue };
            let found = (rank, connection.place);
            let at = chosen.partition_point(|other| *other < found);
            if at < CHOSEN {
                chosen.insert(at, found);
                chosen.truncate(CHOSEN);
            }
        }
        chosen.reverse();
        chosen
    }

    /// Whether a connection has taken too long for its first message. One that has begun is subject to the pool's `message_timeout`.
    pub(super) fn is_silent_too_long(&self, connection: &Connection, now: Monotonic) -> bool {
        let Some(most) = self.config.first_request_timeout else { return false };
        connection.never_spoke()
            && !connection.has_unfinished()
            && connection.silent_for(self.silence.now(), now) > most
            && !connection.has_unread()
    }

    /// Closes a silent connection. False if it is not silent any more.
    #[cold]
    pub(super) fn dismiss(&self, core: &Arc<Core>, connection: &Connection, made_room: bool) -> bool {
        // Before it is given up: who finds it gone looks whether its peer was told.
        connection.set_dismissed(true);
        self.ending.fetch_add(1, Ordering::AcqRel);
        let retired = self.connections.retire_unused(connection.place.0, connection.place.1);
        if matches!(retired, Retired::Stale) {
            connection.set_dismissed(false);
            self.ending.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        if let Retired::Taken(ended) = retired {
            self.end(ended);
            self.ending.fetch_sub(1, Ordering::AcqRel);
        }
        core.events().connection_closed();
        let silent = connection.silent_for(self.silence.now(), clock::now());
        let peer = connection.stream.peer().clone();
        core.events().report(&Event::SilentClosed { peer, silent, made_room });
        self.accept_again();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_spoke_goes_first_then_who_is_idle_longest() {
        let now = 100;
        let never = |number| rank(NEVER, false, now, number).unwrap();
        let idle = |heard, number| rank(heard, false, now, number);
        let mut ranks =
            [idle(20, 1).unwrap(), never(9), rank(NEVER, true, now, 3).unwrap(), never(7), idle(10, 2).unwrap()];
        ranks.sort_unstable();
        assert_eq!(ranks.map(|rank| rank.number), [7, 9, 3, 2, 1]);
        assert_eq!(idle(now - IDLE + 1, 1), None, "it has just been used");
        assert_eq!(rank(10, true, now, 1), None, "its next message is on its way");
    }
}
