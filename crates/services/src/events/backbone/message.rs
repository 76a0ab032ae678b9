//! The form of events in a message of a backbone.
//!
//! ```text
//! "CLEB" | version, 1 | octet of the byte order, 1 for little-endian | CDR: string publisher,
//! sequence<CorelaneEvents::PassingEvent> events
//! ```

use corelane::{Cdr, CdrError, Decoder, Encoder, Limits};
use corelane_wire::Endian;
use corelane_wire::codeset::CodeSets;

use crate::events::idl::corelane_events::PassingEvent;

const HEAD: &[u8; 5] = b"CLEB\x01";

/// The decoded content of a message of a backbone.
#[derive(Debug)]
pub(super) struct EventBatch {
    /// The name of the bridge that has published the events.
    pub(super) publisher: String,
    pub(super) events: Vec<PassingEvent>,
}

pub(super) fn encode(publisher: &str, events: &[PassingEvent]) -> Result<Vec<u8>, CdrError> {
    let mut encoder = Encoder::new();
    encoder.set_code_sets(CodeSets::UTF8_UTF16);
    publisher.to_owned().encode(&mut encoder)?;
    encoder.write_len(events.len())?;
    events.iter().try_for_each(|event| event.encode(&mut encoder))?;
    let mut message = HEAD.to_vec();
    message.push(u8::from(Endian::NATIVE == Endian::Little));
    message.extend(encoder.to_vec());
    Ok(message)
}

/// Reads a message. Returns `None` for octets of another form.
pub(super) fn decode(message: &[u8]) -> Option<EventBatch> {
    let (order, octets) = message.strip_prefix(HEAD)?.split_first()?;
    let endian = if *order == 0 { Endian::Big } else { Endian::Little };
    let limits = Limits::default();
    let mut decoder = Decoder::new(octets, endian).with_limits(&limits).with_code_sets(CodeSets::UTF8_UTF16);
    let publisher = String::decode(&mut decoder).ok()?;
    let events = Vec::decode(&mut decoder).ok()?;
    Some(EventBatch { publisher, events })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn message_is_read_as_written_and_cut_ones_are_refused() {
        let event = PassingEvent { path: vec![1, 2], number: 3, lane: 4, ..PassingEvent::default() };
        let message = encode("north", &[event]).unwrap();
        let read = decode(&message).unwrap();
        assert_eq!((read.publisher.as_str(), read.events.len()), ("north", 1));
        assert_eq!((&read.events[0].path[..], read.events[0].number, read.events[0].lane), (&[1, 2][..], 3, 4));
        for length in 0..message.len() {
            assert!(decode(&message[..length]).is_none(), "{length}");
        }
        assert!(decode(&[&b"CLEB\x02"[..], &message[5..]].concat()).is_none());
    }

    proptest! {
        #[test]
        fn no_octets_end_the_program(octets in prop::collection::vec(0..8u8, 0..200)) {
            let _ = decode(&[&HEAD[..], &octets].concat());
        }
    }
}
