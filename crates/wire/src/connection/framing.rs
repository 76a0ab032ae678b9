//! Whole messages out of a stream of octets.

use super::ProtocolFault;
use crate::giop::Header;
use crate::limits::Limits;

/// What the unread octets of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Too few: that many octets, from the start of the unread ones, are needed to go on.
    NeedMore(usize),
    /// The first `len` octets are one whole message.
    Message {
        /// Its header.
        header: Header,
        /// Octets of it, header included.
        len: usize,
    },
}

/// Cuts the octets that one side of a connection receives into messages.
///
/// Call [`next`](Framer::next) with the octets that were not consumed yet, and consume what it says: nothing for
/// [`Step::NeedMore`], `len` octets for the others.
#[derive(Debug, Default)]
pub struct Framer {
    _private: (),
}

impl Framer {
    /// A framer for a new connection.
    #[must_use]
    pub fn new() -> Framer {
        Framer::default()
    }

    /// Looks at the unread octets.
    ///
    /// # Errors
    /// [`ProtocolFault`], also where the octets are too few for a header but cannot become one any more.
    #[inline]
    pub fn next(&mut self, unread: &[u8], limits: &Limits) -> Result<Step, ProtocolFault> {
        let Some(octets) = unread.first_chunk() else { return too_few(unread) };
        let header = Header::parse(octets)?;
        if header.size > limits.message_size {
            return Err(ProtocolFault::TooLarge { size: u64::from(header.size), limit: limits.message_size });
        }
        let len = header.total();
        if unread.len() < len {
            return Ok(Step::NeedMore(len));
        }
        Ok(Step::Message { header, len })
    }
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
    use crate::giop::{HeaderError, MessageKind};

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
}
