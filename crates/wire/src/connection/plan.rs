//! How a large message is cut into fragments for sending.

use std::ops::Range;

use crate::giop::{Header, MessageKind, Version};

/// The pieces of a message that is larger than a threshold: an iterator of headers and ranges of the message.
///
/// In GIOP 1.2 every piece but the last has a multiple of 8 octets, so that no number is cut and the data of a fragment, which begins
/// at its octet 16, is aligned as in the whole message.
///
/// A message of GIOP 1.1 is one piece: the data of its fragments would be aligned from their own headers, peers disagree on how to go
/// on inside arrays and structures, and JacORB takes no fragments in that version at all (docs/decisions/0005).
///
/// Messages that may not be cut are one piece.
#[derive(Clone, Debug)]
pub struct FragmentPlan {
    header: Header,
    request_id: u32,
    /// Octets of a piece with its header; 0 if there is one piece only.
    piece: usize,
    /// Octets of the message that are in pieces already.
    done: usize,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentPiece {
    head: [u8; 16],
    head_len: u8,
    /// Which octets of the message follow its header.
    pub octets: Range<usize>,
}

impl FragmentPiece {
    /// The header that this piece begins with.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.head.get(..usize::from(self.head_len)).unwrap_or_default()
    }
}

impl FragmentPlan {
    /// The smallest useful threshold: below it, fragments would hold more headers than data.
    pub const MIN_THRESHOLD: usize = 64;

    /// Plans a message with this header and request id so that no piece has more than `threshold` octets.
    #[must_use]
    pub fn new(header: &Header, request_id: u32, threshold: usize) -> Self {
        use MessageKind::{LocateReply, LocateRequest, Reply, Request};
        let may_be_cut = matches!(header.kind, Request | Reply | LocateRequest | LocateReply);
        let threshold = threshold.max(Self::MIN_THRESHOLD) & !7;
        let cut = may_be_cut && header.version == Version::GIOP_1_2 && header.total() > threshold;
        FragmentPlan { header: *header, request_id, piece: if cut { threshold } else { 0 }, done: 0 }
    }

    /// Whether there is more than one piece.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.piece != 0
    }
}

impl Iterator for FragmentPlan {
    type Item = FragmentPiece;

    fn next(&mut self) -> Option<FragmentPiece> {
        let total = self.header.total();
        if self.done >= total {
            return None;
        }
        let first = self.done == 0;
        let head_len = if first { 12u8 } else { 16 };
        let start = self.done.max(Header::LEN);
        let end = match self.piece {
            0 => total,
            piece => (start + piece - usize::from(head_len)).min(total),
        };
        let size = end - start + usize::from(head_len) - Header::LEN;
        let mut header = self.header;
        header.more_fragments = end < total;
        // Never above the size of the message, which fits.
        header.size = u32::try_from(size).unwrap_or(u32::MAX);
        if !first {
            header.kind = MessageKind::Fragment;
        }
        let mut head = [0; 16];
        let id = match header.endian {
            crate::Endian::Big => self.request_id.to_be_bytes(),
            crate::Endian::Little => self.request_id.to_le_bytes(),
        };
        head.iter_mut().zip(header.octets().into_iter().chain(id)).for_each(|(to, from)| *to = from);
        self.done = end;
        Some(FragmentPiece { head, head_len, octets: start..end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Framer, Step};
    use crate::{Endian, Limits};

    fn whole(version: Version, kind: MessageKind, body: usize) -> (Header, Vec<u8>) {
        let size = u32::try_from(body).unwrap();
        let header = Header { version, endian: Endian::Little, more_fragments: false, kind, size };
        let mut message = header.octets().to_vec();
        message.extend((0..size).map(|index| index.to_le_bytes()[0]));
        (header, message)
    }

    #[test]
    fn pieces_come_together_again() {
        for body in [4, 51, 52, 53, 100, 1000] {
            let (header, message) = whole(Version::GIOP_1_2, MessageKind::Reply, body);
            let request_id = u32::from_le_bytes(*message[12..].first_chunk().unwrap());
            let plan = FragmentPlan::new(&header, request_id, 70);
            assert_eq!(plan.is_cut(), body > 52);
            let mut framer = Framer::new();
            let pieces: Vec<FragmentPiece> = plan.collect();
            for (index, piece) in pieces.iter().enumerate() {
                let sent = [piece.header(), &message[piece.octets.clone()]].concat();
                assert!(sent.len() <= 64 && (index + 1 == pieces.len() || sent.len() == 64));
                match framer.next(&sent, &Limits::DEFAULT).unwrap() {
                    Step::Message { len, .. } => assert_eq!((pieces.len(), len, &sent), (1, message.len(), &message)),
                    Step::Absorbed(len) => assert_eq!(len, sent.len()),
                    Step::Assembled { message: again, .. } => {
                        assert_eq!((index + 1, again), (pieces.len(), message.clone()))
                    }
                    Step::NeedMore(_) => panic!(),
                }
            }
            assert_eq!(framer.pending(), 0);
        }
    }

    #[test]
    fn what_may_not_be_cut_is_one_piece() {
        for (version, kind) in [
            (Version::GIOP_1_1, MessageKind::Request),
            (Version::GIOP_1_0, MessageKind::Reply),
            (Version::GIOP_1_2, MessageKind::CancelRequest),
        ] {
            let (header, message) = whole(version, kind, 1000);
            let pieces: Vec<_> = FragmentPlan::new(&header, 1, 100).collect();
            let [only] = pieces.as_slice() else { panic!() };
            assert_eq!([only.header(), &message[only.octets.clone()]].concat(), message);
        }
    }
}
