//! Records of durable channels in a store, format 1.
//!
//! ```text
//! 01 | u32 channel                   -> u64 first | u64 last | u64 bytes | u64 max_events | u64 max_bytes
//!                                       | u64 max_age in ms, 0 for none | name
//! 02 | u32 channel | consumer's name -> u64 number of the last acknowledged event
//! 03 | u32 channel                   -> empty: the channel is removed, and its events are being deleted
//! 04 | u32 channel | u64 number      -> u64 time of storing in ms since 1970 | event
//! ```
//! Numbers are big-endian. Sorted by key, the events come last, so that a start does not read them.

use super::ledger::{Book, ChannelNumber, Retention};
use super::names::is_name;
use crate::store::{RecordChange, RecordFormat, StoreError};

pub(super) const KIND: RecordFormat = RecordFormat { service: "events", format: 1 };

const CHANNEL: u8 = 1;
const CONSUMER: u8 = 2;
const REMOVED: u8 = 3;
const EVENT: u8 = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredWrite {
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

impl StoredWrite {
    pub(super) fn change(&self) -> RecordChange<'_> {
        match &self.value {
            Some(value) => RecordChange::Put(&self.key, value),
            None => RecordChange::Delete(&self.key),
        }
    }

    fn put(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { key, value: Some(value) }
    }

    pub(super) fn delete(key: Vec<u8>) -> Self {
        Self { key, value: None }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadRecord {
    Channel(ChannelNumber, Book),
    Consumer(ChannelNumber, String, u64),
    Removed(ChannelNumber),
}

fn key(tag: u8, channel: ChannelNumber) -> Vec<u8> {
    [&[tag][..], &channel.0.to_be_bytes()].concat()
}

pub(super) fn put_channel(channel: ChannelNumber, book: &Book) -> StoredWrite {
    let Retention { max_events, max_bytes, .. } = book.retention;
    let mut value = Vec::with_capacity(48 + book.name.len());
    for number in [book.first, book.last, book.bytes, max_events, max_bytes, book.retention.max_age_ms()] {
        value.extend(number.to_be_bytes());
    }
    value.extend(book.name.as_bytes());
    StoredWrite::put(key(CHANNEL, channel), value)
}

pub(super) fn delete_channel(channel: ChannelNumber) -> StoredWrite {
    StoredWrite::delete(key(CHANNEL, channel))
}

pub(super) fn put_consumer(channel: ChannelNumber, name: &str, position: u64) -> StoredWrite {
    StoredWrite::put([&key(CONSUMER, channel), name.as_bytes()].concat(), position.to_be_bytes().to_vec())
}

pub(super) fn delete_consumer(channel: ChannelNumber, name: &str) -> StoredWrite {
    StoredWrite::delete([&key(CONSUMER, channel), name.as_bytes()].concat())
}

pub(super) fn put_removed(channel: ChannelNumber) -> StoredWrite {
    StoredWrite::put(key(REMOVED, channel), Vec::new())
}

pub(super) fn delete_removed(channel: ChannelNumber) -> StoredWrite {
    StoredWrite::delete(key(REMOVED, channel))
}

pub(super) fn put_event(channel: ChannelNumber, number: u64, stored_at: u64, event: &[u8]) -> StoredWrite {
    StoredWrite::put(event_key(channel, number), [&stored_at.to_be_bytes()[..], event].concat())
}

pub(super) fn event_key(channel: ChannelNumber, number: u64) -> Vec<u8> {
    [&key(EVENT, channel)[..], &number.to_be_bytes()].concat()
}

pub(super) fn is_event_of(channel: ChannelNumber, found: &[u8]) -> bool {
    found.starts_with(&key(EVENT, channel))
}

fn damaged() -> StoreError {
    StoreError::Damaged { path: None, reason: "a record of the event channels cannot be read".to_owned() }
}

/// Reads a record. Returns `None` for an event, after which only events follow.
pub(super) fn decode_head(key: &[u8], value: &[u8]) -> Result<Option<HeadRecord>, StoreError> {
    let (tag, rest) = key.split_first().ok_or_else(damaged)?;
    let (channel, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
    let channel = ChannelNumber(u32::from_be_bytes(*channel));
    let name = |octets: &[u8]| {
        let name = String::from_utf8(octets.to_vec()).ok().filter(|name| is_name(name));
        name.ok_or_else(damaged)
    };
    match *tag {
        CHANNEL if rest.is_empty() => Ok(Some(HeadRecord::Channel(channel, decode_book(value, name)?))),
        CONSUMER => Ok(Some(HeadRecord::Consumer(channel, name(rest)?, number(value)?))),
        REMOVED if rest.is_empty() && value.is_empty() => Ok(Some(HeadRecord::Removed(channel))),
        EVENT => Ok(None),
        _ => Err(damaged()),
    }
}

fn number(octets: &[u8]) -> Result<u64, StoreError> {
    octets.try_into().map(u64::from_be_bytes).map_err(|_| damaged())
}

fn decode_book(value: &[u8], name: impl Fn(&[u8]) -> Result<String, StoreError>) -> Result<Book, StoreError> {
    let (numbers, rest) = value.split_at_checked(48).ok_or_else(damaged)?;
    let (numbers, _) = numbers.as_chunks::<8>();
    let [first, last, bytes, max_events, max_bytes, max_age_ms] = *numbers else { return Err(damaged()) };
    let [first, last, bytes] = [first, last, bytes].map(u64::from_be_bytes);
    // The last number is never used, so `last + 1` is always a number.
    if last == u64::MAX || first.checked_sub(1).is_none_or(|before| before > last) {
        return Err(damaged());
    }
    let [max_events, max_bytes, max_age_ms] = [max_events, max_bytes, max_age_ms].map(u64::from_be_bytes);
    let retention = Retention::of_numbers(max_events, max_bytes, max_age_ms);
    Ok(Book { name: name(rest)?, retention, first, last, bytes, ..Book::default() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventRecord<'r> {
    pub(super) number: u64,
    /// The time of storing, in milliseconds since 1970.
    pub(super) stored_at: u64,
    pub(super) event: &'r [u8],
}

/// Reads the record of an event. Returns `None` for any record that is not an event of this
/// channel.
pub(super) fn decode_event<'r>(
    channel: ChannelNumber,
    found: &[u8],
    value: &'r [u8],
) -> Result<Option<EventRecord<'r>>, StoreError> {
    let Some(rest) = found.strip_prefix(key(EVENT, channel).as_slice()) else { return Ok(None) };
    let (stored_at, event) = value.split_first_chunk().ok_or_else(damaged)?;
    Ok(Some(EventRecord { number: number(rest)?, stored_at: u64::from_be_bytes(*stored_at), event }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const CHANNEL_7: ChannelNumber = ChannelNumber(7);

    #[test]
    fn records_decode_to_the_written_values_and_cut_ones_are_refused() {
        let retention = Retention { max_events: 5, max_bytes: 6, max_age: Some(Duration::from_millis(8)) };
        let book = Book { name: "flight".to_owned(), retention, first: 3, last: 9, bytes: 4, ..Book::default() };
        let records = [
            (put_channel(CHANNEL_7, &book), HeadRecord::Channel(CHANNEL_7, book.clone())),
            (put_consumer(CHANNEL_7, "log", 12), HeadRecord::Consumer(CHANNEL_7, "log".to_owned(), 12)),
            (put_removed(CHANNEL_7), HeadRecord::Removed(CHANNEL_7)),
        ];
        for (StoredWrite { key, value }, expected) in records {
            let value = value.unwrap();
            assert_eq!(decode_head(&key, &value).unwrap(), Some(expected));
            for length in 0..5 {
                assert!(decode_head(&key[..length], &value).is_err());
            }
            if value.len() > 48 {
                let last = [&value[..8], &[0xFF; 8], &value[16..]].concat();
                assert!(decode_head(&key, &last).is_err());
            }
            for length in 0..value.len().min(48) {
                assert!(decode_head(&key, &value[..length]).is_err());
            }
        }
        let StoredWrite { key, value } = put_event(CHANNEL_7, 2, 77, b"event");
        let value = value.unwrap();
        assert_eq!(decode_head(&key, &value).unwrap(), None);
        let found = EventRecord { number: 2, stored_at: 77, event: b"event" };
        assert_eq!(decode_event(CHANNEL_7, &key, &value).unwrap(), Some(found));
        assert_eq!(decode_event(ChannelNumber(8), &key, &value).unwrap(), None);
        assert!(decode_event(CHANNEL_7, &key[..12], &value).is_err());
        assert!(decode_event(CHANNEL_7, &key, &value[..7]).is_err());
    }

    proptest! {
        #[test]
        fn no_octets_end_the_program(
            tag in 0..6u8, key in prop::collection::vec(0..4u8, 0..24), value in prop::collection::vec(0..4u8, 0..60)
        ) {
            let key = [&[tag][..], &key].concat();
            let _ = decode_head(&key, &value);
            let _ = decode_event(ChannelNumber(0), &key, &value);
        }
    }
}
