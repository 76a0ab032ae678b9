//! Cuts a large message into fragments for sending.

use std::ops::Range;

use crate::giop::{Header, MessageKind};

/// An iterator over the fragments of a message: the header and the byte range of each.
///
/// In GIOP 1.2 the length of every fragment but the last is a multiple of 8, so no number of up to
/// 8 bytes is cut. A GIOP 1.1 message is not cut (docs/decisions/0005), nor is a message that GIOP
/// does not permit to be fragmented.
#[derive(Clone, Debug)]
pub struct FragmentPlan {
    header: Header,
    request_id: u32,
    /// Maximum size of a fragment in bytes, its header included; 0 if the message is not cut.
    max_size: usize,
    planned: usize,
}

/// One fragment of a message, or the whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFragment {
    head: [u8; 16],
    head_len: u8,
    /// The bytes of the whole message that follow this fragment's header, as a range of offsets.
    pub byte_range: Range<usize>,
}

impl PlannedFragment {
    /// Returns the header of this fragment.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.head.get(..usize::from(self.head_len)).unwrap_or_default()
    }
}

impl FragmentPlan {
    /// The smallest threshold in bytes. Headers take at most a quarter of a fragment of this size.
    pub const MIN_THRESHOLD: usize = 64;

    /// Plans the fragments of the message with this header and request id. `threshold` is the
    /// maximum size of a fragment in bytes; the plan raises it to at least
    /// [`MIN_THRESHOLD`](Self::MIN_THRESHOLD) and rounds it down to a multiple of 8. A message that
    /// is not cut may be larger.
    #[must_use]
    pub fn new(header: &Header, request_id: u32, threshold: usize) -> Self {
        use MessageKind::{LocateReply, LocateRequest, Reply, Request};
        let may_be_cut = matches!(header.kind, Request | Reply | LocateRequest | LocateReply);
        let threshold = threshold.max(Self::MIN_THRESHOLD) & !7;
        let cut = may_be_cut && header.version.has_fragment_ids() && header.total_len() > threshold;
        FragmentPlan { header: *header, request_id, max_size: if cut { threshold } else { 0 }, planned: 0 }
    }

    /// Returns true if the plan cuts the message into at least two fragments.
    #[must_use]
    pub fn is_fragmented(&self) -> bool {
        self.max_size != 0
    }
}

impl Iterator for FragmentPlan {
    type Item = PlannedFragment;

    fn next(&mut self) -> Option<PlannedFragment> {
        let total = self.header.total_len();
        if self.planned >= total {
            return None;
        }
        let first = self.planned == 0;
        let head_len = if first { 12u8 } else { 16 };
        let start = self.planned.max(Header::LEN);
        let end = match self.max_size {
            0 => total,
            piece => (start + piece - usize::from(head_len)).min(total),
        };
        let size = end - start + usize::from(head_len) - Header::LEN;
        let mut header = self.header;
        header.more_fragments = end < total;
        header.size = u32::try_from(size).unwrap_or(u32::MAX);
        if !first {
            header.kind = MessageKind::Fragment;
        }
        let mut head = [0; 16];
        let id = match header.endian {
            crate::Endian::Big => self.request_id.to_be_bytes(),
            crate::Endian::Little => self.request_id.to_le_bytes(),
        };
        head.iter_mut().zip(header.to_bytes().into_iter().chain(id)).for_each(|(to, from)| *to = from);
        self.planned = end;
        Some(PlannedFragment { head, head_len, byte_range: start..end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Framer, FramingStep};
    use crate::giop::Version;
    use crate::{Endian, Limits};

    fn whole(version: Version, kind: MessageKind, body: usize) -> (Header, Vec<u8>) {
        let size = u32::try_from(body).unwrap();
        let header = Header { version, endian: Endian::Little, more_fragments: false, kind, size };
        let mut message = header.to_bytes().to_vec();
        message.extend((0..size).map(|index| index.to_le_bytes()[0]));
        (header, message)
    }

    #[test]
    fn fragments_assemble_to_the_message() {
        for body in [4, 51, 52, 53, 100, 1000] {
            let (header, message) = whole(Version::GIOP_1_2, MessageKind::Reply, body);
            let request_id = u32::from_le_bytes(*message[12..].first_chunk().unwrap());
            let plan = FragmentPlan::new(&header, request_id, 70);
            assert_eq!(plan.is_fragmented(), body > 52);
            let mut framer = Framer::new();
            let pieces: Vec<PlannedFragment> = plan.collect();
            for (index, piece) in pieces.iter().enumerate() {
                let sent = [piece.header(), &message[piece.byte_range.clone()]].concat();
                assert!(sent.len() <= 64 && (index + 1 == pieces.len() || sent.len() == 64));
                match framer.next(&sent, &Limits::DEFAULT).unwrap() {
                    FramingStep::Message { len, .. } => {
                        assert_eq!((pieces.len(), len, &sent), (1, message.len(), &message))
                    }
                    FramingStep::FragmentBuffered(len) => assert_eq!(len, sent.len()),
                    FramingStep::Assembled { message: again, .. } => {
                        assert_eq!((index + 1, again), (pieces.len(), message.clone()))
                    }
                    FramingStep::NeedMore(_) => panic!(),
                }
            }
            assert_eq!(framer.partial_message_count(), 0);
        }
    }

    #[test]
    fn messages_that_must_not_be_fragmented_are_one_piece() {
        for (version, kind) in [
            (Version::GIOP_1_1, MessageKind::Request),
            (Version::GIOP_1_0, MessageKind::Reply),
            (Version::GIOP_1_2, MessageKind::CancelRequest),
        ] {
            let (header, message) = whole(version, kind, 1000);
            let pieces: Vec<_> = FragmentPlan::new(&header, 1, 100).collect();
            let [only] = pieces.as_slice() else { panic!() };
            assert_eq!([only.header(), &message[only.byte_range.clone()]].concat(), message);
        }
    }
}
