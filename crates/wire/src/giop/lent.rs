//! Messages whose last octets a transport lends in memory instead of carrying them.
//!
//! ```text
//! header with bit 7 of the flags; its size is that of this short form | beginning of the message | 16 octets of the transport
//! ```
//!
//! The flag is Corelane's own (docs/wire-extensions.md), and is set only on connections whose sides
//! both lend memory. The whole message is the beginning, followed by the lent octets.

use super::header::Header;
use crate::cdr::Endian;
use crate::connection::ProtocolFault;
use crate::limits::Limits;

const FLAGS_AT: usize = 6;
const LENT: u8 = 0x80;
const REFERENCE_LEN: usize = 16;

/// Returns true if the message at the front of `unread` is in the short form.
#[inline]
#[must_use]
pub fn is_lent(unread: &[u8]) -> bool {
    unread.get(FLAGS_AT).is_some_and(|flags| flags & LENT != 0)
}

/// Returns the header of the short form of a message with the header `whole`. `head_len` is the
/// number of octets of the message's beginning, header included. Returns `None` if the size of the
/// short form does not fit in 32 bits.
#[must_use]
pub fn lent_header(whole: &[u8; Header::LEN], head_len: usize) -> Option<[u8; Header::LEN]> {
    let size = u32::try_from((head_len + REFERENCE_LEN).checked_sub(Header::LEN)?).ok()?;
    let mut header = *whole;
    let size =
        if Endian::from_flag(header[FLAGS_AT]) == Endian::Little { size.to_le_bytes() } else { size.to_be_bytes() };
    header[FLAGS_AT] |= LENT;
    header[Header::SIZE_AT..].copy_from_slice(&size);
    Some(header)
}

/// Splits a message in the short form into its beginning, without the header, and the transport's
/// octets. Returns `None` if the message is too short.
#[must_use]
pub fn split_lent(message: &[u8]) -> Option<(&[u8], [u8; REFERENCE_LEN])> {
    let (head, reference) = message.get(Header::LEN..)?.split_last_chunk()?;
    Some((head, *reference))
}

/// Returns the header of the whole message. `header` is the header of the short form. `head_len` is
/// the number of octets of the message's beginning without the header, and `lent` is the number of
/// lent octets.
///
/// # Errors
/// [`ProtocolFault::TooLarge`] if the whole message is larger than the limit.
pub fn whole_message_header(
    header: &Header,
    head_len: usize,
    lent: u64,
    limits: &Limits,
) -> Result<Header, ProtocolFault> {
    let size = lent.saturating_add(head_len as u64);
    match u32::try_from(size) {
        Ok(size) if size <= limits.max_message_size => Ok(Header { size, ..*header }),
        _ => Err(ProtocolFault::TooLarge { size, limit: limits.max_message_size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::giop::{MessageKind, Version};

    #[test]
    fn short_form_is_split_into_the_whole_message_again() {
        for endian in [Endian::Big, Endian::Little] {
            let whole = Header {
                version: Version::GIOP_1_2,
                endian,
                more_fragments: false,
                kind: MessageKind::Request,
                size: 100_008,
            };
            let header = lent_header(&whole.to_bytes(), 20).unwrap();
            let short = [&header[..], &[1; 8], &[2; REFERENCE_LEN]].concat();
            let parsed = Header::parse(&header).unwrap();
            assert!(is_lent(&short) && !is_lent(&whole.to_bytes()));
            assert_eq!(parsed.total_len(), short.len());
            assert_eq!(Header::parse_unfragmented_1_2(&short, MessageKind::Request, u32::MAX), None);
            assert_eq!(split_lent(&short), Some((&[1; 8][..], [2; REFERENCE_LEN])));
            assert_eq!(whole_message_header(&parsed, 8, 100_000, &Limits::DEFAULT), Ok(whole));
            assert_eq!(split_lent(&short[..27]), None);
            let limits = Limits { max_message_size: 100_007, ..Limits::DEFAULT };
            for (lent, size) in [(100_000, 100_008), (u64::MAX, u64::MAX)] {
                let refused = whole_message_header(&parsed, 8, lent, &limits);
                assert_eq!(refused, Err(ProtocolFault::TooLarge { size, limit: 100_007 }));
            }
        }
    }
}
