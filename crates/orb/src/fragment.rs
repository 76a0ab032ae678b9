//! Division of outgoing messages into fragments, if `OrbBuilder::max_fragment_size` is set.

use corelane_wire::Encoder;
use corelane_wire::connection::FragmentPlan;
use corelane_wire::giop::Header;

/// Splits the complete message in `encoder` into consecutive fragments of at most `threshold`
/// bytes. Returns `None` if the message needs no fragments, or cannot have any.
#[cold]
pub(crate) fn split(encoder: &Encoder<'_>, request_id: u32, threshold: usize) -> Option<Vec<u8>> {
    if encoder.len() <= threshold {
        return None;
    }
    let whole = encoder.to_vec();
    let header = Header::parse(whole.first_chunk()?).ok()?;
    let plan = FragmentPlan::new(&header, request_id, threshold);
    if !plan.is_fragmented() {
        return None;
    }
    let mut pieces = Vec::with_capacity(whole.len() + whole.len() / 4);
    for piece in plan {
        pieces.extend_from_slice(piece.header());
        pieces.extend_from_slice(whole.get(piece.byte_range)?);
    }
    Some(pieces)
}
