//! The state of a connection, and flags that do not depend on the state, in one atomic word.

use std::sync::atomic::{AtomicU32, Ordering};

/// The state of a connection. The table shows the state after each transition. An empty cell means
/// that the state does not change.
///
/// | from | `BeginIdleClose` | `CancelIdleClose` | `ShutDown` | `Vacate` |
/// |---|---|---|---|---|
/// | `Open` | `IdleClosing` | | `ShutDown` | `Draining` |
/// | `IdleClosing` | | `Open` | `IdleClosed` | `Draining` |
/// | `ShutDown` | `IdleClosed` | | | `Closed` |
/// | `IdleClosed` | | `ShutDown` | | `Closed` |
/// | `Draining` | | | `Closed` | |
/// | `Closed` | | | | |
///
/// A connection that is retired while threads use it keeps its state until the last thread leaves
/// it (`Vacate`). Congestion is a flag, because both an open and a draining connection can be
/// congested. No state tells that the last message has been queued: `WriteState::closing` does,
/// under the output lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// The lane serves the connection.
    Open = 0,
    /// The stream is shut down in both directions. The connection is not retired, and threads may
    /// use it.
    ShutDown = 1,
    /// The connection is retired, no thread uses it, and the stream is open, so that the peer can
    /// get the last output.
    Draining = 2,
    /// The connection is retired, no thread uses it, and the stream is shut down.
    Closed = 3,
    /// A thread is retiring the connection because the peer is idle. If another thread uses the
    /// connection, the state becomes `Open` again.
    IdleClosing = 4,
    /// The connection is retired, or is being retired, because the peer is idle, and the stream is
    /// shut down. The peer was sent CloseConnection, which says that unanswered requests did not
    /// run.
    IdleClosed = 5,
}

/// An event that changes the state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// A thread begins to retire the connection because its peer is idle.
    BeginIdleClose,
    /// The thread does not retire the connection, because another thread uses it.
    CancelIdleClose,
    /// The stream is shut down in both directions.
    ShutDown,
    /// The connection is retired, and the last thread has left it.
    Vacate,
}

impl ConnectionState {
    /// Returns the state after a transition, or `None` if the state does not change.
    fn after(self, transition: Transition) -> Option<Self> {
        use ConnectionState::*;
        match (self, transition) {
            (Open, Transition::BeginIdleClose) => Some(IdleClosing),
            (ShutDown, Transition::BeginIdleClose) => Some(IdleClosed),
            (IdleClosing, Transition::CancelIdleClose) => Some(Open),
            (IdleClosed, Transition::CancelIdleClose) => Some(ShutDown),
            (Open, Transition::ShutDown) => Some(ShutDown),
            (IdleClosing, Transition::ShutDown) => Some(IdleClosed),
            (Draining, Transition::ShutDown) => Some(Closed),
            (Open | IdleClosing, Transition::Vacate) => Some(Draining),
            (ShutDown | IdleClosed, Transition::Vacate) => Some(Closed),
            _ => None,
        }
    }

    fn from_word(word: u32) -> Self {
        match word & STATE {
            0 => ConnectionState::Open,
            1 => ConnectionState::ShutDown,
            2 => ConnectionState::Draining,
            4 => ConnectionState::IdleClosing,
            5 => ConnectionState::IdleClosed,
            _ => ConnectionState::Closed,
        }
    }
}

/// The bits of the word that are the [`ConnectionState`]. The other bits are [`Flag`]s.
const STATE: u32 = 7;
/// Bit that is set in the states in which the stream is shut down.
const SHUT_DOWN: u32 = 1;
/// Bit that is set in the states in which the connection is retired and no thread uses it.
const VACATED: u32 = 2;
/// Bit that is set in the states of a connection that is retired because its peer is idle. `Vacate`
/// clears the bit, if the last message was queued before, after a fault of the peer. The connection
/// then drains.
const IDLE: u32 = 4;

/// A property of a connection that does not depend on its [`ConnectionState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    /// Replies wait for the peer to read, and the lane does not read the connection. Written under
    /// the output lock.
    Congested = 1 << 3,
    /// Epoll has reported the end of the stream. A thread must read the stream to its end, even if
    /// a read does not fill the buffer.
    HungUp = 1 << 4,
    /// The peer has closed its sending direction. It may read.
    PeerHalfClosed = 1 << 5,
    /// A request was handed over to another lane, whose thread will send the reply. Set by the
    /// thread that reads the request.
    HandedOver = 1 << 6,
    /// A stream without a descriptor has called its readiness callback, and no thread has handled
    /// the call.
    ReportPending = 1 << 7,
}

/// The atomic word with a [`ConnectionState`] and the [`Flag`]s.
///
/// Each request loads the word. Rare events write it, by sequentially consistent read-modify-write
/// operations. A thread that sees a change therefore sees all that its writer wrote before. Changes
/// of the word and of the counts of waiting requests have one total order.
/// [`set_relaxed`](Self::set_relaxed) gives neither guarantee.
#[derive(Debug)]
pub(super) struct StateWord(AtomicU32);

impl StateWord {
    /// Makes the word of an open connection, with all flags clear.
    pub(super) const fn new() -> Self {
        StateWord(AtomicU32::new(ConnectionState::Open as u32))
    }

    /// Makes a transition. Returns true if it changed the state.
    #[cold]
    pub(super) fn apply(&self, transition: Transition) -> bool {
        let next = |word| {
            let state = ConnectionState::from_word(word).after(transition)?;
            Some(word & !STATE | state as u32)
        };
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// Returns true if the stream is shut down. The load is `Acquire`: the caller sees all that the
    /// thread wrote before it shut the stream down.
    #[inline]
    pub(super) fn is_shut_down(&self) -> bool {
        self.0.load(Ordering::Acquire) & SHUT_DOWN != 0
    }

    /// Returns true if the connection is retired and no thread uses it.
    #[inline]
    pub(super) fn is_vacated(&self) -> bool {
        self.0.load(Ordering::SeqCst) & VACATED != 0
    }

    /// Returns true if the connection is retired, or being retired, because its peer is idle.
    #[inline]
    pub(super) fn is_closed_idle(&self) -> bool {
        self.0.load(Ordering::SeqCst) & IDLE != 0
    }

    /// Returns true if `flag` is set. Loads the word with the memory order `ordering`.
    #[inline]
    pub(super) fn has(&self, flag: Flag, ordering: Ordering) -> bool {
        self.0.load(ordering) & flag as u32 != 0
    }

    /// Sets `flag`. Returns true if the flag was clear before.
    #[cold]
    pub(super) fn set(&self, flag: Flag) -> bool {
        self.0.fetch_or(flag as u32, Ordering::SeqCst) & flag as u32 == 0
    }

    /// Sets `flag` with `Relaxed` order, if it is clear.
    #[inline]
    pub(super) fn set_relaxed(&self, flag: Flag) {
        if !self.has(flag, Ordering::Relaxed) {
            self.0.fetch_or(flag as u32, Ordering::Relaxed);
        }
    }

    /// Clears `flag`. Returns true if the flag was set before.
    #[cold]
    pub(super) fn clear(&self, flag: Flag) -> bool {
        self.0.fetch_and(!(flag as u32), Ordering::SeqCst) & flag as u32 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionState::{Closed, Draining, IdleClosed, IdleClosing, Open, ShutDown};
    use super::*;

    const STATES: [ConnectionState; 6] = [Open, ShutDown, Draining, Closed, IdleClosing, IdleClosed];
    const FLAGS: [Flag; 5] =
        [Flag::Congested, Flag::HungUp, Flag::PeerHalfClosed, Flag::HandedOver, Flag::ReportPending];

    fn word(state: ConnectionState) -> StateWord {
        StateWord(AtomicU32::new(state as u32))
    }

    fn state(word: &StateWord) -> ConnectionState {
        ConnectionState::from_word(word.0.load(Ordering::Relaxed))
    }

    #[test]
    fn transitions_are_those_of_the_table() {
        let table = [
            (Transition::BeginIdleClose, [(Open, IdleClosing), (ShutDown, IdleClosed)].as_slice()),
            (Transition::CancelIdleClose, &[(IdleClosing, Open), (IdleClosed, ShutDown)]),
            (Transition::ShutDown, &[(Open, ShutDown), (IdleClosing, IdleClosed), (Draining, Closed)]),
            (
                Transition::Vacate,
                &[(Open, Draining), (IdleClosing, Draining), (ShutDown, Closed), (IdleClosed, Closed)],
            ),
        ];
        for (transition, changes) in table {
            for from in STATES {
                let to = changes.iter().find(|change| change.0 == from).map(|change| change.1);
                let word = word(from);
                assert_eq!(word.apply(transition), to.is_some(), "{from:?} {transition:?}");
                assert_eq!(state(&word), to.unwrap_or(from), "{from:?} {transition:?}");
            }
        }
    }

    #[test]
    fn predicates_hold_in_their_states_only() {
        let states = |predicate: fn(&StateWord) -> bool| {
            STATES.map(word).iter().filter(|word| predicate(word)).map(state).collect::<Vec<_>>()
        };
        assert_eq!(states(StateWord::is_shut_down), [ShutDown, Closed, IdleClosed]);
        assert_eq!(states(StateWord::is_vacated), [Draining, Closed]);
        assert_eq!(states(StateWord::is_closed_idle), [IdleClosing, IdleClosed]);
    }

    #[test]
    fn flags_and_state_do_not_change_each_other() {
        let word = StateWord::new();
        for flag in FLAGS {
            assert!(word.set(flag) && !word.set(flag));
            assert_eq!(state(&word), Open);
        }
        assert!(word.apply(Transition::ShutDown) && word.apply(Transition::Vacate));
        for flag in FLAGS {
            assert!(word.has(flag, Ordering::Relaxed) && word.clear(flag));
            assert!(!word.has(flag, Ordering::Relaxed) && !word.clear(flag));
            assert_eq!(state(&word), Closed);
        }
        word.set_relaxed(Flag::HandedOver);
        assert!(word.has(Flag::HandedOver, Ordering::Relaxed));
    }
}
