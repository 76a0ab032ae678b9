//! Whole messages out of a stream of octets, fragments put together (CORBA 3.0.3 section 15.4.9).
//!
//! ```text
//! Fragment 1.1  header | data             of the last Request or Reply that announced fragments
//! Fragment 1.2  header | unsigned long id | data
//! ```
//!
//! Data of GIOP 1.2 is aligned as in the message that was never cut. Data of GIOP 1.1 is aligned from the header of its own
//! fragment, so an assembled message comes with the places where it was cut, for
//! [`Decoder::with_breaks`](crate::Decoder::with_breaks).

use super::ProtocolFault;
use crate::cdr::{Decoder, Endian};
use crate::giop::{Header, MessageKind, Version};
use crate::limits::Limits;

/// What the unread octets of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Too few: that many octets, from the start of the unread ones, are needed to go on.
    NeedMore(usize),
    /// The first `len` octets are one whole message, read in place.
    Message {
        /// Its header.
        header: Header,
        /// Octets of it, header included.
        len: usize,
    },
    /// The first so many octets are a part of a message that is not complete; they were copied.
    Absorbed(usize),
    /// The first `len` octets were the last fragment of a message.
    Assembled {
        /// The message as if it had never been cut.
        message: Vec<u8>,
        /// Its header.
        header: Header,
        /// Where fragments of GIOP 1.1 begin in it; empty in GIOP 1.2.
        breaks: Vec<usize>,
        /// Octets of the fragment.
        len: usize,
    },
}

/// Cuts the octets that one side of a connection receives into messages.
///
/// Call [`next`](Framer::next) with the octets that were not consumed yet, and consume what it says: nothing for
/// [`Step::NeedMore`], the length in the result for the others. After a fault the connection must end.
#[derive(Debug, Default)]
pub struct Framer {
    /// The oldest first.
    pending: Vec<Partial>,
    octets: usize,
    /// Messages that came in fragments so far.
    begun: u64,
}

/// A message of which the last fragment has not come.
#[derive(Debug)]
struct Partial {
    number: u64,
    /// GIOP 1.1 fragments name no request.
    request_id: Option<u32>,
    header: Header,
    message: Vec<u8>,
    breaks: Vec<usize>,
    fragments: u32,
}

impl Framer {
    /// A framer for a new connection.
    #[must_use]
    pub fn new() -> Framer {
        Framer::default()
    }

    /// Messages of which the last fragment has not come.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Of those that are pending the one whose first fragment came first: its number, counted from the connection's beginning, and
    /// its octets.
    #[must_use]
    pub fn oldest_pending(&self) -> Option<(u64, usize)> {
        self.pending.first().map(|partial| (partial.number, partial.message.len()))
    }

    /// Octets that are held for them.
    #[must_use]
    pub fn pending_octets(&self) -> usize {
        self.octets
    }

    /// Looks at the unread octets.
    ///
    /// # Errors
    /// [`ProtocolFault`], also where the octets are too few for a header but cannot become one any more.
    #[inline]
    pub fn next(&mut self, unread: &[u8], limits: &Limits) -> Result<Step, ProtocolFault> {
        let Some(octets) = unread.first_chunk() else {
            return if unread.is_empty() { Ok(Step::NeedMore(Header::LEN)) } else { too_few(unread) };
        };
        let header = Header::parse(octets)?;
        if header.size > limits.message_size {
            return Err(ProtocolFault::TooLarge { size: u64::from(header.size), limit: limits.message_size });
        }
        let len = header.total();
        let Some(message) = unread.get(..len) else { return Ok(Step::NeedMore(len)) };
        if header.more_fragments || header.kind == MessageKind::Fragment {
            return self.part(header, message, limits);
        }
        if header.kind == MessageKind::CancelRequest && !self.pending.is_empty() {
            self.cancel(&header, message);
        }
        Ok(Step::Message { header, len })
    }

    #[cold]
    fn part(&mut self, header: Header, message: &[u8], limits: &Limits) -> Result<Step, ProtocolFault> {
        if header.kind == MessageKind::Fragment {
            self.go_on(header, message, limits)
        } else {
            self.begin(header, message, limits)
        }
    }

    /// The first part of a message.
    fn begin(&mut self, header: Header, message: &[u8], limits: &Limits) -> Result<Step, ProtocolFault> {
        use MessageKind::{LocateReply, LocateRequest, Reply, Request};
        let v1_2 = header.version == Version::GIOP_1_2;
        let fragmentable = match header.kind {
            Request | Reply => true,
            LocateRequest | LocateReply => v1_2,
            _ => false,
        };
        if !fragmentable {
            return Err(ProtocolFault::NotFragmentable { kind: header.kind });
        }
        let request_id = if v1_2 { Some(request_id(&header, message)?) } else { None };
        if self.find(request_id).is_some() {
            return Err(ProtocolFault::Interleaved);
        }
        if self.pending.len() >= limits.pending_fragmented as usize {
            return Err(ProtocolFault::TooManyPending { limit: limits.pending_fragmented });
        }
        self.reserve(message.len(), limits)?;
        let message = message.to_vec();
        self.begun += 1;
        self.pending.push(Partial {
            number: self.begun,
            request_id,
            header,
            message,
            breaks: Vec::new(),
            fragments: 1,
        });
        Ok(Step::Absorbed(header.total()))
    }

    /// A further part.
    fn go_on(&mut self, header: Header, message: &[u8], limits: &Limits) -> Result<Step, ProtocolFault> {
        let v1_2 = header.version == Version::GIOP_1_2;
        let request_id = if v1_2 { Some(request_id(&header, message)?) } else { None };
        let index = self.find(request_id).ok_or(ProtocolFault::UnexpectedFragment { request_id })?;
        let data = message.get(Header::LEN + if v1_2 { 4 } else { 0 }..).unwrap_or_default();
        self.reserve(data.len(), limits)?;
        let Some(partial) = self.pending.get_mut(index) else {
            return Err(ProtocolFault::UnexpectedFragment { request_id });
        };
        if (partial.header.version, partial.header.endian) != (header.version, header.endian) {
            return Err(ProtocolFault::FragmentMismatch);
        }
        partial.fragments += 1;
        if partial.fragments > limits.fragments {
            return Err(ProtocolFault::TooManyFragments { limit: limits.fragments });
        }
        let size = partial.message.len() - Header::LEN + data.len();
        match u32::try_from(size) {
            Ok(size) if size <= limits.message_size => partial.header.size = size,
            _ => {
                let size = u64::try_from(size).unwrap_or(u64::MAX);
                return Err(ProtocolFault::TooLarge { size, limit: limits.message_size });
            }
        }
        if !v1_2 {
            partial.breaks.push(partial.message.len());
        }
        partial.message.extend_from_slice(data);
        if header.more_fragments {
            return Ok(Step::Absorbed(header.total()));
        }
        let Partial { header: mut whole, mut message, breaks, .. } = self.pending.remove(index);
        self.octets -= message.len();
        whole.more_fragments = false;
        message.iter_mut().zip(whole.octets()).for_each(|(to, from)| *to = from);
        Ok(Step::Assembled { message, header: whole, breaks, len: header.total() })
    }

    /// A CancelRequest may take the place of the fragments that have not come.
    #[cold]
    fn cancel(&mut self, header: &Header, message: &[u8]) {
        if let Ok(request_id) = request_id(header, message)
            && let Some(index) = self.find(Some(request_id))
        {
            self.octets -= self.pending.remove(index).message.len();
        }
    }

    fn find(&self, request_id: Option<u32>) -> Option<usize> {
        self.pending.iter().position(|partial| partial.request_id == request_id)
    }

    fn reserve(&mut self, len: usize, limits: &Limits) -> Result<(), ProtocolFault> {
        let octets = self.octets + len;
        if octets > limits.pending_octets as usize + Header::LEN {
            let size = u64::try_from(octets).unwrap_or(u64::MAX);
            return Err(ProtocolFault::TooMuchPending { size, limit: limits.pending_octets });
        }
        self.octets = octets;
        Ok(())
    }
}

/// The request id, which is the first thing in all messages of GIOP 1.2 that may be cut, and in every CancelRequest.
fn request_id(header: &Header, message: &[u8]) -> Result<u32, ProtocolFault> {
    let endian: Endian = header.endian;
    Decoder::new(message, endian).at(Header::LEN).read_u32().map_err(|_| ProtocolFault::NoRequestId)
}

/// Fewer octets than a header: a peer that does not speak GIOP is told so before it sends more.
#[cold]
fn too_few(unread: &[u8]) -> Result<Step, ProtocolFault> {
    let mut octets = *b"GIOP\x01\x02\x00\x00\x00\x00\x00\x00";
    octets.iter_mut().zip(unread).for_each(|(to, from)| *to = *from);
    Header::parse(&octets)?;
    Ok(Step::NeedMore(Header::LEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::giop::HeaderError;

    fn message(minor: u8, kind: MessageKind, more: bool, body: &[u8]) -> Vec<u8> {
        let version = Version { major: 1, minor };
        let size = u32::try_from(body.len()).unwrap();
        let header = Header { version, endian: Endian::Big, more_fragments: more, kind, size };
        [&header.octets(), body].concat()
    }

    fn steps(framer: &mut Framer, messages: &[Vec<u8>], limits: &Limits) -> Result<Step, ProtocolFault> {
        let mut last = Ok(Step::NeedMore(0));
        for message in messages {
            last = framer.next(message, limits);
        }
        last
    }

    #[test]
    fn messages_come_out_whatever_the_pieces() {
        let message = b"GIOP\x01\x02\x01\x05\x00\x00\x00\x00GIOP\x01\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00\x07";
        let limits = Limits::default();
        let mut framer = Framer::new();
        for len in 0..12 {
            assert_eq!(framer.next(&message[..len], &limits), Ok(Step::NeedMore(12)));
        }
        let Ok(Step::Message { header, len: 12 }) = framer.next(message, &limits) else { panic!() };
        assert_eq!(header.kind, MessageKind::CloseConnection);
        assert_eq!(framer.next(&message[12..26], &limits), Ok(Step::NeedMore(16)));
        let Ok(Step::Message { header, len: 16 }) = framer.next(&message[12..], &limits) else { panic!() };
        assert_eq!((header.kind, header.size), (MessageKind::CancelRequest, 4));
    }

    #[test]
    fn other_protocols_are_refused_at_the_first_octet() {
        let limits = Limits::default();
        let refused = |octets: &[u8]| Framer::new().next(octets, &limits).unwrap_err();
        assert_eq!(refused(b"GET"), ProtocolFault::Header(HeaderError::Magic { got: *b"GETP" }));
        assert!(matches!(refused(b"GIOP\x01\x03"), ProtocolFault::Header(HeaderError::Version { .. })));
        assert_eq!(
            refused(b"GIOP\x01\x02\x00\x00\xff\xff\xff\xff"),
            ProtocolFault::TooLarge { size: 0xffff_ffff, limit: 64 << 20 }
        );
    }

    #[test]
    fn interleaved_fragments_of_giop_1_2() {
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
        let Ok(Step::Assembled { message: whole, header, breaks, len: 16 }) = steps(&mut framer, &parts, &limits)
        else {
            panic!()
        };
        assert_eq!(whole, message(2, LocateReply, false, &[0, 0, 0, 2, 20]));
        assert_eq!((header.kind, header.size, breaks.len(), framer.pending()), (LocateReply, 5, 0, 1));
        assert_eq!(framer.oldest_pending(), Some((1, 21)));
        let last = [message(2, Fragment, false, &[0, 0, 0, 1, 15, 16])];
        let Ok(Step::Assembled { message: whole, .. }) = steps(&mut framer, &last, &limits) else { panic!() };
        assert_eq!(whole, message(2, Request, false, &[0, 0, 0, 1, 10, 11, 12, 13, 14, 15, 16]));
        assert_eq!((framer.pending(), framer.pending_octets()), (0, 0));
    }

    #[test]
    fn fragments_of_giop_1_1_come_with_the_places_where_they_were_cut() {
        use MessageKind::{Fragment, Reply};
        let parts = [
            message(1, Reply, true, &[1, 2, 3, 4]),
            message(1, MessageKind::CancelRequest, false, &[0; 4]),
            message(1, Fragment, true, &[5]),
            message(1, Fragment, false, &[6, 7]),
        ];
        let step = steps(&mut Framer::new(), &parts, &Limits::default());
        let Ok(Step::Assembled { message: whole, breaks, .. }) = step else { panic!() };
        assert_eq!((whole, breaks), (message(1, Reply, false, &[1, 2, 3, 4, 5, 6, 7]), vec![16, 17]));
    }

    #[test]
    fn a_cancel_takes_the_place_of_the_rest() {
        use MessageKind::{CancelRequest, Request};
        let mut framer = Framer::new();
        let limits = Limits::default();
        let first = message(2, Request, true, &[0, 0, 0, 1]);
        let parts = [first.clone(), message(2, CancelRequest, false, &[0, 0, 0, 1])];
        assert!(matches!(steps(&mut framer, &parts, &limits), Ok(Step::Message { .. })));
        assert_eq!((framer.pending(), framer.pending_octets()), (0, 0));
        assert_eq!(framer.oldest_pending(), None);
        assert_eq!(framer.next(&first, &limits), Ok(Step::Absorbed(16)));
        assert_eq!(framer.oldest_pending(), Some((2, 16)));
    }

    #[test]
    fn what_is_no_fragmented_message() {
        use MessageKind::{CancelRequest, Fragment, LocateRequest, Request};
        let limits = Limits::default();
        let refused = |parts: &[Vec<u8>]| steps(&mut Framer::new(), parts, &limits).unwrap_err();
        let id = [0, 0, 0, 1];
        let first = message(2, Request, true, &id);
        assert_eq!(refused(&[first.clone(), first.clone()]), ProtocolFault::Interleaved);
        let old = message(1, Request, true, &id);
        assert_eq!(refused(&[old.clone(), old]), ProtocolFault::Interleaved);
        let fragment = message(2, Fragment, false, &id);
        assert_eq!(refused(&[fragment]), ProtocolFault::UnexpectedFragment { request_id: Some(1) });
        let fragment = message(1, Fragment, false, &id);
        assert_eq!(refused(&[first.clone(), fragment]), ProtocolFault::UnexpectedFragment { request_id: None });
        assert_eq!(refused(&[message(2, Request, true, &[0])]), ProtocolFault::NoRequestId);
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
    fn limits_on_what_is_unfinished() {
        use MessageKind::{Fragment, Request};
        let limits =
            Limits { message_size: 32, pending_fragmented: 2, pending_octets: 80, fragments: 3, ..Limits::default() };
        let first = |id| message(2, Request, true, &[[0, 0, 0, id].as_slice(), &[0; 20]].concat());
        let more = |id, len| message(2, Fragment, true, &[&[0, 0, 0, id], vec![0; len].as_slice()].concat());
        let refused = |parts: &[Vec<u8>]| steps(&mut Framer::new(), parts, &limits).unwrap_err();
        assert_eq!(refused(&[first(1), first(2), first(3)]), ProtocolFault::TooManyPending { limit: 2 });
        let size = ProtocolFault::TooMuchPending { size: 93, limit: 80 };
        assert_eq!(refused(&[first(1), first(2), more(1, 8), more(2, 13)]), size);
        assert_eq!(refused(&[first(1), more(1, 9)]), ProtocolFault::TooLarge { size: 33, limit: 32 });
        let empty = [first(1), more(1, 0), more(1, 0), more(1, 0)];
        assert_eq!(refused(&empty), ProtocolFault::TooManyFragments { limit: 3 });
    }
}
