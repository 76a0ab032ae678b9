//! Round trips of values and messages.

use corelane_wire::connection::{FragmentPlan, Framer, FramingStep};
use corelane_wire::giop::{
    self, Header, MessageKind, Reply, ReplyStatus, Request, RequestHeader, ResponseExpected, ServiceContext,
    TargetAddress,
};
use corelane_wire::ior::{
    Corbaloc, CorbalocAddress, Corbaname, Ior, ObjectUrl, ProfileAddress, TaggedComponent, TaggedProfile, escape_key,
    unescape_key,
};
use corelane_wire::{
    Cdr, CdrError, CodeSets, Decoder, Encoder, Endian, Limits, Octets, Scratch, Version, WideByteOrder,
};
use proptest::collection::vec;
use proptest::prelude::*;

static LIMITS: Limits = Limits::DEFAULT;

#[derive(Clone, Debug, PartialEq)]
enum Item {
    Octet(u8),
    Boolean(bool),
    Short(i16),
    UShort(u16),
    Long(i32),
    ULong(u32),
    LongLong(i64),
    ULongLong(u64),
    Float(f32),
    Double(f64),
    LongDouble([u8; 16]),
    Fixed(u16, i128),
    Char(char),
    Text(String),
    WChar(char),
    WText(String),
    Octets(Vec<u8>),
    Longs(Vec<i32>),
    Doubles(Vec<f64>),
    Booleans(Vec<bool>),
    Texts(Vec<String>),
    Array([u16; 3]),
    Reference(Ior),
    Encapsulated(Vec<Item>),
}

impl Item {
    fn write(&self, e: &mut Encoder<'_>) {
        match self {
            Item::Octet(value) => e.write_u8(*value),
            Item::Boolean(value) => e.write_bool(*value),
            Item::Short(value) => e.write_i16(*value),
            Item::UShort(value) => e.write_u16(*value),
            Item::Long(value) => e.write_i32(*value),
            Item::ULong(value) => e.write_u32(*value),
            Item::LongLong(value) => e.write_i64(*value),
            Item::ULongLong(value) => e.write_u64(*value),
            Item::Float(value) => e.write_f32(*value),
            Item::Double(value) => e.write_f64(*value),
            Item::LongDouble(value) => e.write_long_double(*value),
            Item::Fixed(digits, value) => e.write_fixed(*digits, *value).unwrap(),
            Item::Char(value) => e.write_char(*value).unwrap(),
            Item::Text(value) => e.write_str(value).unwrap(),
            Item::WChar(value) => e.write_wchar(*value).unwrap(),
            Item::WText(value) => e.write_wstr(value).unwrap(),
            Item::Octets(value) => Octets::copy_from(value).encode(e).unwrap(),
            Item::Longs(value) => value.encode(e).unwrap(),
            Item::Doubles(value) => value.encode(e).unwrap(),
            Item::Booleans(value) => value.encode(e).unwrap(),
            Item::Texts(value) => value.encode(e).unwrap(),
            Item::Array(value) => value.encode(e).unwrap(),
            Item::Reference(value) => value.encode(e).unwrap(),
            Item::Encapsulated(items) => e
                .write_encapsulation(|e| {
                    items.iter().for_each(|item| item.write(e));
                    Ok(())
                })
                .unwrap(),
        }
    }

    fn read(&self, d: &mut Decoder<'_>) -> Item {
        match self {
            Item::Octet(_) => Item::Octet(d.read_u8().unwrap()),
            Item::Boolean(_) => Item::Boolean(d.read_bool().unwrap()),
            Item::Short(_) => Item::Short(d.read_i16().unwrap()),
            Item::UShort(_) => Item::UShort(d.read_u16().unwrap()),
            Item::Long(_) => Item::Long(d.read_i32().unwrap()),
            Item::ULong(_) => Item::ULong(d.read_u32().unwrap()),
            Item::LongLong(_) => Item::LongLong(d.read_i64().unwrap()),
            Item::ULongLong(_) => Item::ULongLong(d.read_u64().unwrap()),
            Item::Float(_) => Item::Float(d.read_f32().unwrap()),
            Item::Double(_) => Item::Double(d.read_f64().unwrap()),
            Item::LongDouble(_) => Item::LongDouble(d.read_long_double().unwrap()),
            Item::Fixed(digits, _) => Item::Fixed(*digits, d.read_fixed(*digits).unwrap()),
            Item::Char(_) => Item::Char(d.read_char().unwrap()),
            Item::Text(_) => {
                let owned = d.clone().read_string().unwrap();
                assert_eq!(d.read_str().unwrap(), owned);
                Item::Text(owned)
            }
            Item::WChar(_) => Item::WChar(d.read_wchar().unwrap()),
            Item::WText(_) => {
                let owned = d.clone().read_wstring().unwrap();
                assert_eq!(d.read_wstr().unwrap(), owned);
                Item::WText(owned)
            }
            Item::Octets(_) => {
                let owned = d.clone().read_octet_sequence_owned().unwrap().into_vec();
                assert_eq!(d.read_octet_sequence().unwrap(), owned);
                Item::Octets(owned)
            }
            Item::Longs(_) => {
                let owned = Vec::<i32>::decode(&mut d.clone()).unwrap();
                assert_eq!(one_by_one(d, Decoder::read_i32), owned);
                let len = d.read_len(4).unwrap();
                assert_eq!(d.read_slice::<i32>(len).unwrap(), owned);
                Item::Longs(owned)
            }
            Item::Doubles(_) => {
                let single = one_by_one(d, Decoder::read_f64);
                assert_eq!(Vec::<f64>::decode(d).unwrap(), single);
                Item::Doubles(single)
            }
            Item::Booleans(_) => Item::Booleans(Vec::decode(d).unwrap()),
            Item::Texts(_) => Item::Texts(Vec::decode(d).unwrap()),
            Item::Reference(_) => Item::Reference(Ior::decode(d).unwrap()),
            Item::Array(_) => Item::Array(<[u16; 3]>::decode(d).unwrap()),
            Item::Encapsulated(items) => {
                let mut inner = d.read_encapsulation().unwrap();
                let items = items.iter().map(|item| item.read(&mut inner)).collect();
                assert_eq!(inner.remaining_len(), 0);
                Item::Encapsulated(items)
            }
        }
    }
}

/// Reads a sequence of numbers with one call for each number. A boundary between fragments may
/// divide a sequence, but never a single number.
fn one_by_one<'m, T>(d: &Decoder<'m>, number: impl Fn(&mut Decoder<'m>) -> Result<T, CdrError>) -> Vec<T> {
    let mut d = d.clone();
    let len = d.read_len(1).unwrap();
    (0..len).map(|_| number(&mut d).unwrap()).collect()
}

/// Generates texts of characters that both code sets for char contain.
fn text() -> impl Strategy<Value = String> {
    vec(1u8..=255, 0..20).prop_map(|octets| octets.into_iter().map(char::from).collect())
}

fn item(wide: bool) -> impl Strategy<Value = Item> {
    let finite = any::<i32>().prop_map(f64::from);
    let narrow = prop_oneof![
        any::<u8>().prop_map(Item::Octet),
        any::<bool>().prop_map(Item::Boolean),
        any::<i16>().prop_map(Item::Short),
        any::<u16>().prop_map(Item::UShort),
        any::<i32>().prop_map(Item::Long),
        any::<u32>().prop_map(Item::ULong),
        any::<i64>().prop_map(Item::LongLong),
        any::<u64>().prop_map(Item::ULongLong),
        any::<i16>().prop_map(|value| Item::Float(f32::from(value) / 8.0)),
        finite.clone().prop_map(|value| Item::Double(value / 3.0)),
        any::<[u8; 16]>().prop_map(Item::LongDouble),
        (1u16..=31, any::<i64>()).prop_map(|(digits, value)| {
            let bound = 10i128.pow(u32::from(digits));
            Item::Fixed(digits, i128::from(value) % bound)
        }),
        (0u8..0x80).prop_map(|octet| Item::Char(char::from(octet))),
        text().prop_map(Item::Text),
        vec(any::<u8>(), 0..40).prop_map(Item::Octets),
        (any::<u8>(), 16_384usize..17_000).prop_map(|(octet, len)| Item::Octets(vec![octet; len])),
        vec(any::<i32>(), 0..90).prop_map(Item::Longs),
        vec(finite, 0..40).prop_map(Item::Doubles),
        vec(any::<bool>(), 0..9).prop_map(Item::Booleans),
        vec(text(), 0..4).prop_map(Item::Texts),
        any::<[u16; 3]>().prop_map(Item::Array),
        (text(), vec((any::<u32>(), vec(any::<u8>(), 0..50)), 0..4)).prop_map(|(type_id, profiles)| {
            let profiles = profiles.into_iter().map(|(tag, data)| TaggedProfile { tag, data }).collect();
            Item::Reference(Ior { type_id, profiles })
        }),
    ];
    // Excludes halves of surrogate pairs and characters that look like a byte-order mark.
    let plane = any::<u16>().prop_filter_map("no character", |unit| char::from_u32(u32::from(unit)));
    let wchar = plane.prop_filter("a mark", |unit| !matches!(unit, '\u{feff}' | '\u{fffe}'));
    let wtext = "[a-z€\u{10000}-\u{10ffff}]{0,9}".prop_map(Item::WText);
    let wides = prop_oneof![wchar.prop_map(Item::WChar), wtext];
    if wide { prop_oneof![8 => narrow, 1 => wides].boxed() } else { narrow.boxed() }
}

fn items(wide: bool) -> impl Strategy<Value = Vec<Item>> {
    let inner = vec(item(wide), 0..5).prop_map(Item::Encapsulated);
    vec(prop_oneof![6 => item(wide), 1 => inner], 0..12)
}

fn endian() -> impl Strategy<Value = Endian> {
    prop_oneof![Just(Endian::Big), Just(Endian::Little)]
}

fn version() -> impl Strategy<Value = Version> {
    (0u8..=2).prop_map(|minor| Version { major: 1, minor })
}

fn sets() -> impl Strategy<Value = CodeSets> {
    let standard = prop_oneof![Just(CodeSets::LATIN1_UTF16), Just(CodeSets::UTF8_UTF16)];
    (standard, any::<bool>()).prop_map(|(sets, sender)| {
        let wide_order = if sender { WideByteOrder::MessageOrder } else { WideByteOrder::SpecifiedOrder };
        CodeSets { wide_order, ..sets }
    })
}

#[derive(Clone, Debug)]
struct Sent {
    version: Version,
    endian: Endian,
    sets: CodeSets,
    request_id: u32,
    is_reply: bool,
    key: Vec<u8>,
    operation: String,
    contexts: Vec<(u32, Vec<u8>)>,
    items: Vec<Item>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let settings = (version(), endian(), sets());
    settings.prop_flat_map(|(version, endian, sets)| {
        let head = (any::<u32>(), any::<bool>(), vec(any::<u8>(), 0..40), "[a-z_]{1,30}");
        let contexts = vec((any::<u32>(), vec(any::<u8>(), 0..20)), 0..4);
        (head, contexts, items(version != Version::GIOP_1_0)).prop_map(move |(head, contexts, items)| {
            let (request_id, is_reply, key, operation) = head;
            Sent { version, endian, sets, request_id, is_reply, key, operation, contexts, items }
        })
    })
}

impl Sent {
    fn write(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.set_endian(self.endian);
        e.set_code_sets(self.sets);
        let contexts: Vec<_> = self.contexts.iter().map(|(id, data)| ServiceContext { id: *id, data }).collect();
        if self.is_reply {
            giop::begin_reply(&mut e, self.version, self.request_id, ReplyStatus::NoException, &contexts).unwrap();
        } else {
            let head = RequestHeader {
                version: self.version,
                request_id: self.request_id,
                response_expected: ResponseExpected::Target,
                target: TargetAddress::Key(&self.key),
                operation: self.operation.as_bytes(),
                contexts: &contexts,
            };
            giop::write_request_header(&mut e, &head).unwrap();
        }
        self.items.iter().for_each(|item| item.write(&mut e));
        giop::finish_message(&mut e).unwrap();
        e.to_vec()
    }

    fn check(&self, message: &[u8], breaks: &[usize]) {
        let header = Header::parse(message.first_chunk().unwrap()).unwrap();
        assert_eq!((header.version, header.endian, header.total_len()), (self.version, self.endian, message.len()));
        let (id, contexts, body) = if self.is_reply {
            let reply = Reply::parse(message, &header, &LIMITS).unwrap();
            (reply.request_id, reply.contexts, reply.body())
        } else {
            let request = Request::parse(message, &header, &LIMITS).unwrap();
            assert_eq!((request.target, request.operation), (TargetAddress::Key(&self.key), self.operation.as_bytes()));
            (request.request_id, request.contexts, request.body())
        };
        assert_eq!(id, self.request_id);
        assert!(contexts.iter().eq(self.contexts.iter().map(|(id, data)| (*id, data.as_slice()))));
        let scratch = Scratch::new();
        let mut d = body.with_code_sets(self.sets).with_scratch(&scratch).with_fragment_starts(breaks);
        let read: Vec<Item> = self.items.iter().map(|item| item.read(&mut d)).collect();
        assert_eq!((&read, d.remaining_len()), (&self.items, 0));
    }
}

fn messages(stream: &[u8], pieces: &[usize]) -> Vec<(Vec<u8>, Vec<usize>)> {
    let mut framer = Framer::new();
    let (mut read, mut arrived, mut found) = (0, 0, Vec::new());
    let mut pieces = pieces.iter().cycle();
    loop {
        match framer.next(&stream[read..arrived], &LIMITS).unwrap() {
            FramingStep::NeedMore(_) if arrived == stream.len() => {
                assert_eq!((read, framer.partial_message_count()), (arrived, 0));
                return found;
            }
            FramingStep::NeedMore(_) => arrived = (arrived + pieces.next().unwrap()).min(stream.len()),
            FramingStep::Message { len, .. } => {
                found.push((stream[read..read + len].to_vec(), Vec::new()));
                read += len;
            }
            FramingStep::FragmentBuffered(len) => read += len,
            FramingStep::Assembled { message, fragment_starts: breaks, len, .. } => {
                found.push((message, breaks));
                read += len;
            }
        }
    }
}

proptest! {
    #[test]
    fn values_round_trip_in_every_version_and_byte_order(sent in sent()) {
        sent.check(&sent.write(), &[]);
    }

    #[test]
    fn messages_are_framed_from_arbitrary_pieces(
        sent in vec((sent(), 64usize..5000), 1..4),
        pieces in vec(1usize..3000, 1..8),
    ) {
        let mut stream = Vec::new();
        for (one, threshold) in &sent {
            let message = one.write();
            let header = Header::parse(message.first_chunk().unwrap()).unwrap();
            for piece in FragmentPlan::new(&header, one.request_id, *threshold) {
                stream.extend_from_slice(piece.header());
                stream.extend_from_slice(&message[piece.byte_range]);
            }
        }
        let found = messages(&stream, &pieces);
        prop_assert_eq!(found.len(), sent.len());
        for ((one, _), (message, breaks)) in sent.iter().zip(&found) {
            one.check(message, breaks);
        }
    }

    #[test]
    fn values_round_trip_in_giop_1_1_fragments(groups in vec(items(true), 1..5), endian in endian(), pieces in vec(1usize..300, 1..4)) {
        let (version, sets) = (Version::GIOP_1_1, CodeSets::LATIN1_UTF16);
        let mut stream = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let mut e = Encoder::new();
            e.set_endian(endian);
            e.set_code_sets(sets);
            e.set_version(version);
            if index == 0 {
                giop::begin_reply(&mut e, version, 7, ReplyStatus::NoException, &[]).unwrap();
            } else {
                e.write_bytes(&[0; 12]);
            }
            group.iter().for_each(|item| item.write(&mut e));
            let fragment = e.to_vec();
            let kind = if index == 0 { MessageKind::Reply } else { MessageKind::Fragment };
            let size = u32::try_from(fragment.len() - 12).unwrap();
            let header = Header { version, endian, more_fragments: index + 1 < groups.len(), kind, size };
            stream.extend(header.to_bytes());
            stream.extend_from_slice(&fragment[12..]);
        }
        let found = messages(&stream, &pieces);
        let [(message, breaks)] = found.as_slice() else { panic!() };
        let header = Header::parse(message.first_chunk().unwrap()).unwrap();
        let reply = Reply::parse(message, &header, &LIMITS).unwrap();
        let scratch = Scratch::new();
        let mut d = reply.body().with_code_sets(sets).with_scratch(&scratch).with_fragment_starts(breaks);
        for group in &groups {
            for item in group {
                prop_assert_eq!(&item.read(&mut d), item);
            }
        }
        prop_assert_eq!(d.remaining_len(), 0);
    }

    #[test]
    fn references(
        type_id in text(),
        profiles in vec((0u8..=2, "[a-z0-9.:-]{1,30}", any::<u16>(), vec(any::<u8>(), 0..30), 0u8..6), 0..4),
        components in vec((any::<u32>(), vec(any::<u8>(), 0..20)), 0..4),
        unknown in vec(any::<u8>(), 0..30),
    ) {
        let components: Vec<_> = components.into_iter().map(|(tag, data)| TaggedComponent { tag, data }).collect();
        let mut ior = Ior { type_id, profiles: Vec::new() };
        for (minor, host, port, key, form) in &profiles {
            let version = Version { major: 1, minor: *minor };
            let address = match form {
                0 => ProfileAddress::Unix { host, path: "/run/ä" },
                1 => ProfileAddress::Uiop { path: host },
                2 => ProfileAddress::SharedMemory { host, path: "/run/ä" },
                3 => ProfileAddress::Other { scheme: "pipe", address: host },
                _ => ProfileAddress::Inet { host, port: *port },
            };
            let profile = TaggedProfile::encode(version, address, key, &components).unwrap();
            let view = profile.parse().unwrap();
            prop_assert_eq!((view.version, view.address, view.object_key), (version, address, key.as_slice()));
            let expected = if *minor == 0 { &[] } else { components.as_slice() };
            prop_assert!(view.components.iter().eq(expected.iter().map(|one| (one.tag, one.data.as_slice()))));
            ior.profiles.push(profile);
        }
        ior.profiles.push(TaggedProfile { tag: 0x7777, data: unknown });
        for endian in [Endian::Big, Endian::Little] {
            let mut e = Encoder::new();
            e.set_endian(endian);
            ior.encode(&mut e).unwrap();
            let octets = e.to_vec();
            prop_assert_eq!(&Ior::decode(&mut Decoder::new(&octets, endian)).unwrap(), &ior);
        }
        prop_assert_eq!(Ior::from_text(&ior.to_text().unwrap(), &LIMITS), Ok(ior.clone()));
        prop_assert!(ior.is_equivalent(&ior.clone()));
    }

    #[test]
    fn urls(
        addresses in vec((0u8..=2, "[a-z0-9.-]{1,20}|[0-9a-f:]{1,10}:", any::<u16>()), 1..4),
        key in vec(any::<u8>(), 1..30),
        name in "[a-zA-Z0-9/. \\\\#%é]{1,20}",
    ) {
        let addresses = addresses.into_iter().map(|(minor, host, port)| {
            CorbalocAddress::Iiop { version: Version { major: 1, minor }, host, port }
        });
        let context = Corbaloc { addresses: addresses.collect(), key: key.clone() };
        prop_assert_eq!(unescape_key(&escape_key(&key)), Ok(key));
        let text = context.to_string();
        prop_assert_eq!(ObjectUrl::parse(&text, &LIMITS), Ok(ObjectUrl::Corbaloc(context.clone())));
        let name = Corbaname { context, name: Some(name) };
        prop_assert_eq!(ObjectUrl::parse(&name.to_string(), &LIMITS), Ok(ObjectUrl::Corbaname(name)));
    }
}
