//! Whether what arrives is taken in: connections and requests against the bounds of their lane. Pure: the lane and the connection
//! say how things stand, and carry out what is decided.

/// What is done with a connection that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is served.
    Serve,
    /// It is closed at once: the lane has as many as it may, or closes.
    Refuse,
}

/// What is done with a whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The thread that read it runs it.
    Run,
    /// It waits for another thread.
    Queue,
    /// TRANSIENT 1 (CORBA 3.0.3, section 4.12.4); a request without a reply is dropped.
    Refuse,
}

/// Admits a connection to a lane that has `open` of at most `most`.
#[must_use]
pub(crate) fn connection(closing: bool, open: usize, most: usize) -> Arrival {
    if closing || open >= most { Arrival::Refuse } else { Arrival::Serve }
}

/// Admits a request; `queue` is how many wait in the lane's queue, and how many may, if it has one.
#[must_use]
#[inline]
pub(crate) fn request(queue: Option<(usize, usize)>) -> Entry {
    match queue {
        None => Entry::Run,
        Some((waiting, most)) if waiting < most => Entry::Queue,
        Some(_) => Entry::Refuse,
    }
}

/// Octets of requests in a lane's queue: whether `more` may join `waiting`. Where nothing waits, a request of any size may: it would
/// never run otherwise.
#[must_use]
#[inline]
pub(crate) fn octets_fit(waiting: usize, more: usize, most: usize) -> bool {
    waiting == 0 || waiting.saturating_add(more) <= most
}

/// Whether a connection is read from: not while its peer leaves replies unread, and not while `most` of its requests wait
/// ([`Limits::outstanding_requests`](crate::Limits)). What is not read stays in the transport and in the end with the peer.
#[must_use]
#[inline]
pub(crate) fn reads(congested: bool, waiting: u32, most: u32) -> bool {
    !congested && waiting < most
}

/// What one connection may have of a queue that others share, by the queue's bound: an eighth, so that a peer that pipelines waits
/// for its own requests and turns nobody away.
#[must_use]
pub(crate) fn share(bound: usize) -> usize {
    (bound / 8).max(1)
}

/// Whether a request that waited may still run. When a connection was closed in good order, the peer was told that what it has no
/// answer to did not run; a peer that has merely gone meant what it sent, a oneway above all.
#[must_use]
pub(crate) fn runs_late(connection_lives: bool, closing: bool) -> bool {
    connection_lives || !closing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_bounded_and_none_comes_into_a_lane_that_closes() {
        assert_eq!(connection(false, 1, 2), Arrival::Serve);
        assert_eq!(connection(false, 2, 2), Arrival::Refuse);
        assert_eq!(connection(true, 0, 2), Arrival::Refuse);
    }

    #[test]
    fn requests_run_wait_or_are_refused() {
        assert_eq!(request(None), Entry::Run);
        assert_eq!(request(Some((1, 2))), Entry::Queue);
        assert_eq!(request(Some((2, 2))), Entry::Refuse);
        assert_eq!(request(Some((0, 0))), Entry::Refuse);
    }

    #[test]
    fn octets_of_the_queue_are_bounded_behind_the_first_request() {
        assert!(octets_fit(0, usize::MAX, 1));
        assert!(octets_fit(1, 2, 3));
        assert!(!octets_fit(1, 3, 3) && !octets_fit(1, usize::MAX, 3));
    }

    #[test]
    fn a_connection_is_not_read_while_replies_or_too_many_requests_wait() {
        assert!(reads(false, 3, 4));
        assert!(!reads(false, 4, 4));
        assert!(!reads(true, 0, 4));
    }

    #[test]
    fn a_connection_has_an_eighth_of_a_queue_and_never_nothing() {
        assert_eq!([0, 1, 15, 16, 1000].map(share), [1, 1, 1, 2, 125]);
    }

    #[test]
    fn what_the_peer_was_told_did_not_run_does_not_run() {
        assert!(!runs_late(false, true));
        assert!(runs_late(true, true) && runs_late(false, false));
    }
}
