//! How a large message is cut into fragments for sending.

use std::ops::Range;

use crate::giop::{Header, MessageKind, Version};

/// The pieces of a message that is larger than a threshold: an iterator of headers and ranges of the message.
///
/// In GIOP 1.2 every piece but the last has a multiple of 8 octets, so that no number is cut and the data of a fragment, which begins
/// at its octet 16, is aligned as in the whole message.
///
/// In GIOP 1.1 the data of a fragment begins at its octet 12 and is aligned from there, and a number must not be cut (CORBA 3.0.3
/// section 15.4.9). A message is therefore cut only where its octets are 4 behind a multiple of 8, which leaves every alignment as it is,
/// and only where no number of eight octets is in the way: [`around`](FragmentPlan::around) says where those are, and a message of which
/// nobody says is not cut. Where many follow one another a piece is larger than the threshold: peers disagree on how to go on
/// inside an array.
///
/// Messages that may not be cut are one piece.
#[derive(Clone, Debug)]
pub struct FragmentPlan<'w> {
    header: Header,
    request_id: u32,
    /// Octets of a piece with its header; 0 if there is one piece only.
    piece: usize,
    /// Octets of the message that are in pieces already.
    done: usize,
    /// What a message of GIOP 1.1 is not cut through.
    whole: &'w [Range<usize>],
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

impl<'w> FragmentPlan<'w> {
    /// The smallest useful threshold: below it, fragments would hold more headers than data.
    pub const MIN_THRESHOLD: usize = 64;

    /// Plans a message with this header and request id so that no piece has more than `threshold` octets.
    #[must_use]
    pub fn new(header: &Header, request_id: u32, threshold: usize) -> Self {
        use MessageKind::{LocateReply, LocateRequest, Reply, Request};
        let may_be_cut = matches!(header.kind, Request | Reply | LocateRequest | LocateReply);
        let cut = may_be_cut && header.version == Version::GIOP_1_2;
        Self::with_threshold(header, request_id, if cut { threshold } else { usize::MAX }, &[])
    }

    /// The same for a message of which it is known where its numbers of eight octets and more are, as
    /// [`Encoder::wide_numbers`](crate::Encoder::wide_numbers) says: one of GIOP 1.1 may then be cut too.
    #[must_use]
    pub fn around(header: &Header, request_id: u32, threshold: usize, wide: &'w [Range<usize>]) -> Self {
        if header.version != Version::GIOP_1_1 || !matches!(header.kind, MessageKind::Request | MessageKind::Reply) {
            return Self::new(header, request_id, threshold);
        }
        let plan = Self::with_threshold(header, request_id, threshold, wide);
        let cut = plan.is_cut() && plan.end_1_1(Header::LEN) < header.total();
        if cut { plan } else { FragmentPlan { piece: 0, ..plan } }
    }

    fn with_threshold(header: &Header, request_id: u32, threshold: usize, whole: &'w [Range<usize>]) -> Self {
        let threshold = threshold.max(Self::MIN_THRESHOLD) & !7;
        let piece = if header.total() > threshold { threshold } else { 0 };
        FragmentPlan { header: *header, request_id, piece, done: 0, whole }
    }

    /// Where the piece of a GIOP 1.1 message ends whose data begins at `start`.
    fn end_1_1(&self, start: usize) -> usize {
        let total = self.header.total();
        let around = |at: usize| {
            let before = self.whole.partition_point(|range| range.end <= at);
            self.whole.get(before).filter(|range| range.start < at)
        };
        // As far as the threshold lets it, or if nothing ends there, as little farther as can be.
        let most = (start - Header::LEN + self.piece).min(total);
        if most == total {
            return total;
        }
        let mut end = down_to_4(most);
        while end > start
            && let Some(range) = around(end)
        {
            end = down_to_4(range.start);
        }
        if end <= start {
            end = down_to_4(most) + 8;
            while end < total
                && let Some(range) = around(end)
            {
                end = down_to_4(range.end.min(total) + 7);
            }
        }
        end.min(total)
    }

    /// Whether there is more than one piece.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.piece != 0
    }
}

/// The last place that is 4 behind a multiple of 8 and not behind `at`, of those behind a header.
fn down_to_4(at: usize) -> usize {
    (at.max(Header::LEN) - 4) / 8 * 8 + 4
}

impl Iterator for FragmentPlan<'_> {
    type Item = FragmentPiece;

    fn next(&mut self) -> Option<FragmentPiece> {
        let total = self.header.total();
        if self.done >= total {
            return None;
        }
        let first = self.done == 0;
        let v1_1 = self.header.version == Version::GIOP_1_1;
        let head_len = if first || v1_1 { 12u8 } else { 16 };
        let start = self.done.max(Header::LEN);
        let end = match self.piece {
            0 => total,
            _ if v1_1 => self.end_1_1(start),
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

    /// The places at which a message of GIOP 1.1 is cut.
    fn cuts(body: usize, wide: &[(usize, usize)]) -> Vec<usize> {
        let wide: Vec<_> = wide.iter().map(|(start, end)| *start..*end).collect();
        let (header, message) = whole(Version::GIOP_1_1, MessageKind::Reply, body);
        let pieces: Vec<_> = FragmentPlan::around(&header, 1, 70, &wide).collect();
        let mut framer = Framer::new();
        let last = pieces.iter().map(|piece| {
            let sent = [piece.header(), &message[piece.octets.clone()]].concat();
            framer.next(&sent, &Limits::DEFAULT).unwrap()
        });
        let cuts: Vec<usize> = pieces[1..].iter().map(|piece| piece.octets.start).collect();
        match last.last().unwrap() {
            Step::Assembled { message: again, breaks, .. } => assert_eq!((again, &breaks), (message, &cuts)),
            step => assert_eq!((step, cuts.len()), (Step::Message { header, len: message.len() }, 0)),
        }
        cuts
    }

    #[test]
    fn giop_1_1_is_cut_where_alignment_stays_and_no_number_is() {
        const NONE: [usize; 0] = [];
        assert_eq!(cuts(108, &[]), [60, 108]);
        assert_eq!(cuts(52, &[]), NONE);
        // Not through the number at 56, and then a piece of 64 octets from where it was cut.
        assert_eq!(cuts(100, &[(56, 64)]), [52, 100]);
        // Many numbers, one after the other, go together, and what is behind them apart.
        assert_eq!(cuts(188, &[(24, 160)]), [20, 164]);
        assert_eq!(cuts(148, &[(16, 160)]), NONE);
        // Ranges that no encoder notes do not hold it up.
        assert_eq!(cuts(100, &[(0, usize::MAX)]), NONE);
        assert_eq!(cuts(108, &[(0, 60), (61, 62)]), [60, 108]);
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
