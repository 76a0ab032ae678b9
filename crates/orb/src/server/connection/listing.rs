//! The listing of a connection for reading: the connection is a task on its lane's ready list, at
//! most once.
//!
//! If a connection could be on the list several times, each event of a connection with endless
//! input would add an entry. The list would grow without bound, and connections at its end would
//! wait for all entries before them.

use std::sync::atomic::{AtomicU8, Ordering};

/// The reason why a thread reads a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ReadCause {
    /// The stream may have input.
    Readiness,
    /// The connection's buffer may contain further messages.
    Buffered,
}

/// Bit that is set while the connection is on the list.
const LISTED: u8 = 1;
/// Bit that is set if one of the causes of the listing is [`ReadCause::Readiness`].
const READINESS: u8 = 2;

/// The causes for which a connection is on the ready list, as bits. 0 if it is not on the list.
///
/// `begin` releases and `take` acquires: the thread that takes the listing sees all that the
/// threads that added a cause wrote before.
#[derive(Debug)]
pub(super) struct Listing(AtomicU8);

impl Listing {
    pub(super) const fn new() -> Self {
        Listing(AtomicU8::new(0))
    }

    /// Adds a cause. Returns true if the connection was not on the list, so that the caller must
    /// put it there.
    pub(super) fn begin(&self, cause: ReadCause) -> bool {
        let bits = if cause == ReadCause::Readiness { LISTED | READINESS } else { LISTED };
        self.0.fetch_or(bits, Ordering::AcqRel) & LISTED == 0
    }

    /// Ends the listing. Returns its cause, [`ReadCause::Readiness`] if it had both causes, or
    /// `None` if the connection was not on the list.
    pub(super) fn take(&self) -> Option<ReadCause> {
        match self.0.swap(0, Ordering::AcqRel) {
            0 => None,
            LISTED => Some(ReadCause::Buffered),
            _ => Some(ReadCause::Readiness),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_listed_once_for_all_causes() {
        let listing = Listing::new();
        assert_eq!(listing.take(), None);
        assert!(listing.begin(ReadCause::Buffered) && !listing.begin(ReadCause::Buffered));
        assert_eq!((listing.take(), listing.take()), (Some(ReadCause::Buffered), None));
        assert!(listing.begin(ReadCause::Buffered) && !listing.begin(ReadCause::Readiness));
        assert_eq!((listing.take(), listing.take()), (Some(ReadCause::Readiness), None));
    }
}
