//! Splits a byte stream into messages and assembles fragments (CORBA 3.0.3 section 15.4.9).
//!
//! ```text
//! Fragment 1.1  header | data             of the last Request or Reply that announced fragments
//! Fragment 1.2  header | unsigned long id | data
//! ```
//!
//! GIOP 1.2 data is aligned as in the message before the sender cut it. GIOP 1.1 data is aligned
//! from the header of its own fragment. An assembled GIOP 1.1 message therefore comes with the
//! offsets at which its fragments begin, for
//! [`Decoder::with_fragment_starts`](crate::Decoder::with_fragment_starts).

use super::ProtocolFault;
use crate::cdr::{Decoder, Endian};
use crate::giop::{Header, MessageKind};
use crate::limits::Limits;

/// The result of examining the unread bytes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum FramingStep {
    /// More input is needed: at least this many bytes, counted from the first unread byte.
    NeedMore(usize),
    /// The first `len` bytes are one whole message, which the caller reads in place.
    Message {
        /// The header of the message.
        header: Header,
        /// Length of the message in bytes, header included.
        len: usize,
    },
    /// The first bytes are a fragment of this length, header included. It is not the last fragment
    /// of its message, and the framer has copied it.
    FragmentBuffered(usize),
    /// The first `len` bytes were the last fragment of a message.
    Assembled {
        /// The whole message, in the form that it has without fragmentation.
        message: Vec<u8>,
        /// The header of the assembled message.
        header: Header,
        /// Offsets in the message where GIOP 1.1 fragments begin; empty in GIOP 1.2.
        fragment_starts: Vec<usize>,
        /// Length of the last fragment in bytes, header included.
        len: usize,
    },
}

/// Splits the bytes that one side of a connection receives into messages.
///
/// Call [`next`](Framer::next) with the bytes that are not consumed yet. Then consume nothing for
/// [`FramingStep::NeedMore`], and the length in the result otherwise. After a fault the connection
/// must be closed.
#[derive(Debug, Default)]
pub struct Framer {
    partial_messages: Vec<PartialMessage>,
    partial_message_bytes: usize,
    messages_started: u64,
}

#[derive(Debug)]
struct PartialMessage {
    number: u64,
    /// The request id in the message's fragments; `None` in GIOP 1.1, whose fragments name no
    /// request.
    request_id: Option<u32>,
    header: Header,
    message: Vec<u8>,
    fragment_starts: Vec<usize>,
    fragments: u32,
}

impl Framer {
    /// Creates a framer for a new connection.
    #[must_use]
    pub fn new() -> Framer {
        Framer::default()
    }

    /// Returns the number of messages whose last fragment has not arrived.
    #[must_use]
    pub fn partial_message_count(&self) -> usize {
        self.partial_messages.len()
    }

    /// Returns the oldest partial message: its number among the fragmented messages of this
    /// connection, from 1, and its length so far in bytes.
    #[must_use]
    pub fn oldest_partial_message(&self) -> Option<(u64, usize)> {
        self.partial_messages.first().map(|partial| (partial.number, partial.message.len()))
    }

    /// Returns true if the reply to request `request_id` has arrived in part, without its last
    /// fragment. In GIOP 1.1 any partial reply counts, because its fragments name no request.
    #[must_use]
    pub fn has_partial_reply(&self, request_id: u32) -> bool {
        let is_reply = |kind| matches!(kind, MessageKind::Reply | MessageKind::LocateReply);
        self.partial_messages
            .iter()
            .any(|partial| is_reply(partial.header.kind) && partial.request_id.is_none_or(|id| id == request_id))
    }

    /// Returns the beginning of the message to which a fault at the front of `unread` belongs. If
    /// `unread` begins with a Fragment of a message that is buffered in part, the result is the
    /// buffered part; otherwise the result is `unread`.
    #[must_use]
    pub fn faulty_message<'o>(&'o self, unread: &'o [u8]) -> &'o [u8] {
        let Some(Ok(header)) = unread.first_chunk().map(Header::parse) else { return unread };
        if header.kind != MessageKind::Fragment {
            return unread;
        }
        let id = if header.version.has_fragment_ids() { request_id(&header, unread).ok() } else { None };
        self.find_partial(id)
            .and_then(|index| self.partial_messages.get(index))
            .map_or(unread, |partial| &partial.message)
    }

    /// Returns the number of bytes that are buffered for partial messages.
    #[must_use]
    pub fn partial_message_bytes(&self) -> usize {
        self.partial_message_bytes
    }

    /// Examines the unread bytes and returns the next step.
    ///
    /// # Errors
    /// [`ProtocolFault`]. Bytes that cannot become a valid header are refused before a whole header
    /// has arrived.
    #[inline]
    pub fn next(&mut self, unread: &[u8], limits: &Limits) -> Result<FramingStep, ProtocolFault> {
        let Some(octets) = unread.first_chunk() else {
            return if unread.is_empty() { Ok(FramingStep::NeedMore(Header::LEN)) } else { check_short_header(unread) };
        };
        let header = Header::parse(octets)?;
        if header.size > limits.max_message_size {
            return Err(ProtocolFault::TooLarge { size: u64::from(header.size), limit: limits.max_message_size });
        }
        let len = header.total_len();
        let Some(message) = unread.get(..len) else { return Ok(FramingStep::NeedMore(len)) };
        if header.more_fragments || header.kind == MessageKind::Fragment {
            return self.take_fragment(header, message, limits);
        }
        if header.kind == MessageKind::CancelRequest && !self.partial_messages.is_empty() {
            self.drop_cancelled(&header, message);
        }
        Ok(FramingStep::Message { header, len })
    }

    #[cold]
    fn take_fragment(&mut self, header: Header, message: &[u8], limits: &Limits) -> Result<FramingStep, ProtocolFault> {
        if header.kind == MessageKind::Fragment {
            self.continue_message(header, message, limits)
        } else {
            self.start_message(header, message, limits)
        }
    }

    fn start_message(&mut self, header: Header, message: &[u8], limits: &Limits) -> Result<FramingStep, ProtocolFault> {
        use MessageKind::{LocateReply, LocateRequest, Reply, Request};
        let has_id = header.version.has_fragment_ids();
        let fragmentable = match header.kind {
            Request | Reply => true,
            LocateRequest | LocateReply => has_id,
            _ => false,
        };
        if !fragmentable {
            return Err(ProtocolFault::NotFragmentable { kind: header.kind });
        }
        let request_id = if has_id { Some(request_id(&header, message)?) } else { None };
        if self.find_partial(request_id).is_some() {
            return Err(ProtocolFault::InterleavedFragments);
        }
        if self.partial_messages.len() >= limits.max_partial_messages as usize {
            return Err(ProtocolFault::TooManyPartialMessages { limit: limits.max_partial_messages });
        }
        self.reserve_bytes(message.len(), limits)?;
        let message = message.to_vec();
        self.messages_started += 1;
        self.partial_messages.push(PartialMessage {
            number: self.messages_started,
            request_id,
            header,
            message,
            fragment_starts: Vec::new(),
            fragments: 1,
        });
        Ok(FramingStep::FragmentBuffered(header.total_len()))
    }

    fn continue_message(
        &mut self,
        header: Header,
        message: &[u8],
        limits: &Limits,
    ) -> Result<FramingStep, ProtocolFault> {
        let has_id = header.version.has_fragment_ids();
        let request_id = if has_id { Some(request_id(&header, message)?) } else { None };
        let index = self.find_partial(request_id).ok_or(ProtocolFault::UnexpectedFragment { request_id })?;
        let data = message.get(Header::LEN + if has_id { 4 } else { 0 }..).unwrap_or_default();
        self.reserve_bytes(data.len(), limits)?;
        let Some(partial) = self.partial_messages.get_mut(index) else {
            return Err(ProtocolFault::UnexpectedFragment { request_id });
        };
        if (partial.header.version, partial.header.endian) != (header.version, header.endian) {
            return Err(ProtocolFault::FragmentMismatch);
        }
        partial.fragments += 1;
        if partial.fragments > limits.max_fragments {
            return Err(ProtocolFault::TooManyFragments { limit: limits.max_fragments });
        }
        let size = partial.message.len() - Header::LEN + data.len();
        match u32::try_from(size) {
            Ok(size) if size <= limits.max_message_size => partial.header.size = size,
            _ => {
                let size = u64::try_from(size).unwrap_or(u64::MAX);
                return Err(ProtocolFault::TooLarge { size, limit: limits.max_message_size });
            }
        }
        if !has_id {
            partial.fragment_starts.push(partial.message.len());
        }
        partial.message.extend_from_slice(data);
        if header.more_fragments {
            return Ok(FramingStep::FragmentBuffered(header.total_len()));
        }
        let PartialMessage { header: mut whole, mut message, fragment_starts: breaks, .. } =
            self.partial_messages.remove(index);
        self.partial_message_bytes -= message.len();
        whole.more_fragments = false;
        message.iter_mut().zip(whole.to_bytes()).for_each(|(to, from)| *to = from);
        Ok(FramingStep::Assembled { message, header: whole, fragment_starts: breaks, len: header.total_len() })
    }

    /// Drops the partial message that a CancelRequest names, because a client may send a
    /// CancelRequest instead of the remaining fragments.
    #[cold]
    fn drop_cancelled(&mut self, header: &Header, message: &[u8]) {
        if let Ok(request_id) = request_id(header, message)
            && let Some(index) = self.find_partial(Some(request_id))
        {
            self.partial_message_bytes -= self.partial_messages.remove(index).message.len();
        }
    }

    fn find_partial(&self, request_id: Option<u32>) -> Option<usize> {
        self.partial_messages.iter().position(|partial| partial.request_id == request_id)
    }

    fn reserve_bytes(&mut self, len: usize, limits: &Limits) -> Result<(), ProtocolFault> {
        let octets = self.partial_message_bytes + len;
        if octets > limits.max_partial_message_bytes as usize + Header::LEN {
            let size = u64::try_from(octets).unwrap_or(u64::MAX);
            return Err(ProtocolFault::PartialMessagesTooLarge { size, limit: limits.max_partial_message_bytes });
        }
        self.partial_message_bytes = octets;
        Ok(())
    }
}

/// Reads the request id, which comes first in every GIOP 1.2 message that may be fragmented, and in
/// every CancelRequest.
fn request_id(header: &Header, message: &[u8]) -> Result<u32, ProtocolFault> {
    let endian: Endian = header.endian;
    Decoder::new(message, endian).at_position(Header::LEN).read_u32().map_err(|_| ProtocolFault::MissingRequestId)
}

/// Checks the first bytes of a header, so that a peer that does not speak GIOP is refused before it
/// sends more. If they are valid, returns [`FramingStep::NeedMore`] for a whole header.
#[cold]
fn check_short_header(unread: &[u8]) -> Result<FramingStep, ProtocolFault> {
    let mut octets = *b"GIOP\x01\x02\x00\x00\x00\x00\x00\x00";
    octets.iter_mut().zip(unread).for_each(|(to, from)| *to = *from);
    Header::parse(&octets)?;
    Ok(FramingStep::NeedMore(Header::LEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::giop::HeaderError;
    use crate::giop::Version;

    fn message(minor: u8, kind: MessageKind, more: bool, body: &[u8]) -> Vec<u8> {
        let version = Version { major: 1, minor };
        let size = u32::try_from(body.len()).unwrap();
        let header = Header { version, endian: Endian::Big, more_fragments: more, kind, size };
        [&header.to_bytes(), body].concat()
    }

    fn steps(framer: &mut Framer, messages: &[Vec<u8>], limits: &Limits) -> Result<FramingStep, ProtocolFault> {
        let mut last = Ok(FramingStep::NeedMore(0));
        for message in messages {
            last = framer.next(message, limits);
        }
        last
    }

    #[test]
    fn messages_do_not_depend_on_the_pieces_in_which_they_arrive() {
        let message = b"GIOP\x01\x02\x01\x05\x00\x00\x00\x00GIOP\x01\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00\x07";
        let limits = Limits::default();
        let mut framer = Framer::new();
        for len in 0..12 {
            assert_eq!(framer.next(&message[..len], &limits), Ok(FramingStep::NeedMore(12)));
        }
        let Ok(FramingStep::Message { header, len: 12 }) = framer.next(message, &limits) else { panic!() };
        assert_eq!(header.kind, MessageKind::CloseConnection);
        assert_eq!(framer.next(&message[12..26], &limits), Ok(FramingStep::NeedMore(16)));
        let Ok(FramingStep::Message { header, len: 16 }) = framer.next(&message[12..], &limits) else { panic!() };
        assert_eq!((header.kind, header.size), (MessageKind::CancelRequest, 4));
    }

    #[test]
    fn other_protocols_are_refused_at_the_first_octet() {
        let limits = Limits::default();
        let refused = |octets: &[u8]| Framer::new().next(octets, &limits).unwrap_err();
        assert_eq!(refused(b"GET"), ProtocolFault::Header(HeaderError::BadMagic { got: *b"GETP" }));
        assert!(matches!(refused(b"GIOP\x01\x03"), ProtocolFault::Header(HeaderError::UnsupportedVersion { .. })));
        assert_eq!(
            refused(b"GIOP\x01\x02\x00\x00\xff\xff\xff\xff"),
            ProtocolFault::TooLarge { size: 0xffff_ffff, limit: 64 << 20 }
        );
    }

    #[test]
    fn interleaved_fragments_of_giop_1_2_are_assembled() {
        use MessageKind::{Fragment, LocateReply, Request};
        let mut framer = Framer::new();
        let limits = Limits::default();
        let parts = [
            message(2, Request, true, &[0, 0, 0, 1, 10, 11, 12, 13]),
            message(2, LocateReply, true, &[0, 0, 0, 2, 20]),
            message(2, Fragment, true, &[0, 0, 0, 1, 14]),
            message(2, Request, false, &[0, 0, 0, 9]),
            message(2, Fragment, false, &[0, 0, 0, 2]),
        ];
        let Ok(FramingStep::Assembled { message: whole, header, fragment_starts: breaks, len: 16 }) =
            steps(&mut framer, &parts, &limits)
        else {
            panic!()
        };
        assert_eq!(whole, message(2, LocateReply, false, &[0, 0, 0, 2, 20]));
        assert_eq!((header.kind, header.size, breaks.len(), framer.partial_message_count()), (LocateReply, 5, 0, 1));
        assert_eq!(framer.oldest_partial_message(), Some((1, 21)));
        let last = [message(2, Fragment, false, &[0, 0, 0, 1, 15, 16])];
        let Ok(FramingStep::Assembled { message: whole, .. }) = steps(&mut framer, &last, &limits) else { panic!() };
        assert_eq!(whole, message(2, Request, false, &[0, 0, 0, 1, 10, 11, 12, 13, 14, 15, 16]));
        assert_eq!((framer.partial_message_count(), framer.partial_message_bytes()), (0, 0));
    }

    #[test]
    fn assembled_giop_1_1_message_comes_with_its_fragment_starts() {
        use MessageKind::{Fragment, Reply};
        let parts = [
            message(1, Reply, true, &[1, 2, 3, 4]),
            message(1, MessageKind::CancelRequest, false, &[0; 4]),
            message(1, Fragment, true, &[5]),
            message(1, Fragment, false, &[6, 7]),
        ];
        let step = steps(&mut Framer::new(), &parts, &Limits::default());
        let Ok(FramingStep::Assembled { message: whole, fragment_starts: breaks, .. }) = step else { panic!() };
        assert_eq!((whole, breaks), (message(1, Reply, false, &[1, 2, 3, 4, 5, 6, 7]), vec![16, 17]));
    }

    #[test]
    fn cancel_request_drops_the_partial_request() {
        use MessageKind::{CancelRequest, Request};
        let mut framer = Framer::new();
        let limits = Limits::default();
        let first = message(2, Request, true, &[0, 0, 0, 1]);
        let parts = [first.clone(), message(2, CancelRequest, false, &[0, 0, 0, 1])];
        assert!(matches!(steps(&mut framer, &parts, &limits), Ok(FramingStep::Message { .. })));
        assert_eq!((framer.partial_message_count(), framer.partial_message_bytes()), (0, 0));
        assert_eq!(framer.oldest_partial_message(), None);
        assert_eq!(framer.next(&first, &limits), Ok(FramingStep::FragmentBuffered(16)));
        assert_eq!(framer.oldest_partial_message(), Some((2, 16)));
    }

    #[test]
    fn invalid_sequences_of_fragments_are_refused() {
        use MessageKind::{CancelRequest, Fragment, LocateRequest, Request};
        let limits = Limits::default();
        let refused = |parts: &[Vec<u8>]| steps(&mut Framer::new(), parts, &limits).unwrap_err();
        let id = [0, 0, 0, 1];
        let first = message(2, Request, true, &id);
        assert_eq!(refused(&[first.clone(), first.clone()]), ProtocolFault::InterleavedFragments);
        let old = message(1, Request, true, &id);
        assert_eq!(refused(&[old.clone(), old]), ProtocolFault::InterleavedFragments);
        let fragment = message(2, Fragment, false, &id);
        assert_eq!(refused(&[fragment]), ProtocolFault::UnexpectedFragment { request_id: Some(1) });
        let fragment = message(1, Fragment, false, &id);
        assert_eq!(refused(&[first.clone(), fragment]), ProtocolFault::UnexpectedFragment { request_id: None });
        assert_eq!(refused(&[message(2, Request, true, &[0])]), ProtocolFault::MissingRequestId);
        assert_eq!(
            refused(&[message(2, CancelRequest, true, &id)]),
            ProtocolFault::NotFragmentable { kind: CancelRequest }
        );
        assert_eq!(
            refused(&[message(1, LocateRequest, true, &id)]),
            ProtocolFault::NotFragmentable { kind: LocateRequest }
        );
        let mut other_order = message(2, Fragment, false, &[1, 0, 0, 0]);
        (other_order[6], other_order[8], other_order[11]) = (1, 4, 0);
        let mut swapped_id = first;
        swapped_id[12..16].copy_from_slice(&[0, 0, 0, 1]);
        assert_eq!(refused(&[swapped_id, other_order]), ProtocolFault::FragmentMismatch);
    }

    #[test]
    fn unfinished_messages_are_limited() {
        use MessageKind::{Fragment, Request};
        let limits = Limits {
            max_message_size: 32,
            max_partial_messages: 2,
            max_partial_message_bytes: 80,
            max_fragments: 3,
            ..Limits::default()
        };
        let first = |id| message(2, Request, true, &[[0, 0, 0, id].as_slice(), &[0; 20]].concat());
        let more = |id, len| message(2, Fragment, true, &[&[0, 0, 0, id], vec![0; len].as_slice()].concat());
        let refused = |parts: &[Vec<u8>]| steps(&mut Framer::new(), parts, &limits).unwrap_err();
        assert_eq!(refused(&[first(1), first(2), first(3)]), ProtocolFault::TooManyPartialMessages { limit: 2 });
        let size = ProtocolFault::PartialMessagesTooLarge { size: 93, limit: 80 };
        assert_eq!(refused(&[first(1), first(2), more(1, 8), more(2, 13)]), size);
        assert_eq!(refused(&[first(1), more(1, 9)]), ProtocolFault::TooLarge { size: 33, limit: 32 });
        let empty = [first(1), more(1, 0), more(1, 0), more(1, 0)];
        assert_eq!(refused(&empty), ProtocolFault::TooManyFragments { limit: 3 });
    }

    #[test]
    fn partial_bytes_count_unfinished_messages_only() {
        use MessageKind::{CancelRequest, Fragment, Reply, Request};
        let limits = Limits::default();
        let mut framer = Framer::new();
        let steps = [
            (message(2, Request, true, &[0, 0, 0, 1, 9, 9]), 1, 18),
            // A whole message with the same id does not end the partial message; only a
            // CancelRequest does.
            (message(2, Request, false, &[0, 0, 0, 1, 7, 7]), 1, 18),
            (message(1, Reply, true, &[1, 2, 3]), 2, 33),
            (message(2, Fragment, true, &[0, 0, 0, 1, 9, 9, 9, 9, 9]), 2, 38),
            (message(1, Fragment, true, &[4, 5]), 2, 40),
            (message(2, Request, true, &[0, 0, 0, 2]), 3, 56),
            (message(2, CancelRequest, false, &[0, 0, 0, 2]), 2, 40),
            (message(2, CancelRequest, false, &[0, 0, 0, 3]), 2, 40),
            (message(1, Fragment, false, &[6]), 1, 23),
            (message(2, Fragment, false, &[0, 0, 0, 1, 9]), 0, 0),
        ];
        for (index, (octets, pending, held)) in steps.into_iter().enumerate() {
            framer.next(&octets, &limits).unwrap();
            assert_eq!(
                (framer.partial_message_count(), framer.partial_message_bytes()),
                (pending, held),
                "after step {index}"
            );
        }
    }

    #[test]
    fn limits_permit_their_value_and_refuse_the_next_one() {
        use MessageKind::{Fragment, Request};
        let limits = Limits {
            max_message_size: 32,
            max_partial_messages: 2,
            max_partial_message_bytes: 80,
            max_fragments: 3,
            ..Limits::default()
        };
        let first = |id, len| message(2, Request, true, &[&[0, 0, 0, id], vec![0; len].as_slice()].concat());
        let more = |id, len| message(2, Fragment, true, &[&[0, 0, 0, id], vec![0; len].as_slice()].concat());
        let last = |parts: &[Vec<u8>]| steps(&mut Framer::new(), parts, &limits).map(drop);
        let taken = Ok(());
        let whole = |size| message(2, Request, false, &vec![0; size]);
        assert_eq!(last(&[whole(32)]), taken);
        assert_eq!(last(&[whole(33)]), Err(ProtocolFault::TooLarge { size: 33, limit: 32 }));
        assert_eq!(last(&[first(1, 20), more(1, 8)]), taken);
        assert_eq!(last(&[first(1, 20), more(1, 9)]), Err(ProtocolFault::TooLarge { size: 33, limit: 32 }));
        assert_eq!(last(&[first(1, 0), first(2, 0)]), taken);
        assert_eq!(
            last(&[first(1, 0), first(2, 0), first(3, 0)]),
            Err(ProtocolFault::TooManyPartialMessages { limit: 2 })
        );
        assert_eq!(last(&[first(1, 28), first(2, 28), more(2, 0)]), taken);
        let wide = Limits { max_partial_messages: 3, ..limits.clone() };
        let third = |len| steps(&mut Framer::new(), &[first(1, 20), first(2, 20), first(3, len)], &wide);
        assert_eq!(third(4), Ok(FramingStep::FragmentBuffered(20)));
        assert_eq!(third(5), Err(ProtocolFault::PartialMessagesTooLarge { size: 93, limit: 80 }));
        assert_eq!(last(&[first(1, 0), more(1, 0), more(1, 0)]), taken);
        let fourth = last(&[first(1, 0), more(1, 0), more(1, 0), more(1, 0)]);
        assert_eq!(fourth, Err(ProtocolFault::TooManyFragments { limit: 3 }));
    }

    #[test]
    fn fragments_have_the_version_and_order_of_their_message() {
        use MessageKind::{Fragment, Reply};
        let limits = Limits::default();
        let mut other_version = message(1, Fragment, false, &[5]);
        other_version[5] = 0;
        assert!(Framer::new().next(&other_version, &limits).is_err(), "GIOP 1.0 has no fragments");
        let parts = [message(1, Reply, true, &[1]), {
            let mut other_order = message(1, Fragment, false, &[5]);
            (other_order[6], other_order[8], other_order[11]) = (1, 1, 0);
            other_order
        }];
        assert_eq!(steps(&mut Framer::new(), &parts, &limits), Err(ProtocolFault::FragmentMismatch));
    }

    #[test]
    fn partial_replies_are_found_by_their_request() {
        use MessageKind::{LocateReply, Reply, Request};
        let limits = Limits::default();
        let mut framer = Framer::new();
        for (id, kind) in [(5, Reply), (6, Request), (7, LocateReply)] {
            framer.next(&message(2, kind, true, &[0, 0, 0, id]), &limits).unwrap();
        }
        assert_eq!([4, 5, 6, 7].map(|id| framer.has_partial_reply(id)), [false, true, false, true]);
        let mut old = Framer::new();
        old.next(&message(1, Request, true, &[0, 0, 0, 5]), &limits).unwrap();
        assert!(!old.has_partial_reply(5));
        let mut old = Framer::new();
        old.next(&message(1, Reply, true, &[0, 0, 0, 5]), &limits).unwrap();
        assert!(old.has_partial_reply(5) && old.has_partial_reply(8));
    }

    #[test]
    fn faulty_message_of_a_fragment_is_the_message_that_it_continues() {
        use MessageKind::{Fragment, Reply, Request};
        let limits = Limits::default();
        let mut framer = Framer::new();
        let (first, second) = (message(2, Request, true, &[0, 0, 0, 1]), message(2, Request, true, &[0, 0, 0, 2]));
        let old = message(1, Reply, true, &[9]);
        for octets in [&first, &second, &old] {
            framer.next(octets, &limits).unwrap();
        }
        let fragment = |minor, id: &[u8]| message(minor, Fragment, false, id);
        assert_eq!(framer.faulty_message(&fragment(2, &[0, 0, 0, 2])), second);
        assert_eq!(framer.faulty_message(&fragment(2, &[0, 0, 0, 1])), first);
        assert_eq!(framer.faulty_message(&fragment(1, &[0, 0, 0, 1])), old);
        for octets in [first.clone(), fragment(2, &[0, 0, 0, 3]), b"GIOP\x01\x02".to_vec(), b"GET / HTTP/1.1".to_vec()]
        {
            assert_eq!(framer.faulty_message(&octets), octets);
        }
    }
}
