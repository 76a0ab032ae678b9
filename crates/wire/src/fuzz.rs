//! Entry points for fuzzing: functions that must return for every input. A panic is a finding.

use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Endian, Octets, Scratch, ValueReadState};
use crate::codeset::{CharSet, CodeSetContext, CodeSetInfo, CodeSets, WideByteOrder, WideCodeSet, negotiate};
use crate::connection::{ConnectionSide, FragmentPlan, Framer, FramingStep, ProtocolFault, ReplyMatch, RequestTable};
use crate::dynamic::{AnyValue, Value};
use crate::exception::SystemExceptionBody;
use crate::giop::{
    self, CancelRequest, Header, LocateReply, LocateRequest, MessageKind, Reply, Request, TargetAddress, Version,
};
use crate::ior::{
    Ior, ObjectUrl, Profile, TaggedProfile, TaoEndpoint, parse_alternate_address, parse_policies, parse_unix_transport,
};
use crate::limits::Limits;
use crate::rt;

static LIMITS: Limits = Limits {
    max_message_size: 4096,
    max_string_length: 512,
    max_sequence_length: 8192,
    max_decoded_bytes: 1 << 20,
    max_nesting: 8,
    max_valuetype_instances: 64,
    max_repository_ids: 4,
    max_repository_id_length: 64,
    max_service_contexts: 8,
    max_profiles: 4,
    max_tagged_components: 8,
    max_lane_endpoints: 16,
    max_partial_messages: 4,
    max_partial_message_bytes: 8192,
    max_fragments: 16,
    max_outstanding_requests: 8,
    max_reference_text_length: 4096,
};

/// Decodes the input as values of many types. The first byte of the input selects the decoder's
/// settings.
pub fn cdr(input: &[u8]) {
    let Some((settings, octets)) = input.split_first() else { return };
    let bit = |bit: u8| settings >> bit & 1 == 1;
    let versions = [Version::GIOP_1_0, Version::GIOP_1_1, Version::GIOP_1_2, Version::GIOP_1_2];
    let code_sets = CodeSets {
        char: if bit(3) { CharSet::Utf8 } else { CharSet::Latin1 },
        wchar: if bit(4) { WideCodeSet::Utf16 } else { WideCodeSet::None },
        wide_order: if bit(5) { WideByteOrder::MessageOrder } else { WideByteOrder::SpecifiedOrder },
    };
    let scratch = Scratch::new();
    let mut octets = octets.to_vec();
    if bit(7) {
        octets.resize(octets.len() + 2 * crate::cdr::BORROW_THRESHOLD, 0);
    }
    let owner = Octets::from(octets);
    let breaks = [owner.len() / 3, owner.len() / 2];
    let mut d = Decoder::new(&owner, Endian::from_flag(*settings))
        .with_version(versions[usize::from(settings >> 1 & 3)])
        .with_code_sets(code_sets)
        .with_limits(&LIMITS)
        .with_scratch(&scratch)
        .with_shared_message(&owner);
    if bit(6) {
        d = d.with_fragment_starts(&breaks);
    }
    each_type(&d);
    let mut steps = 0;
    while let Ok(step) = d.read_u8() {
        steps += 1;
        if read_one(step, &mut d).is_err() || steps > 1000 {
            break;
        }
    }
}

/// Decodes an `any`. If its type and value can be encoded again, the result must decode to an
/// equivalent type. The first byte of the input selects the decoder's settings.
pub fn any(input: &[u8]) {
    let Some((settings, octets)) = input.split_first() else { return };
    let owner = Octets::from(octets.to_vec());
    let versions = [Version::GIOP_1_2, Version::GIOP_1_1, Version::GIOP_1_0, Version::GIOP_1_2];
    let space = ValueReadState::new();
    let mut d = Decoder::new(&owner, Endian::from_flag(*settings))
        .with_version(versions[usize::from(settings >> 1 & 3)])
        .with_limits(&LIMITS)
        .with_value_read_state(&space)
        .with_shared_message(&owner);
    let Ok(any) = AnyValue::decode(&mut d) else { return };
    let type_code = any.type_code();
    assert!(type_code.equivalent(type_code));
    let _ = Value::default_of_type(type_code);
    // Writing may fail, because text may have no form in the encoder's version and code sets.
    let mut e = Encoder::new();
    if any.encode(&mut e).is_ok() {
        let octets = e.to_vec();
        // Text may be longer in the encoder's code sets, so only the nesting is limited here.
        let limits = Limits { max_nesting: LIMITS.max_nesting, ..Limits::DEFAULT };
        let space = ValueReadState::new();
        let mut d = Decoder::new(&octets, e.endian()).with_limits(&limits).with_value_read_state(&space);
        let again = AnyValue::decode(&mut d);
        assert!(again.is_ok_and(|again| again.type_code().equivalent(type_code)));
    }
    let Ok(value) = any.value() else { return };
    if let Ok(again) = AnyValue::from_value(type_code, &value) {
        assert!(again.value().is_ok());
    }
}

fn read_one(step: u8, d: &mut Decoder<'_>) -> Result<(), CdrError> {
    match step % 24 {
        0 => d.read_u16().map(drop),
        1 => d.read_u32().map(drop),
        2 => d.read_u64().map(drop),
        3 => d.read_f64().map(drop),
        4 => d.read_char().map(drop),
        5 => d.read_wchar().map(drop),
        6 => d.read_str().map(drop),
        7 => d.read_bounded_str(3).map(drop),
        8 => d.read_string().map(drop),
        9 => d.read_wstr().map(drop),
        10 => d.read_wstring().map(drop),
        11 => d.read_bounded_wstring(3).map(drop),
        12 => d.read_octet_sequence().map(drop),
        13 => d.read_octet_sequence_owned().map(drop),
        14 => d.read_long_double().map(drop),
        15 => d.read_fixed(u16::from(step)).map(drop),
        16 => d.read_encapsulation().and_then(|mut inner| inner.read_nested(|inner| read_one(step / 24, inner))),
        17 => {
            let len = d.read_len_bounded(8, 100)?;
            d.read_slice::<f64>(len).map(drop)
        }
        18 => {
            let len = d.read_len(2)?;
            d.read_slice::<u16>(len).map(drop)
        }
        19 => {
            let len = d.read_len(3)?;
            d.read_slice_with(len, |d| Ok((d.read_u8()?, d.read_u16()?))).map(drop)
        }
        20 => Vec::<Vec<String>>::decode(d).map(drop),
        21 => <[[u32; 2]; 3]>::decode(d).map(drop),
        22 => Ior::decode(d).map(drop),
        _ => d.align(8),
    }
}

fn each_type(d: &Decoder<'_>) {
    fn one<T: Cdr>(d: &Decoder<'_>) {
        let mut d = d.clone();
        if let Ok(value) = T::decode(&mut d) {
            let mut e = Encoder::new();
            if value.encode(&mut e).is_ok() {
                assert!(e.len() >= T::MIN_SIZE);
                let octets = e.to_vec();
                assert!(T::decode(&mut Decoder::new(&octets, e.endian())).is_ok());
            }
        }
    }
    one::<u8>(d);
    one::<bool>(d);
    one::<i16>(d);
    one::<f32>(d);
    one::<i64>(d);
    one::<String>(d);
    one::<Octets>(d);
    one::<Vec<u64>>(d);
    one::<Vec<bool>>(d);
    one::<Vec<Vec<Vec<u8>>>>(d);
    one::<[String; 2]>(d);
    one::<Box<[u16; 9]>>(d);
    one::<Ior>(d);
    one::<CodeSetInfo>(d);
    let _ = SystemExceptionBody::read(&mut d.clone());
    for data in [d.remaining_bytes()] {
        for tag in [
            0,
            crate::ior::profile_tag::UNIX,
            crate::ior::profile_tag::SHARED_MEMORY,
            crate::ior::profile_tag::OTHER_TRANSPORT,
            crate::ior::profile_tag::TAO_UIOP,
        ] {
            if let Ok(profile) = Profile::parse(tag, data, &LIMITS) {
                let _ = (profile.endpoints(), profile.lane_endpoints(&LIMITS), profile.orb_type());
            }
            let _ = TaoEndpoint::parse_all(tag, data, &LIMITS);
        }
        let _ =
            (rt::parse_priority_context(data), rt::parse_priority_range_context(data), rt::parse_priority_bands(data));
        let _ = (rt::PriorityModelValue::parse(data), rt::parse_protocols(data, &Limits::DEFAULT));
        let _ = (
            parse_alternate_address(data),
            parse_unix_transport(data),
            parse_policies(data, &Limits::DEFAULT),
            CodeSetContext::parse(data),
        );
        if let Ok(info) = CodeSetInfo::parse(data) {
            let _ = negotiate(&CodeSetInfo::for_native(CharSet::Utf8), &info, WideByteOrder::SpecifiedOrder);
        }
    }
}

type Framed = (Vec<(Vec<u8>, Vec<usize>)>, Option<ProtocolFault>);

fn framed(stream: &[u8], sizes: &[u8]) -> Framed {
    let mut framer = Framer::new();
    let (mut read, mut arrived, mut messages) = (0, 0, Vec::new());
    let mut sizes = sizes.iter().cycle();
    loop {
        let unread = stream.get(read..arrived).unwrap_or_default();
        match framer.next(unread, &LIMITS) {
            Err(fault) => return (messages, Some(fault)),
            Ok(FramingStep::NeedMore(wanted)) => {
                assert!(wanted > unread.len());
                if arrived == stream.len() {
                    return (messages, None);
                }
                let size = sizes.next().map_or(usize::MAX, |size| usize::from(*size) + 1);
                arrived = arrived.saturating_add(size).min(stream.len());
            }
            Ok(FramingStep::Message { len, .. }) => {
                messages.push((unread.get(..len).unwrap_or_default().to_vec(), Vec::new()));
                read += len;
            }
            Ok(FramingStep::FragmentBuffered(len)) => read += len,
            Ok(FramingStep::Assembled { message, fragment_starts: breaks, len, .. }) => {
                messages.push((message, breaks));
                read += len;
            }
        }
        assert!(read <= arrived);
        assert!(framer.partial_message_count() <= LIMITS.max_partial_messages as usize);
        assert!(framer.partial_message_bytes() <= LIMITS.max_partial_message_bytes as usize + Header::LEN);
    }
}

/// Frames a stream of GIOP messages that arrives in pieces, and checks that the messages do not
/// depend on the pieces. The first four bytes select the sizes of the pieces.
pub fn giop_framing(input: &[u8]) {
    let Some((sizes, stream)) = input.split_at_checked(4) else { return };
    let in_pieces = framed(stream, sizes);
    let at_once = framed(stream, &[]);
    assert_eq!(in_pieces.0, at_once.0);
    // The faults may differ, because a fault is reported as soon as some bytes of a header show it.
    assert_eq!(in_pieces.1.is_some(), at_once.1.is_some());
    for (message, breaks) in &at_once.0 {
        view(message, breaks);
    }
}

fn view(message: &[u8], breaks: &[usize]) {
    let Some(Ok(header)) = message.first_chunk().map(Header::parse) else { return };
    assert_eq!(header.total_len(), message.len());
    match header.kind {
        MessageKind::Request => {
            if let Ok(request) = Request::parse(message, &header, &LIMITS) {
                assert!(request.body_offset <= message.len());
                assert_eq!(request.contexts.iter().count(), request.contexts.len());
                each_type(&request.body().with_limits(&LIMITS).with_fragment_starts(breaks));
                write_again(&header, &request);
            }
        }
        MessageKind::Reply => {
            if let Ok(reply) = Reply::parse(message, &header, &LIMITS) {
                assert_eq!(reply.contexts.iter().count(), reply.contexts.len());
                each_type(&reply.body().with_limits(&LIMITS).with_fragment_starts(breaks));
            }
        }
        MessageKind::LocateRequest => drop(LocateRequest::parse(message, &header, &LIMITS)),
        MessageKind::LocateReply => {
            let _ =
                LocateReply::parse(message, &header).map(|reply| Ior::decode(&mut reply.body().with_limits(&LIMITS)));
        }
        MessageKind::CancelRequest => drop(CancelRequest::parse(message, &header)),
        MessageKind::CloseConnection | MessageKind::MessageError | MessageKind::Fragment => {}
    }
}

fn write_again(header: &Header, request: &Request<'_>) {
    let mut e = Encoder::new();
    e.set_endian(header.endian);
    let contexts: Vec<_> = request.contexts.iter().map(|(id, data)| giop::ServiceContext { id, data }).collect();
    let head = giop::RequestHeader {
        version: request.version,
        request_id: request.request_id,
        response_expected: request.response_expected,
        target: request.target,
        operation: request.operation,
        contexts: &contexts,
    };
    // A target that is a whole reference is copied with its old alignment, so the new message may
    // not parse.
    let plain = !matches!(request.target, TargetAddress::Reference { .. });
    let written = giop::write_request_header(&mut e, &head).and_then(|()| giop::finish_message(&mut e));
    assert!(written.is_ok());
    let octets = e.to_vec();
    if let (true, Some(Ok(header))) = (plain, octets.first_chunk().map(Header::parse)) {
        let again = Request::parse(&octets, &header, &LIMITS);
        assert!(again.is_ok_and(|again| {
            (again.request_id, again.operation, again.target, again.contexts)
                == (request.request_id, request.operation, request.target, request.contexts)
        }));
    }
}

/// Parses the text form of a reference. If the reference can be written as text, that text must
/// parse to an equal reference.
pub fn ior_text(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(read) = ObjectUrl::parse(&text, &LIMITS) else { return };
    let written = match &read {
        ObjectUrl::Ior(ior) => {
            let _ = (ior.equivalence_hash(), ior.is_nil());
            assert!(ior.is_equivalent(ior));
            for profile in ior.known_profiles() {
                for (endpoint, _) in
                    profile.endpoints().into_iter().map(|own| (own, -1)).chain(profile.lane_endpoints(&LIMITS))
                {
                    assert!(endpoint.to_string().contains(':'));
                    let alone = TaggedProfile::encode(profile.version, endpoint.as_address(), profile.object_key, &[]);
                    // `encode` writes a non-ASCII host in another form, and `endpoints` returns no
                    // endpoint with port 0, so such endpoints are not compared.
                    if format!("{endpoint:?}").is_ascii()
                        && let Some(Ok(alone)) = alone.as_ref().ok().map(TaggedProfile::parse)
                        && let [again] = alone.endpoints().as_slice()
                    {
                        assert_eq!(*again, endpoint);
                    }
                }
            }
            match ior.to_text() {
                Ok(text) => text,
                Err(_) => return,
            }
        }
        ObjectUrl::Corbaloc(corbaloc) => {
            let _ = corbaloc.to_ior().map(|ior| ior.is_nil());
            corbaloc.to_string()
        }
        ObjectUrl::Corbaname(corbaname) => corbaname.to_string(),
    };
    let limits = Limits { max_reference_text_length: u32::MAX, ..LIMITS.clone() };
    assert_eq!(ObjectUrl::parse(&written, &limits), Ok(read));
}

/// Performs operations on a request table, cuts messages into fragments, and checks the results.
/// The first input byte selects the connection side. Each further byte selects an operation.
pub fn connection_ops(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let initiative = if first & 4 == 0 { ConnectionSide::Initiator } else { ConnectionSide::Acceptor };
    let mut table = RequestTable::new(initiative, LIMITS.max_outstanding_requests);
    let mut waiting: Vec<(u32, usize)> = Vec::new();
    let mut forgotten: Vec<u32> = Vec::new();
    for (step, octet) in rest.iter().enumerate() {
        let number = octet >> 4;
        match octet & 0x07 {
            0 | 1 => match table.insert(step) {
                Ok(id) => {
                    assert!(waiting.iter().all(|entry| entry.0 != id) && !forgotten.contains(&id));
                    waiting.push((id, step));
                }
                Err(_) => assert_eq!(table.waiting_count() + forgotten.len(), LIMITS.max_outstanding_requests as usize),
            },
            2 => {
                if !waiting.is_empty() {
                    let (id, value) = waiting.swap_remove(usize::from(number) % waiting.len());
                    assert_eq!(table.get(id), Some(&value));
                    if number & 1 == 0 {
                        assert_eq!((table.remove(id), table.remove(id)), (Some(value), None));
                    } else {
                        assert_eq!(
                            (table.match_reply(id), table.match_reply(id)),
                            (ReplyMatch::Matched(value), ReplyMatch::Unknown)
                        );
                    }
                }
            }
            3 => {
                if number & 1 == 0 && !waiting.is_empty() {
                    let (id, value) = waiting.swap_remove(usize::from(number) % waiting.len());
                    assert_eq!((table.abandon(id), table.abandon(id), table.remove(id)), (Some(value), None, None));
                    forgotten.push(id);
                } else if !forgotten.is_empty() {
                    let id = forgotten.swap_remove(usize::from(number) % forgotten.len());
                    assert_eq!(
                        (table.match_reply(id), table.match_reply(id)),
                        (ReplyMatch::Abandoned, ReplyMatch::Unknown)
                    );
                }
            }
            4 => {
                let id = u32::from(number);
                let known = waiting.iter().any(|entry| entry.0 == id);
                assert_eq!(table.get_mut(id).is_some(), known);
            }
            5 => {
                assert_eq!(table.drain().count(), waiting.len());
                waiting.clear();
                forgotten.clear();
            }
            _ => plan(number, step),
        }
        assert_eq!((table.waiting_count(), table.abandoned_count()), (waiting.len(), forgotten.len()));
    }
}

fn plan(number: u8, step: usize) {
    let size = u32::try_from(step * 37 % 600).unwrap_or(0).max(4);
    for version in [Version::GIOP_1_1, Version::GIOP_1_2] {
        let header = Header { version, endian: Endian::Little, more_fragments: false, kind: MessageKind::Reply, size };
        let mut message = header.to_bytes().to_vec();
        message.resize(header.total_len(), number);
        let id = u32::from_le_bytes([number; 4]);
        let mut framer = Framer::new();
        let limits = Limits { max_fragments: 100, ..LIMITS.clone() };
        let mut whole = None;
        for piece in FragmentPlan::new(&header, id, usize::from(number) * 16) {
            let octets = [piece.header(), message.get(piece.byte_range.clone()).unwrap_or_default()].concat();
            match framer.next(&octets, &limits) {
                Ok(FramingStep::Message { .. }) => whole = Some(octets),
                Ok(FramingStep::Assembled { message, .. }) => whole = Some(message),
                other => assert!(matches!(other, Ok(FramingStep::FragmentBuffered(_)))),
            }
        }
        assert_eq!(whole, Some(message));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{any, cdr, connection_ops, giop_framing, ior_text};

    type Target = (&'static str, fn(&[u8]));

    const TARGETS: [Target; 4] =
        [("cdr", cdr), ("giop_framing", giop_framing), ("ior_text", ior_text), ("connection_ops", connection_ops)];

    struct Xorshift(u64);

    impl Xorshift {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn below(&mut self, limit: usize) -> usize {
            usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
        }

        fn mutate(&mut self, input: &mut Vec<u8>) {
            for _ in 0..=self.below(4) {
                let at = self.below(input.len());
                match self.below(5) {
                    0 => input.truncate(at),
                    1 => input.insert(at, 0xff),
                    2 if !input.is_empty() => input[at] ^= 1 << self.below(8),
                    3 if input.len() >= at + 4 => input[at..at + 4].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]),
                    _ if !input.is_empty() => input[at] = self.next().to_le_bytes()[0],
                    _ => {}
                }
            }
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for product in ["omniorb", "tao"] {
            for entry in
                fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(product)).unwrap()
            {
                let text = fs::read_to_string(entry.unwrap().path()).unwrap();
                let file: serde_json::Value = serde_json::from_str(&text).unwrap();
                for vector in file["vectors"].as_array().unwrap() {
                    match (vector["bytes_hex"].as_str(), vector["ior"].as_str()) {
                        (Some(hex), _) => {
                            let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                            found.push((0..hex.len()).step_by(2).map(octet).collect());
                        }
                        (None, ior) => found.push(ior.unwrap().as_bytes().to_vec()),
                    }
                }
            }
        }
        found
    }

    #[test]
    fn the_corpus_of_past_findings() {
        for (name, target) in TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
            for entry in fs::read_dir(&folder).unwrap() {
                target(&fs::read(entry.unwrap().path()).unwrap());
            }
        }
    }

    #[test]
    fn real_messages_and_their_mutations() {
        let mut random = Xorshift(0x0043_4c4e_0000_0001);
        for seed in seeds() {
            for _ in 0..8 {
                let mut input = seed.clone();
                let settings = random.next().to_le_bytes();
                cdr(&[&settings[..1], &input].concat());
                any(&[&settings[..1], &input].concat());
                ior_text(&input);
                giop_framing(&[&settings[..4], &input, &input].concat());
                random.mutate(&mut input);
                cdr(&[&settings[..1], &input].concat());
                ior_text(&input);
                giop_framing(&[&settings[..4], &input, &seed, &input].concat());
                connection_ops(&input);
            }
        }
        for text in ["corbaloc::1.2@h:1,:[::1]/a%20b", "corbaname:rir:#a%2fb", "corbaloc:rir:/X"] {
            for _ in 0..2000 {
                let mut input = text.as_bytes().to_vec();
                random.mutate(&mut input);
                ior_text(&input);
            }
        }
        for _ in 0..500 {
            let input: Vec<u8> = (0..300).map(|_| random.next().to_le_bytes()[0]).collect();
            connection_ops(&input);
            cdr(&input);
        }
    }
}
