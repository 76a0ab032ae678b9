//! Messages that leave in fragments, where the ORB is set up to send them so.

use corelane_wire::connection::FragmentPlan;
use corelane_wire::giop::Header;
use corelane_wire::{Encoder, Version};

/// To be called before a message is written that may have to be [`cut`].
#[inline]
pub(crate) fn prepare(encoder: &mut Encoder<'_>, version: Version, threshold: Option<usize>) {
    if threshold.is_some() && version == Version::GIOP_1_1 {
        encoder.note_wide_numbers();
    }
}

/// The finished message in `encoder` as fragments of at most `threshold` octets, one after the other; `None` if it goes whole.
///
/// This copies the message once: fragments are for peers that cannot take large messages, not for speed.
#[cold]
pub(crate) fn cut(encoder: &Encoder<'_>, request_id: u32, threshold: usize) -> Option<Vec<u8>> {
    if encoder.len() <= threshold {
        return None;
    }
    let whole = encoder.to_vec();
    let header = Header::parse(whole.first_chunk()?).ok()?;
    let plan = match encoder.wide_numbers() {
        Some(wide) => FragmentPlan::around(&header, request_id, threshold, wide),
        None => FragmentPlan::new(&header, request_id, threshold),
    };
    if !plan.is_cut() {
        return None;
    }
    let mut pieces = Vec::with_capacity(whole.len() + whole.len() / 4);
    for piece in plan {
        pieces.extend_from_slice(piece.header());
        pieces.extend_from_slice(whole.get(piece.octets)?);
    }
    Some(pieces)
}
