//! Entry point for fuzzing: a function over bytes that must return for any input.

use super::ledger::{ChannelNumber, Ledger};
use super::records::{self, HeadRecord};
use crate::events::stored::StoredEvent;

/// Checks records of a store of durable channels. A record that can be read is written in the same
/// form. The channels that are loaded have consistent numbers. An event that can be read and
/// encoded again can be read again.
///
/// # Panics
/// If a property is violated.
pub fn event_records(input: &[u8]) {
    let mut ledger = Ledger::default();
    let mut rest = input;
    while let [key_length, value_length, octets @ ..] = rest {
        let Some((key, octets)) = octets.split_at_checked(usize::from(*key_length)) else { break };
        let Some((value, octets)) = octets.split_at_checked(usize::from(*value_length)) else { break };
        rest = octets;
        if let Ok(Some(record)) = records::decode_head(key, value) {
            let written = match &record {
                HeadRecord::Channel(channel, book) => records::put_channel(*channel, book),
                HeadRecord::Consumer(channel, name, position) => records::put_consumer(*channel, name, *position),
                HeadRecord::Removed(channel) => records::put_removed(*channel),
            };
            assert_eq!((written.key.as_slice(), written.value.as_deref()), (key, Some(value)));
            let _ = ledger.load(record);
        }
        event(key, value);
    }
    for book in ledger.books() {
        assert!(book.first <= book.last + 1 && book.consumers.values().all(|position| *position <= book.last));
    }
}

fn event(key: &[u8], value: &[u8]) {
    let Some(channel) = key.get(1..5).and_then(|octets| octets.try_into().ok()) else { return };
    let channel = ChannelNumber(u32::from_be_bytes(channel));
    let Ok(Some(record)) = records::decode_event(channel, key, value) else { return };
    assert!(records::is_event_of(channel, key));
    let written = records::put_event(channel, record.number, record.stored_at, record.event);
    assert_eq!((written.key.as_slice(), written.value.as_deref()), (key, Some(value)));
    let Ok((event, passage)) = StoredEvent::event_of_octets(record.event) else { return };
    // A value that is nested too deeply is not stored.
    if let Ok(octets) = StoredEvent::passed(&event, passage.clone(), 0).to_octets() {
        assert_eq!(StoredEvent::event_of_octets(&octets).map(|(_, read)| read), Ok(passage));
    }
}
