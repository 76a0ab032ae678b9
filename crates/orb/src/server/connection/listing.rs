//! The entry of a connection on its lane's ready list. A connection that is not retired has at most
//! one entry, because a connection with endless input would otherwise fill the list.

use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ReadCause {
    Readiness,
    Buffered,
}

const LISTED: u8 = 1;
const READINESS: u8 = 2;

/// `begin` releases and `take` acquires: the thread that takes the listing sees what the listing
/// threads wrote before.
#[derive(Debug)]
pub(super) struct Listing(AtomicU8);

impl Listing {
    pub(super) const fn new() -> Self {
        Listing(AtomicU8::new(0))
    }

    /// Records that the connection is on the list because of `cause`. Returns true if the
    /// connection was not on the list, so that the caller must add it.
    pub(super) fn begin(&self, cause: ReadCause) -> bool {
        let bits = if cause == ReadCause::Readiness { LISTED | READINESS } else { LISTED };
        self.0.fetch_or(bits, Ordering::AcqRel) & LISTED == 0
    }

    /// Records that the connection is no longer on the list. Returns [`ReadCause::Readiness`] if
    /// input was reported for the connection, or `None` if the connection was not on the list.
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
