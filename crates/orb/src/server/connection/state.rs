//! The state of a connection, and flags that do not depend on the state, in one atomic word.

use std::sync::atomic::{AtomicU32, Ordering};

/// The state of a connection. The table shows the state after each transition; where it shows none,
/// the transition fails.
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
/// Retiring a connection does not change its state. `Vacate` follows when the last thread has left
/// the connection, unless the connection ends at once because it was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Open = 0,
    ShutDown = 1,
    Draining = 2,
    Closed = 3,
    IdleClosing = 4,
    IdleClosed = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    BeginIdleClose,
    CancelIdleClose,
    ShutDown,
    Vacate,
}

impl ConnectionState {
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

const STATE: u32 = 7;
const SHUT_DOWN: u32 = 1;
const VACATED: u32 = 2;
/// Bit of the states of a connection that is closed because its peer is idle. `Vacate` clears it.
const IDLE: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    /// Replies wait for the peer, or a request waits for memory. Written under the output lock.
    Congested = 1 << 3,
    /// The stream has failed or ended. A thread must read it to its end, even if a read does not
    /// fill the buffer.
    HungUp = 1 << 4,
    PeerHalfClosed = 1 << 5,
    /// A request was handed to a thread of another lane, which sends the reply.
    HandedOver = 1 << 6,
    ReportPending = 1 << 7,
}

/// Apart from [`set_relaxed`](Self::set_relaxed), all writes are sequentially consistent. Changes
/// of the word and of the counts of waiting requests therefore have one total order.
#[derive(Debug)]
pub(super) struct StateWord(AtomicU32);

impl StateWord {
    pub(super) const fn new() -> Self {
        StateWord(AtomicU32::new(ConnectionState::Open as u32))
    }

    #[cold]
    pub(super) fn apply(&self, transition: Transition) -> bool {
        let next = |word| {
            let state = ConnectionState::from_word(word).after(transition)?;
            Some(word & !STATE | state as u32)
        };
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    #[inline]
    pub(super) fn is_shut_down(&self) -> bool {
        self.0.load(Ordering::Acquire) & SHUT_DOWN != 0
    }

    #[inline]
    pub(super) fn is_vacated(&self) -> bool {
        self.0.load(Ordering::SeqCst) & VACATED != 0
    }

    #[inline]
    pub(super) fn is_closed_idle(&self) -> bool {
        self.0.load(Ordering::SeqCst) & IDLE != 0
    }

    #[inline]
    pub(super) fn has(&self, flag: Flag, ordering: Ordering) -> bool {
        self.0.load(ordering) & flag as u32 != 0
    }

    #[cold]
    pub(super) fn set(&self, flag: Flag) -> bool {
        self.0.fetch_or(flag as u32, Ordering::SeqCst) & flag as u32 == 0
    }

    #[inline]
    pub(super) fn set_relaxed(&self, flag: Flag) {
        if !self.has(flag, Ordering::Relaxed) {
            self.0.fetch_or(flag as u32, Ordering::Relaxed);
        }
    }

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
