//! The listing of a connection for reading. A connection is on its lane's list at most once.
//!
//! Without this bound, each event of a connection with endless input would list it once more. The
//! list would grow, and connections at its end would wait for all earlier entries.

use std::sync::atomic::{AtomicU8, Ordering};

/// The reason why a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ReadCause {
    /// The socket may have input.
    Readiness,
    /// The buffer may hold further messages.
    Buffered,
}

const LISTED: u8 = 1;
/// Bit that is set if one of the causes is [`ReadCause::Readiness`].
const READINESS: u8 = 2;

/// The causes for which a connection is listed.
///
/// Memory order: a thread that finds the connection listed has written its input before. The thread
/// that takes the listing later sees these writes.
#[derive(Debug)]
pub(super) struct Listing(AtomicU8);

impl Listing {
    pub(super) const fn new() -> Self {
        Listing(AtomicU8::new(0))
    }

    /// Adds a cause. Returns true if the connection was not listed.
    pub(super) fn begin(&self, cause: ReadCause) -> bool {
        let bits = if cause == ReadCause::Readiness { LISTED | READINESS } else { LISTED };
        self.0.fetch_or(bits, Ordering::AcqRel) & LISTED == 0
    }

    /// Ends the listing. Returns its cause; [`ReadCause::Readiness`] if it had both causes.
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
