//! An event in a channel, and the forms in which consumers get it.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use corelane::{Any, Cdr, CdrError, Decoder, Encoder, Limits, SystemException, TypeCodeKind};
use corelane_sched::task::Nanos;
use corelane_wire::codeset::CodeSets;
use corelane_wire::{Endian, Version};

use super::counts::DropCounts;
use super::designator::TIME_UNIT;
use super::gateway::passage::Passage;
use super::header::{EventHeader, EventSource, EventType};
use super::idl::corelane_events::{Drops, Gap, PassingEvent};
use super::idl::{RtecEventData, rtec_event_comm as rtec};
use super::queue::LatestKey;
use super::router::{DeliverySet, RoutedEvent};
use super::subscriptions::{Expiry, Occurrence};

/// Number of bytes that an event counts in a queue, beyond its payload and its value.
pub(super) const HEADER_BYTES: usize = 64;
/// Smallest size in bytes of payloads that the ORB does not copy. Such payloads are not encoded in
/// advance, which would copy them.
const MIN_SHARED_BYTES: usize = 16 << 10;

/// The type and source that the channel gives to events of CORBA's Event Service, which have
/// neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CosEvents {
    pub(super) event_type: EventType,
    pub(super) source: EventSource,
    pub(super) types: HashMap<String, EventType>,
}

/// Maximum nesting of the values of a stored event. Readers decode it inside other values, with the
/// default limit of 128.
const MAX_STORED_NESTING: u32 = 64;

/// Flag of an event in a store: the record is in little-endian form.
const IS_LITTLE_ENDIAN: u8 = 1;
/// Flag of an event in a store: the record has the passage of an event that a gateway has brought.
const HAS_PASSAGE: u8 = 2;

/// Maximum size in bytes of the memory that a thread keeps for the encoded data of its next event.
const MAX_SPARE_OCTETS: usize = 64 << 10;
/// Maximum size in bytes of the payload's memory that an empty event keeps.
const MAX_SPARE_PAYLOAD: usize = 4 << 10;

thread_local! {
    /// Memory of the encoded data of an event that the thread has emptied.
    static SPARE_OCTETS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[derive(Debug)]
struct EncodedData {
    version: Version,
    code_sets: CodeSets,
    octets: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct StoredEvent {
    event: rtec::Event,
    /// The event's lane. Written by the router, with relaxed ordering, before other threads have
    /// the event.
    lane: AtomicUsize,
    bytes: OnceLock<usize>,
    /// The encoded data, in the form of the first shared write. The inner `None` means that the
    /// data cannot be encoded in advance.
    encoded: OnceLock<Option<EncodedData>>,
    /// The event as a value for consumers of CORBA's Event Service, made if the event has no value.
    value: OnceLock<Result<Any, SystemException>>,
    passage: OnceLock<Passage>,
}

impl RoutedEvent for Arc<StoredEvent> {
    fn bytes(&self) -> usize {
        *self.bytes.get_or_init(|| size(&self.event.data))
    }

    fn key(&self) -> LatestKey {
        (self.event.header.r#type, self.event.header.source)
    }

    fn lane(&self) -> usize {
        self.lane.load(Ordering::Relaxed)
    }

    fn in_lane(self, lane: usize) -> Self {
        self.lane.store(lane, Ordering::Relaxed);
        self
    }

    fn gap(untold: &DropCounts, total: &DropCounts, now: Nanos) -> Self {
        let gap = Gap {
            queue_full: untold.queue_full,
            replaced: untold.replaced,
            expired: untold.expired,
            suspended: untold.suspended,
            failed: untold.failed,
            nested: untold.nesting_too_deep,
            since_connected: Drops {
                queue_full: total.queue_full,
                replaced: total.replaced,
                expired: total.expired,
                suspended: total.suspended,
                failed: total.failed,
                disconnected: total.disconnected,
                nested: total.nesting_too_deep,
            },
        };
        let now = now / TIME_UNIT;
        let header = rtec::EventHeader {
            r#type: EventType::GAP.0,
            creation_time: now,
            ec_recv_time: now,
            ..rtec::EventHeader::default()
        };
        let any_value = Any::new(&gap).unwrap_or_default();
        Arc::new(StoredEvent::of(rtec::Event { header, data: RtecEventData { any_value, ..RtecEventData::default() } }))
    }
}

/// A pushed event: an event as it arrived, or an event that is already stored.
pub(super) trait PushedEvent: Sized {
    /// Puts the event, which the channel has received at the time `now`, into `empty`.
    fn store(self, now: Nanos, empty: &mut StoredEvent);
}

impl PushedEvent for StoredEvent {
    fn store(self, _: Nanos, empty: &mut StoredEvent) {
        *empty = self;
    }
}

impl PushedEvent for &rtec::Event {
    fn store(self, now: Nanos, empty: &mut StoredEvent) {
        let rtec::Event { header, data } = &mut empty.event;
        // A direct consumer gets the event at the same time, so both times are `now`.
        let now = now / TIME_UNIT;
        *header = rtec::EventHeader { ec_recv_time: now, ec_send_time: now, ..self.header };
        data.pad1 = self.data.pad1;
        data.payload.clone_from(&self.data.payload);
        if self.data.any_value.type_code().kind() != TypeCodeKind::Null {
            data.any_value.clone_from(&self.data.any_value);
        }
    }
}

impl StoredEvent {
    pub(super) fn new(event: impl PushedEvent, now: Nanos) -> Self {
        let mut stored = Self::default();
        event.store(now, &mut stored);
        stored
    }

    pub(super) fn of_value(value: Any, events: &CosEvents, now: Nanos) -> Self {
        let of_id = || events.types.get(value.type_code().id());
        let event_type = if events.types.is_empty() { None } else { of_id() };
        let now = now / TIME_UNIT;
        let header = rtec::EventHeader {
            r#type: event_type.unwrap_or(&events.event_type).0,
            source: events.source.0,
            ttl: 1,
            creation_time: now,
            ec_recv_time: now,
            ec_send_time: 0,
        };
        let data = RtecEventData { any_value: value, ..RtecEventData::default() };
        Self::of(rtec::Event { header, data })
    }

    /// Returns an event that a gateway has brought with this passage.
    pub(super) fn passed(event: &rtec::Event, passage: Passage, now: Nanos) -> Self {
        Self { passage: OnceLock::from(passage), ..Self::new(event, now) }
    }

    /// Returns the event for a gateway. `own` makes the passage of an event that has come through
    /// no gateway.
    pub(super) fn passing(&self, own: impl FnOnce() -> Passage, lanes: &[i32], now: Nanos) -> PassingEvent {
        let Passage { path, number } = self.passage.get_or_init(own);
        let lane = lanes.get(self.lane.load(Ordering::Relaxed)).copied().unwrap_or_default();
        PassingEvent { path: path.clone(), number: *number, lane, event: self.sent(now) }
    }

    fn of(event: rtec::Event) -> Self {
        Self { event, ..Self::default() }
    }

    /// Removes the content, so that the event's memory, and that of a short payload, can be used
    /// again.
    pub(super) fn empty(&mut self) {
        if let Some(Some(EncodedData { mut octets, .. })) = self.encoded.take()
            && octets.capacity() <= MAX_SPARE_OCTETS
        {
            octets.clear();
            SPARE_OCTETS.set(octets);
        }
        self.event.header = rtec::EventHeader::default();
        self.event.data.payload.clear_and_limit_memory(MAX_SPARE_PAYLOAD);
        if self.event.data.any_value.type_code().kind() != TypeCodeKind::Null {
            self.event.data.any_value = Any::null();
        }
        self.bytes.take();
        self.value.take();
        self.passage.take();
    }

    /// Computes and keeps the event's size, so that it is not computed under the channel's lock.
    pub(super) fn measure(self: &Arc<Self>) {
        self.bytes();
    }

    /// Returns the event in the form of a durable channel's store: an octet of flags (1:
    /// little-endian, 2: with a passage), the passage if a gateway has brought the event, and the
    /// event, in CDR with UTF-8 and UTF-16. Refuses an event that readers with the default limits
    /// could not decode.
    pub(super) fn to_octets(&self) -> Result<Vec<u8>, CdrError> {
        let mut encoder = Encoder::new();
        encoder.set_code_sets(CodeSets::UTF8_UTF16);
        let passage = self.passage.get();
        if let Some(Passage { path, number }) = passage {
            path.encode(&mut encoder)?;
            number.encode(&mut encoder)?;
        }
        self.event.encode(&mut encoder)?;
        let is_little = if Endian::NATIVE == Endian::Little { IS_LITTLE_ENDIAN } else { 0 };
        let mut octets = vec![is_little | if passage.is_some() { HAS_PASSAGE } else { 0 }];
        octets.extend(encoder.to_vec());
        if has_parts(&self.event.data.any_value) {
            let limits = Limits { max_nesting: MAX_STORED_NESTING, ..Limits::default() };
            decode(&octets, &limits)?;
        }
        Ok(octets)
    }

    /// Returns the event of a store's record, and its passage, which is empty for an event that no
    /// gateway has brought.
    pub(super) fn event_of_octets(octets: &[u8]) -> Result<(rtec::Event, Passage), CdrError> {
        decode(octets, &Limits::default())
    }

    pub(super) fn header(&self) -> EventHeader {
        event_header(&self.event.header)
    }

    fn sent(&self, now: Nanos) -> rtec::Event {
        let header = rtec::EventHeader { ec_send_time: now / TIME_UNIT, ..self.event.header };
        rtec::Event { header, data: self.event.data.clone() }
    }

    pub(super) fn value(&self) -> Result<&Any, SystemException> {
        if !is_null(&self.event.data.any_value) {
            return Ok(&self.event.data.any_value);
        }
        self.value.get_or_init(|| Any::new(&self.event)).as_ref().map_err(Clone::clone)
    }

    /// Writes the event. If `is_shared` says that the event has several consumers, small data is
    /// encoded once for all connections that have the version and code sets of the first
    /// connection.
    fn write(&self, now: Nanos, encoder: &mut Encoder<'_>, is_shared: bool) -> Result<(), CdrError> {
        let header = rtec::EventHeader { ec_send_time: now / TIME_UNIT, ..self.event.header };
        header.encode(encoder)?;
        let data = &self.event.data;
        let is_plain = encoder.endian() == Endian::NATIVE && !encoder.is_written_by_server();
        if data.payload.len() >= MIN_SHARED_BYTES || !is_plain || !encoder.position().is_multiple_of(8) {
            return data.encode(encoder);
        }
        let (version, code_sets) = (encoder.version(), encoder.code_sets());
        let encoded = match is_shared {
            true => self.encoded.get_or_init(|| encode(data, version, code_sets)).as_ref(),
            false => self.encoded.get().and_then(Option::as_ref),
        };
        match encoded {
            Some(encoded) if encoded.version == version && encoded.code_sets == code_sets => {
                encoder.write_bytes(&encoded.octets);
                Ok(())
            }
            _ => data.encode(encoder),
        }
    }
}

pub(super) fn event_header(header: &rtec::EventHeader) -> EventHeader {
    EventHeader {
        event_type: EventType(header.r#type),
        source: EventSource(header.source),
        ttl: header.ttl,
        creation_time: header.creation_time,
    }
}

pub(super) fn size(data: &RtecEventData) -> usize {
    let value = if is_null(&data.any_value) { 0 } else { encoded_size(&data.any_value) };
    HEADER_BYTES.saturating_add(data.payload.len()).saturating_add(value)
}

/// Returns the value that consumers of CORBA's Event Service get of an event.
pub(super) fn value_of(event: &rtec::Event) -> Result<Any, SystemException> {
    if is_null(&event.data.any_value) { Any::new(event) } else { Ok(event.data.any_value.clone()) }
}

fn decode(octets: &[u8], limits: &Limits) -> Result<(rtec::Event, Passage), CdrError> {
    let (flags, octets) = octets.split_first().ok_or(CdrError::UnsupportedForm)?;
    if flags & !(IS_LITTLE_ENDIAN | HAS_PASSAGE) != 0 {
        return Err(CdrError::UnsupportedForm);
    }
    let endian = if flags & IS_LITTLE_ENDIAN == 0 { Endian::Big } else { Endian::Little };
    let mut decoder = Decoder::new(octets, endian).with_limits(limits).with_code_sets(CodeSets::UTF8_UTF16);
    let passage = match flags & HAS_PASSAGE {
        0 => Passage::default(),
        _ => Passage { path: Cdr::decode(&mut decoder)?, number: Cdr::decode(&mut decoder)? },
    };
    Ok((rtec::Event::decode(&mut decoder)?, passage))
}

/// Returns true if the value may contain other values. Null and values of simple types contain
/// none.
fn has_parts(value: &Any) -> bool {
    let kind = value.type_code().kind();
    !is_null(value)
        && !matches!(
            kind,
            TypeCodeKind::Short
                | TypeCodeKind::Long
                | TypeCodeKind::UShort
                | TypeCodeKind::ULong
                | TypeCodeKind::Float
                | TypeCodeKind::Double
        )
        && !matches!(
            kind,
            TypeCodeKind::Boolean
                | TypeCodeKind::Octet
                | TypeCodeKind::LongLong
                | TypeCodeKind::ULongLong
                | TypeCodeKind::String
        )
}

fn is_null(value: &Any) -> bool {
    matches!(value.type_code().kind(), TypeCodeKind::Null | TypeCodeKind::Void)
}

/// Encodes the data of an event at a position that is a multiple of 8. Returns `None` for data that
/// cannot be encoded, or not in one piece.
fn encode(data: &RtecEventData, version: Version, code_sets: CodeSets) -> Option<EncodedData> {
    let mut encoder = Encoder::with_buffer(SPARE_OCTETS.take());
    encoder.set_version(version);
    encoder.set_code_sets(code_sets);
    data.encode(&mut encoder).ok()?;
    encoder.as_contiguous_slice()?;
    Some(EncodedData { version, code_sets, octets: encoder.take_buffer() })
}

fn encoded_size(value: &Any) -> usize {
    let mut encoder = Encoder::new();
    encoder.set_code_sets(CodeSets::UTF8_UTF16);
    // Ignores an error: a value that cannot be encoded is not sent, so its size does not matter.
    let _ = value.encode(&mut encoder);
    encoder.len()
}

fn timeout_event(expiry: &Expiry, now: Nanos) -> rtec::Event {
    let header = rtec::EventHeader {
        r#type: expiry.kind.event_type().0,
        source: 0,
        ttl: 0,
        creation_time: expiry.due_at / TIME_UNIT,
        ec_recv_time: expiry.due_at / TIME_UNIT,
        ec_send_time: now / TIME_UNIT,
    };
    rtec::Event { header, data: RtecEventData::default() }
}

/// Passes the events of a set to `push`. A set of one event is passed without a copy if it was
/// received at the time `now`, or if there is no other reference to the event.
pub(super) fn with_events<R>(
    set: &mut DeliverySet<Arc<StoredEvent>>,
    now: Nanos,
    push: impl FnOnce(&[rtec::Event]) -> R,
) -> R {
    if let DeliverySet::One(Occurrence::Event(event)) = &mut *set {
        if event.event.header.ec_send_time == now / TIME_UNIT {
            return push(std::slice::from_ref(&event.event));
        }
        if let Some(StoredEvent { event, .. }) = Arc::get_mut(event) {
            event.header.ec_send_time = now / TIME_UNIT;
            return push(std::slice::from_ref(event));
        }
    }
    let event = |occurrence: &Occurrence<Arc<StoredEvent>>| match occurrence {
        Occurrence::Event(event) => event.sent(now),
        Occurrence::Timeout(expiry) => timeout_event(expiry, now),
    };
    match set.as_slice() {
        [one] => push(std::slice::from_ref(&event(one))),
        several => push(&several.iter().map(event).collect::<Vec<_>>()),
    }
}

pub(super) fn write_events(
    set: &DeliverySet<Arc<StoredEvent>>,
    now: Nanos,
    encoder: &mut Encoder<'_>,
) -> Result<(), CdrError> {
    let set = set.as_slice();
    encoder.write_len(set.len())?;
    for occurrence in set {
        match occurrence {
            Occurrence::Event(event) => event.write(now, encoder, Arc::strong_count(event) > 1)?,
            Occurrence::Timeout(expiry) => timeout_event(expiry, now).encode(encoder)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_event_keeps_its_passage() {
        let data = RtecEventData { payload: vec![7; 40].into(), ..RtecEventData::default() };
        let event = rtec::Event { header: rtec::EventHeader { ttl: 3, ..rtec::EventHeader::default() }, data };
        for passage in [Passage::default(), Passage { path: vec![1, u64::MAX], number: 9 }] {
            let stored = match passage.path.is_empty() {
                true => StoredEvent::of(event.clone()),
                false => StoredEvent { passage: OnceLock::from(passage.clone()), ..StoredEvent::of(event.clone()) },
            };
            let octets = stored.to_octets().unwrap();
            let (read, found) = StoredEvent::event_of_octets(&octets).unwrap();
            assert_eq!((read.header, &read.data.payload[..], found), (event.header, &[7; 40][..], passage));
            for length in 0..octets.len() {
                assert!(StoredEvent::event_of_octets(&octets[..length]).is_err());
            }
            assert!(StoredEvent::event_of_octets(&[&[octets[0] | 4], &octets[1..]].concat()).is_err());
        }
    }

    #[test]
    fn memory_of_encoded_data_is_used_again() {
        let data = RtecEventData { payload: vec![7; 40].into(), ..RtecEventData::default() };
        let mut event = Arc::new(StoredEvent::of(rtec::Event { header: rtec::EventHeader::default(), data }));
        let written = |event: &Arc<StoredEvent>| {
            let mut encoder = Encoder::new();
            event.write(0, &mut encoder, true).unwrap();
            encoder.to_vec()
        };
        let first = written(&event);
        let encoded = event.encoded.get().unwrap().as_ref().unwrap();
        let memory = encoded.octets.as_ptr();
        assert_eq!(written(&event), first);
        Arc::get_mut(&mut event).unwrap().empty();
        let other = Arc::new(StoredEvent::default());
        written(&other);
        assert_eq!(other.encoded.get().unwrap().as_ref().unwrap().octets.as_ptr(), memory);
    }
}
